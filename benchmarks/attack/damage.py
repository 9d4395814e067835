"""Damaged files of runs and of graph folders, each followed by a command that reads it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Outcome, Report, Workspace, run_command
from benchmarks.attack.valid import CLUSTERS, GRAPHS, RUNS, STOPPED, run_on, words_of, wrong_result
from gistgnn.errors import InputError
from gistgnn.graphs.folder import verify
from gistgnn.storage.json_files import write_json

# Values in place of one of a JSON file, texts in place of a whole one, and numbers for an array.
_ODD: list[Any] = [None, True, -1, 2**63, 10**30, 1e308, "", "x", [], {}, [[]]]
_ODD += ["../../etc/passwd", "\ud800"]
_WORDS = ["NaN", "Infinity", "1e999", "[" * 20000, "9" * 5000, "{}", "[]", "null", '"x"']
_WORDS += ["", "\0", "\ufeff{}"]
_VALUES = [-1, 0, 1, 3, 4, 5, 39, 40, 41, 127, 2**31 - 1, 2**31, 2**62, -(2**62)]
_VALUES += [np.nan, np.inf, 1e30]
# Commands on runs, on folders of clusters and on folders of graphs, by their names in _LINES.
_OF_RUNS = ["evaluate", "predict", "export", "list", "compare", "resume", "overwrite"]
_OF_CLUSTERS = ["train", "train", "evaluate", "predict", "verify", "describe", "plan"]
_OF_CLUSTERS += ["whole", "sampled"]
_OF_GRAPHS = ["partition", "partition", "stream", "verify", "describe", "train", "whole", "predict"]
_WHOLE = "train --dataset NAME --hidden 8 --sub-gcns 2 --epochs 2 --device cpu --out out"
_LINES = {
    "verify": "datasets NAME --verify",
    "describe": "datasets NAME --json",
    "plan": "plan --dataset NAME --sampler clusters --hidden 8 --device cpu --no-measure",
    "whole": _WHOLE,
    "sampled": f"{_WHOLE} --sampler neighbor",
    "partition": "partition --dataset NAME --clusters 3 --method random --out out",
    "stream": "partition --dataset NAME --clusters 3 --method stream --out out",
    "evaluate": "evaluate RUN --dataset NAME --device cpu --json",
    "predict": "predict RUN --dataset NAME --device cpu --output out.csv",
    "export": "export RUN --to pyg --out exported",
    "list": "list .",
    "compare": "compare RUN --out compared",
}


def damage(rng: Random, workspace: Workspace) -> Report:
    """Copy a run, damage one of its files, and run a command that reads the run."""
    name = rng.choice(list(RUNS))
    path, note = _damaged(rng, workspace, name, CHANGES)
    command = rng.choice(_OF_RUNS)
    if name in STOPPED:
        command = rng.choice(["evaluate", "list", "overwrite"]) if rng.random() < 0.2 else "resume"
    if command in ("resume", "overwrite"):
        words = [*words_of(name), "--out", name, f"--{command}"]
    else:
        words = _words(command, "own.npz", name)
    compared = {"predict"} | ({"resume"} if name in STOPPED else {"evaluate", "resume"})

    def judge(outcome: Outcome) -> str:
        if outcome.status != 0:
            return "cannot be overwritten" if command == "overwrite" and _removable(path) else ""
        if "checksum that fits" in note or command not in compared:
            return ""
        return wrong_result(
            command, workspace.folder, workspace.folder / name, workspace.valid, name, outcome
        )

    return run_command(workspace, words, judge, note)


def folders(rng: Random, workspace: Workspace) -> Report:
    """Copy a graph folder, damage one of its files, and run a command that reads the folder."""
    name = rng.choice([*GRAPHS, *CLUSTERS, *CLUSTERS])
    _, note = _damaged(
        rng, workspace, name, {**CHANGES, "puts a value": _value, "puts another value": _value}
    )
    command = rng.choice(_OF_CLUSTERS if name in CLUSTERS else _OF_GRAPHS)
    run = run_on(name if name in CLUSTERS else "clusters")
    folder = workspace.folder / name
    if command == "train":
        words = [*words_of(name), *(["--clusters", "4"] if name in GRAPHS else []), "--out", "out"]
    else:
        words = _words(command, name, str(workspace.valid / run))

    def judge(outcome: Outcome) -> str:
        if outcome.status != 0:
            return ""
        if command == "verify":
            valid_arrays = (workspace.valid / name).glob("*.npy")
            lost = any(
                path.read_bytes() != (folder / path.name).read_bytes() for path in valid_arrays
            )
            return "finds no damage" if lost else ""
        if name not in CLUSTERS or command not in ("train", "evaluate", "predict"):
            return ""
        wrong = wrong_result(
            command, workspace.folder, workspace.folder / "out", workspace.valid, run, outcome
        )
        return wrong if wrong and _verified(folder) else ""

    return run_command(workspace, words, judge, note)


Change = Callable[[Random, Path, Path], str]
"""Changes a file in a random way, and says what it did.

