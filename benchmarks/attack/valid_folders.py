"""Valid graph folders, folders of clusters, and a run that was trained from the disk."""

import hashlib
import json
from pathlib import Path

from benchmarks.attack.process import Forked, Outcome, gistgnn
from benchmarks.kills import digest

_TRAIN = "--sampler clusters --clusters-per-batch 2 --model graphsage --hidden 8 8 --sub-gcns 2 --epochs 6 --device cpu"
GRAPHS = {"graph": "convert own.npz graph"}
"""The commands that make graph folders, by their names."""

CLUSTERS = {
    "clusters": "partition --dataset graph --clusters 5 --method random --out clusters",
    "streamed": "partition --dataset graph --clusters 5 --method stream --out streamed",
}
"""The commands that make folders of clusters, by their names."""

RUN = "from-disk"
"""The folder of a run that was trained on each folder of clusters, after its name and a dash."""

_LIMIT = 120.0  # seconds


def train_words(clusters: str) -> list[str]:
    """Return the command line that trains on a folder of clusters, without --out."""
    return ["train", "--dataset", clusters, *_TRAIN.split()]


def prepare_folders(folder: Path) -> None:
    """Write graph folders, folders of clusters and runs into a folder.

    Beside every run NAME, NAME.json has what it must give.
    """
    for line in (*GRAPHS.values(), *CLUSTERS.values()):
        succeed(folder, line.split())
    for name in CLUSTERS:
        run = f"{name}-{RUN}"
        succeed(folder, [*train_words(name), "--out", run])
        scores = json.loads(succeed(folder, ["evaluate", run, "--device", "cpu", "--json"]).out)
        succeed(folder, ["predict", run, "--device", "cpu", "--output", "predicted.csv"])
        predicted = hashlib.sha256((folder / "predicted.csv").read_bytes()).hexdigest()
        (folder / "predicted.csv").unlink()
        known = {"model": digest(folder / run), "scores": scores, "predicted": predicted}
        (folder / f"{run}.json").write_text(json.dumps(known), encoding="utf-8")


def succeed(folder: Path, words: list[str]) -> Outcome:
    """Run a command that must succeed."""
    outcome = Forked(gistgnn(words), folder).outcome(_LIMIT)
    if outcome.status:
        raise SystemExit(f"{' '.join(words)} ends with {outcome.status}: {outcome.err}")
    return outcome
