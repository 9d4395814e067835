"""Folders that hold files of somebody else: a run must leave these as they are, whatever it is asked for."""

import json
from pathlib import Path
from random import Random

from benchmarks.attack.case import Outcome, Place, Report, run_command

_TRAIN = "train --dataset own.npz --hidden 8 8 --sub-gcns 2 --epochs 2 --device cpu --out out --store"
_NAMES = [
    "thesis.tex", "notes.json", "model.bin", "checkpoints/notes.txt", "runs/notes.txt", "round-00000003/state.json",
    "model-00001-of-00002.safetensors", "checkpoints/round-3/state.json",
]  # fmt: skip


def foreign(rng: Random, place: Place) -> Report:
    """Train into a folder with foreign files, an index that names them, and links that lead to them."""
    out, elsewhere = place.own / "out", place.own / "elsewhere"
    elsewhere.mkdir()
    theirs = [out / name for name in rng.sample(_NAMES, rng.choice([1, 2, 4]))]
    theirs += [elsewhere / name for name in ("state.json", "result.json", "theta.json", "notes.txt")]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{{}} {path.name}")
    index = {str(k): str(Path("..") / "own.npz" if k > 3 else path.name) for k, path in enumerate(theirs[:5])}
    if rng.random() < 0.6:
        (out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    link = rng.choice(["", "checkpoints/round-00000003", "theta", "checkpoints", "theta.tmp"])
    if link and not (out / link).exists():
        (out / link).parent.mkdir(exist_ok=True)
        (out / link).symlink_to(elsewhere, target_is_directory=True)
    before = {path: path.read_bytes() for path in [*theirs, place.valid / "own.npz"]}

    def judge(outcome: Outcome) -> str:
        lost = [path for path, content in before.items() if not path.is_file() or path.read_bytes() != content]
        return f"takes {lost[0].relative_to(place.own.parent)} for its own" if lost else ""

    more = rng.choice([[], ["--overwrite"], ["--overwrite"], ["--resume"]])
    words = [*_TRAIN.split(), rng.choice(["memory", "disk"]), *more]
    return run_command(place, words, judge, f"{link or 'no link'}, {', '.join(str(p.name) for p in theirs[:-4])}")
