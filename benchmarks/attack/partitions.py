"""`gistgnn partition --out` with odd options and destinations, and what an interrupted one has left, damaged."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Outcome, Place, Report, run_command
from benchmarks.attack.damage import CHANGES
from benchmarks.attack.options import FLOATS, INTEGERS, NAMES, TEXTS
from benchmarks.attack.process import Forked, gistgnn
from benchmarks.attack.valid_folders import GRAPHS

_METHODS = ["auto", "stream", "stream", "random", "random", "metis"]
_WRONG = {"--clusters": INTEGERS, "--memory": [*FLOATS, *INTEGERS], "--seed": INTEGERS, "--method": TEXTS}
_WRONG |= {"--dataset": [*TEXTS, "digits", "clusters", "own.npz", "run", ".", "graph/x.npy", "graph/manifest.json"]}
_WORK = ".gistgnn-convert-"


def partitions(rng: Random, place: Place) -> Report:
    """Cut a graph folder into clusters, to a destination or with options that may be wrong, or after a kill."""
    graph = rng.choice(list(GRAPHS))
    for name in (graph, "clusters"):
        shutil.copytree(place.valid / name, place.own / name)
    words = ["partition", "--dataset", graph, "--clusters", "4", "--method", rng.choice(_METHODS)]
    what, make = rng.choice(list(_DESTINATIONS.items()))
    if rng.random() < 0.3:
        what, make = "", _new
    out = make(rng, place.own, graph)
    if rng.random() < 0.3:
        option = rng.choice(list(_WRONG))
        words += [option, rng.choice(_WRONG[option])]
    words += ["--out", out]
    if not what and rng.random() < 0.7:
        what = _interrupted(rng, place, words)
    before = _state(place.own)

    def judge(outcome: Outcome) -> str:
        if outcome.status == 0:
            return _lost(before, place.own, out) or _wrong_clusters(place.own, place.own / out, words)
        return _lost(before, place.own, out) or _left(before, place.own)

    return run_command(place, words, judge, what)


def _interrupted(rng: Random, place: Place, words: list[str]) -> str:
    """Run a command that ends as by a kill at one of its writes, and perhaps damage a file that it leaves."""
    writes = rng.randrange(1, 20)

    def killed() -> int:
        from gistgnn.graphs.folder_writing import ArrayWriter

        real, left = ArrayWriter.append, [writes]

        def append(self: Any, values: Any) -> None:
            real(self, values)
            left[0] -= 1
            if not left[0]:
                os._exit(9)

        ArrayWriter.append = append  # type: ignore[method-assign]
        return gistgnn(words)()

    Forked(killed, place.own).outcome(place.limit)
    files = sorted(each for each in place.own.glob(f"{_WORK}*/*") if each.is_file())
    if not files or rng.random() < 0.3:
        return f"killed at write {writes}"
    path = rng.choice(files)
    what, change = rng.choice(list(CHANGES.items()))
    return f"killed at write {writes}, {path.name}: {what} {change(rng, path, place.valid)}"


def _state(folder: Path) -> dict[str, str]:
    """Return what every path in a folder is: the digest of a file, the target of a link."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder" if path.is_dir() else "device"
    return found


def _lost(before: dict[str, str], folder: Path, out: str) -> str:
    """Say whether something that was there is gone or changed: all but an empty DEST and what a kill has left."""
    after = _state(folder)
    for name, what in before.items():
        if any(part.startswith(".gistgnn-") for part in Path(name).parts):
            continue
        if after.get(name) != what and not (what == "folder" and name in after):
            return f"loses {name}"
    return ""


def _left(before: dict[str, str], folder: Path) -> str:
    """Say whether a command that was refused has left something behind."""
    new = [name for name in _state(folder) if name not in before]
    return f"is refused, and leaves {new[0]}" if new else ""


