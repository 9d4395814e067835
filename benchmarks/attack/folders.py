"""Damage of graph folders, of their clusters and their products, followed by each command that reads them."""

import hashlib
import json
import shutil
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.attack.case import Outcome, Place, Report, run_command
from benchmarks.attack.damage import CHANGES
from benchmarks.attack.valid_folders import CLUSTERS, GRAPHS, RUN, train_words
from benchmarks.kills import digest

_VALUES = [-1, 0, 1, 3, 4, 5, 39, 40, 41, 127, 2**31 - 1, 2**31, 2**62, -(2**62), np.nan, np.inf, 1e30]
_OF_CLUSTERS = ["train", "train", "evaluate", "predict", "verify", "describe", "plan", "whole", "sampled"]
_OF_GRAPHS = ["partition", "partition", "stream", "verify", "describe", "train", "whole", "predict"]


def folders(rng: Random, place: Place) -> Report:
    """Copy a graph folder, damage one of its files, and run a command that reads the folder."""
    name = rng.choice([*GRAPHS, *CLUSTERS, *CLUSTERS])
    folder = place.own / name
    shutil.copytree(place.valid / name, folder)
    files = (each for each in folder.rglob("*") if each.is_file() and "-" not in each.name)  # not what is computed
    path = rng.choice(sorted(files))
    what, change = rng.choice([*CHANGES.items(), ("puts a value", _value), ("puts a value", _value)])
    note = f"{path.relative_to(place.own)}: {what} {change(rng, path, place.valid)}".strip()
    command = rng.choice(_OF_CLUSTERS if name in CLUSTERS else _OF_GRAPHS)
    run = place.valid / f"{name if name in CLUSTERS else 'clusters'}-{RUN}"

    def judge(outcome: Outcome) -> str:
        if outcome.status != 0:
            return ""
        if command == "verify":
            return "finds no damage" if _lost(place.valid / name, folder) else ""
        if name not in CLUSTERS or command not in ("train", "evaluate", "predict"):
            return ""
        wrong = _wrong_result(command, place, run.name, outcome)
        return wrong if wrong and _verified(folder) else ""

    return run_command(place, _words(command, name, run), judge, note)


def _words(command: str, name: str, run: Path) -> list[str]:
    """Return the command line."""
    whole = f"train --dataset {name} --hidden 8 --sub-gcns 2 --epochs 2 --device cpu --out out"
    lines = {
        "verify": f"datasets {name} --verify",
        "describe": f"datasets {name} --json",
        "plan": f"plan --dataset {name} --sampler clusters --hidden 8 --device cpu --no-measure",
        "whole": whole,
        "sampled": f"{whole} --sampler neighbor",
        "partition": f"partition --dataset {name} --clusters 3 --method random --out out",
        "stream": f"partition --dataset {name} --clusters 3 --method stream --out out",
        "evaluate": f"evaluate RUN --dataset {name} --device cpu --json",
        "predict": f"predict RUN --dataset {name} --device cpu --output out.csv",
    }
    if command == "train":
        return [*train_words(name), *(["--clusters", "4"] if name in GRAPHS else []), "--out", "out"]
    return [str(run) if word == "RUN" else word for word in lines[command].split()]


def _value(rng: Random, path: Path, valid: Path) -> str:
    """Put one value, or the same one at several places, into an array; its header and its size stay."""
    if path.suffix != ".npy":
        return CHANGES["flips"](rng, path, valid)
    array = np.load(path)
    flat, value = array.reshape(-1), rng.choice(_VALUES)
    begin = rng.choice([0, len(flat) - 1, rng.randrange(len(flat))])
    with np.errstate(all="ignore"):
        flat[begin : begin + rng.choice([1, 1, 1, 7])] = np.array(value).astype(array.dtype)
    header = path.read_bytes()[: path.stat().st_size - array.nbytes]
    path.write_bytes(header + array.tobytes())
    return f"{value} at {begin}"


def _lost(whole: Path, folder: Path) -> str:
    """Return the name of an array whose bytes are others than they were, or ""."""
    for path in sorted(whole.glob("*.npy")):
        if path.read_bytes() != (folder / path.name).read_bytes():
            return path.name
    return ""


def _verified(folder: Path) -> bool:
    """Whether `--verify` takes the folder for a whole one."""
    from gistgnn.errors import InputError
    from gistgnn.graphs.folder import verify

    try:
        verify(folder)
    except InputError:
        return False
    return True


def _wrong_result(command: str, place: Place, run: str, outcome: Outcome) -> str:
    """Say whether a command that succeeded gave another result than with the files as they were."""
    expected = json.loads((place.valid / f"{run}.json").read_text(encoding="utf-8"))
    if command == "evaluate":
        same = json.loads(outcome.out) == expected["scores"]
    elif command == "predict":
        same = hashlib.sha256((place.own / "out.csv").read_bytes()).hexdigest() == expected["predicted"]
    else:
        same = digest(place.own / "out") == expected["model"]
    return "" if same else f"accepts a damaged file that --verify does not find, and {command} gives another result"
