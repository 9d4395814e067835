"""Damage of every file that a run leaves, followed by each command that reads it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.attack.case import Outcome, Place, Report, run_command
from benchmarks.attack.valid import RUNS, STOPPED, words_of
from benchmarks.kills import digest
from gistgnn.storage.json_files import write_json

_ODD: list[Any] = [None, True, -1, 2**63, 10**30, 1e308, "", "x", [], {}, [[]], "../../etc/passwd", "\ud800"]
_WORDS = ["NaN", "Infinity", "1e999", "[" * 20000, "9" * 5000, "{}", "[]", "null", '"x"', "", "\0", "\ufeff{}"]


def damage(rng: Random, place: Place) -> Report:
    """Copy a run, damage one of its files, and evaluate it, predict by it, list it, compare it or go on with it."""
    name = rng.choice(list(RUNS))
    folder = place.own / name
    shutil.copytree(place.valid / name, folder, symlinks=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    what, change = rng.choice(list(CHANGES.items()))
    note = f"{path.relative_to(place.own)}: {what} {change(rng, path, place.valid)}".strip()
    command = (
        "resume" if name in STOPPED else rng.choice(["evaluate", "predict", "list", "compare", "resume", "overwrite"])
    )
    if name in STOPPED and rng.random() < 0.2:
        command = rng.choice(["evaluate", "list", "overwrite"])

    def judge(outcome: Outcome) -> str:
        if outcome.status != 0:
            return "cannot be overwritten" if command == "overwrite" and _removable(path) else ""
        return "" if "checksum that fits" in note else _wrong_result(command, name, place, outcome)

    return run_command(place, _words(command, name, rng), judge, note)


def _words(command: str, name: str, rng: Random) -> list[str]:
    if command in ("resume", "overwrite"):
        return [*words_of(name), "--dataset", "own.npz", "--out", name, f"--{command}"]
    if command == "list":
        return ["list", "."]
    if command == "compare":
        return ["compare", name, "--out", "compared"]
    more = ["--json"] if command == "evaluate" else ["--output", "out.npz"]
    return [command, name, "--dataset", "own.npz", "--device", "cpu", *more]


def _wrong_result(command: str, name: str, place: Place, outcome: Outcome) -> str:
    """Say whether a command that succeeded gave another result than with the files as they were."""
    expected = json.loads((place.valid / f"{name}.json").read_text(encoding="utf-8"))
    if command == "evaluate" and name not in STOPPED and json.loads(outcome.out) != expected["scores"]:
        return "accepts a damaged file, and gives other scores"
    if command == "resume" and digest(place.own / name) != expected["model"]:
        return "accepts a damaged file, and ends with another model"
    return ""


def _removable(path: Path) -> bool:
    """Return whether a run may replace what has a file's name: a file, or a link that leads nowhere, but no device."""
    return path.is_file() or (path.is_symlink() and not path.exists())


def flip(rng: Random, path: Path, valid: Path) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing"
    at = rng.randrange(min(len(content), 400)) if rng.random() < 0.4 else rng.randrange(len(content))
    content[at] ^= rng.choice([1, 2, 128, 255])
    path.write_bytes(content)
    return f"byte {at} of {len(content)}"


def cut(rng: Random, path: Path, valid: Path) -> str:
    content = path.read_bytes()
    kept = rng.choice([0, 1, 8, len(content) // 2, max(len(content) - 1, 0)])
    path.write_bytes(content[:kept])
    return f"to {kept} of {len(content)} bytes"


def append(rng: Random, path: Path, valid: Path) -> str:
    more = rng.choice([b"\0", b" ", b"\n{}", b"\0" * 4096])
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes"


def _remove(rng: Random, path: Path, valid: Path) -> str:
    path.unlink()
    return ""


def _foreign(rng: Random, path: Path, valid: Path) -> str:
    others = [other for other in valid.rglob(f"*{path.suffix}") if other.is_file()]
    named = [other for other in others if other.name == path.name]
    other = rng.choice(sorted(named or others))
    path.write_bytes(other.read_bytes())
    return f"by {other.relative_to(valid)}"


def _swap(rng: Random, path: Path, valid: Path) -> str:
    other = rng.choice(sorted(each for each in path.parent.iterdir() if each.is_file()))
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    return f"with {other.name}"


def record(rng: Random, path: Path, valid: Path) -> str:
    """Change one value of a JSON file, or all of its text."""
    if path.suffix != ".json" or rng.random() < 0.2:
        text = rng.choice(_WORDS)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return f"all by {text[:20]!r}"
    record = json.loads(path.read_text(encoding="utf-8"))
    at: Any = record
    while isinstance(at, (dict, list)) and at:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.7:
            at = at[key]
            continue
        if rng.random() < 0.3:
            del at[key]
        else:
            at[key] = rng.choice([*_ODD, _deep(), at[key] + 1 if isinstance(at[key], (int, float)) else [at[key]]])
        path.write_text(json.dumps(record), encoding="utf-8")
        return f"at {key}"
    return "nothing"


def _retype(rng: Random, path: Path, valid: Path) -> str:
    """Change one value of a JSON file, and make its checksum fit."""
    said = record(rng, path, valid)
    try:
        changed = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        write_json(path, {name: value for name, value in changed.items() if name != "checksum"})
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        return said
    return f"{said}, with a checksum that fits"


def _deep() -> Any:
    value: Any = {}
    for _ in range(400):
        value = {"a": value}
    return value


def special(rng: Random, path: Path, valid: Path) -> str:
    path.unlink()
    what = rng.choice(["pipe", "folder", "loop", "zero", "null"])
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to({"loop": path.name, "zero": "/dev/zero", "null": "/dev/null"}[what])
    return what


CHANGES: dict[str, Callable[[Random, Path, Path], str]] = {
    "flips": flip,
    "cuts": cut,
    "appends": append,
    "removes": _remove,
    "replaces": _foreign,
    "swaps": _swap,
    "changes": record,
    "changes the value": record,
    "changes the type": _retype,
    "puts something in its place:": special,
}