def _wrong_clusters(own: Path, out: Path, words: list[str]) -> str:
    """Say whether a folder of clusters is not the graph that was cut, in another order of the nodes."""
    from gistgnn.errors import InputError
    from gistgnn.graphs.folder import verify

    try:
        verify(out)
    except InputError as error:
        return f"writes a folder that --verify refuses: {error}"
    found = {path.stem: np.load(path) for path in out.glob("*.npy")}
    source = own / words[len(words) - 1 - words[::-1].index("--dataset") + 1]
    graph = {path.stem: np.load(path) for path in source.glob("*.npy")}
    node = found["node"]
    for name in ("x", "y", "split"):
        if not np.array_equal(found[name], graph[name][node]):
            return f"writes another {name}"
    edges = node[found["col"]], node[np.repeat(np.arange(len(node)), np.diff(found["rowptr"]))]
    real = graph["col"], np.repeat(np.arange(len(node)), np.diff(graph["rowptr"]))
    return "" if _same_edges(edges, real) else "writes other edges"


def _same_edges(one: tuple[Any, Any], two: tuple[Any, Any]) -> bool:
    keys = [np.sort(source.astype(np.int64) << 32 | target) for source, target in (one, two)]
    return np.array_equal(*keys)


def _new(rng: Random, own: Path, graph: str) -> str:
    return "out"


def _source(rng: Random, own: Path, graph: str) -> str:
    (own / "link").symlink_to(graph)
    return rng.choice([graph, f"{graph}/", f"./{graph}", f"{graph}/../{graph}", "link", str(own / graph)])


def _inside(rng: Random, own: Path, graph: str) -> str:
    return f"{graph}/{rng.choice(['clusters', 'x.npy', 'manifest.json', 'x.npy/clusters', 'a/b', '.'])}"


def _file(rng: Random, own: Path, graph: str) -> str:
    (own / "file").write_text("precious")
    return rng.choice(["file", "file/x", "own.npz", "file/"])


def _link(rng: Random, own: Path, graph: str) -> str:
    (own / "empty").mkdir()
    (own / "file").write_text("precious")
    (own / "out").symlink_to(rng.choice(["out", "nowhere", "empty", "file", "/dev/null", "clusters", "no/where"]))
    return rng.choice(["out", "out/x", "out/"])


def _full(rng: Random, own: Path, graph: str) -> str:
    (own / "out").mkdir()
    (own / "out" / rng.choice(["notes", ".hidden", "manifest.json", "x.npy"])).write_text("precious")
    return "out"


def _special(rng: Random, own: Path, graph: str) -> str:
    return rng.choice(["/dev/null", "/dev/zero", "/dev/full", "pipe", "/proc/x", "/sys/x", "/proc/self/fd/1", "/dev/x"])


def _named(rng: Random, own: Path, graph: str) -> str:
    names = ["-", "...", "~", "a" * 255, "a" * 240, "ü" * 120, "a/" * 200 + "a", "new/deep/out", " ", "out.npz", "cora"]
    return rng.choice([*names, *NAMES, os.fsdecode(b"\xff\xfe")])


def _occupied(rng: Random, own: Path, graph: str) -> str:
    """Put something where the folder is made."""
    (own / "file").write_text("precious")
    (own / "kept").mkdir()
    (own / "kept" / "file").write_text("precious")
    path, what = own / f"{_WORK}out", rng.choice(["file", "link", "loop", "link to a file", "folder in it", "pipe"])
    if what == "file":
        path.write_text("precious")
    elif what == "folder in it":
        (path / "x.npy").mkdir(parents=True)
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link": "kept", "loop": path.name, "link to a file": "file"}[what])
    return "out"


def _there(rng: Random, own: Path, graph: str) -> str:
    return rng.choice(["clusters", "clusters/", "clusters/x", ".", "..", ""])


_DESTINATIONS: dict[str, Callable[[Random, Path, str], str]] = {
    "the source": _source,
    "inside the source": _inside,
    "a file": _file,
    "a link": _link,
    "a folder with files": _full,
    "no folder": _special,
    "an odd name": _named,
    "something where it is made": _occupied,
    "a folder of clusters": _there,
}