The last argument is the folder of valid files; for graph files, the valid file.
"""


def _damaged(
    rng: Random, workspace: Workspace, name: str, changes: dict[str, Change]
) -> tuple[Path, str]:
    """Copy a folder and damage one of its files; return it, and what was done to it."""
    folder = workspace.folder / name
    shutil.copytree(workspace.valid / name, folder, symlinks=True)
    computed = ("x-", "product-")  # a folder's own cache
    files = (
        file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(computed)
    )
    path = rng.choice(sorted(files))
    action, change = rng.choice(list(changes.items()))
    details = change(rng, path, workspace.valid)
    return path, f"{path.relative_to(workspace.folder)}: {action} {details}".strip()


def _words(command: str, name: str, run: str) -> list[str]:
    """Return the command line."""
    return [{"NAME": name, "RUN": run}.get(word, word) for word in _LINES[command].split()]


def _removable(path: Path) -> bool:
    """Return whether a run may replace what has a file's name.

    It may be a file, or a link that leads nowhere, but no device.
    """
    return path.is_file() or (path.is_symlink() and not path.exists())


def _verified(folder: Path) -> bool:
    """Whether `--verify` takes the folder for a whole one."""
    try:
        verify(folder)
    except InputError:
        return False
    return True


def flip(rng: Random, path: Path, valid: Path) -> str:
    """Flip bits of one byte."""
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing"
    # Headers are at the beginning, so the first bytes get more of the cases.
    candidates = min(len(content), 400) if rng.random() < 0.4 else len(content)
    offset = rng.randrange(candidates)
    content[offset] ^= rng.choice([1, 2, 128, 255])
    path.write_bytes(content)
    return f"byte {offset} of {len(content)}"


def _cut(rng: Random, path: Path, valid: Path) -> str:
    content = path.read_bytes()
    length = rng.choice([0, 1, 8, len(content) // 2, max(len(content) - 1, 0)])
    path.write_bytes(content[:length])
    return f"to {length} of {len(content)} bytes"


def _append(rng: Random, path: Path, valid: Path) -> str:
    tail = rng.choice([b"\0", b" ", b"\n{}", b"\0" * 4096])
    path.write_bytes(path.read_bytes() + tail)
    return f"{len(tail)} bytes"


def _remove(rng: Random, path: Path, valid: Path) -> str:
    path.unlink()
    return ""


def _foreign(rng: Random, path: Path, valid: Path) -> str:
    candidates = [other for other in valid.rglob(f"*{path.suffix}") if other.is_file()]
    other = rng.choice(
        sorted([candidate for candidate in candidates if candidate.name == path.name] or candidates)
    )
    path.write_bytes(other.read_bytes())
    return f"by {other.relative_to(valid)}"


def _swap(rng: Random, path: Path, valid: Path) -> str:
    other = rng.choice(sorted(file for file in path.parent.iterdir() if file.is_file()))
    one = path.read_bytes()
    two = other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    return f"with {other.name}"


def _record(rng: Random, path: Path, valid: Path) -> str:
    """Change one value of a JSON file, or all of its text."""
    if path.suffix != ".json" or rng.random() < 0.2:
        text = rng.choice(_WORDS)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return f"all by {text[:20]!r}"
    record = json.loads(path.read_text(encoding="utf-8"))
    part: Any = record
    while isinstance(part, (dict, list)) and part:
        key = rng.choice(list(part)) if isinstance(part, dict) else rng.randrange(len(part))
        value = part[key]
        if isinstance(value, (dict, list)) and value and rng.random() < 0.7:
            part = value
            continue
        if rng.random() < 0.3:
            del part[key]
        else:
            deep = json.loads('{"a":' * 400 + "{}" + "}" * 400)
            similar = value + 1 if isinstance(value, (int, float)) else [value]
            part[key] = rng.choice([*_ODD, deep, similar])
        path.write_text(json.dumps(record), encoding="utf-8")
        return f"at {key}"
    return "nothing"


def _retype(rng: Random, path: Path, valid: Path) -> str:
    """Change one value of a JSON file, and make its checksum fit."""
    note = _record(rng, path, valid)
    try:
        changed = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        write_json(path, {name: value for name, value in changed.items() if name != "checksum"})
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        return note
    return f"{note}, with a checksum that fits"


def put_special(path: Path, kind: str) -> str:
    """Put something that is no regular file where a file is expected."""
    targets = {
        "loop": path.name,
        "zero": "/dev/zero",
        "null": "/dev/null",
        "terminal": "/dev/tty",
        "dangling": "none",
    }
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(targets[kind])
    return kind


def _special(rng: Random, path: Path, valid: Path) -> str:
    path.unlink()
    return put_special(path, rng.choice(["pipe", "folder", "loop", "zero", "null"]))


def _value(rng: Random, path: Path, valid: Path) -> str:
    """Write a value into an array, once or seven times; its header and its size stay."""
    if path.suffix != ".npy":
        return flip(rng, path, valid)
    array = np.load(path)
    flat = array.reshape(-1)
    value = rng.choice(_VALUES)
    begin = rng.choice([0, len(flat) - 1, rng.randrange(len(flat))])
    with np.errstate(all="ignore"):
        flat[begin : begin + rng.choice([1, 1, 1, 7])] = np.array(value).astype(array.dtype)
    header = path.read_bytes()[: path.stat().st_size - array.nbytes]
    path.write_bytes(header + array.tobytes())
    return f"{value} at {begin}"


CHANGES: dict[str, Change] = {
    "flips": flip,
    "cuts": _cut,
    "appends": _append,
    "removes": _remove,
    "replaces": _foreign,
    "swaps": _swap,
    "changes": _record,
    "changes the value": _record,
    "changes the type": _retype,
    "puts something in its place:": _special,
}
