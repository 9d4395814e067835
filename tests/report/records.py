"""Records as commands write them, with numbers that a test can foresee."""

import json
import math
from functools import cache
from typing import Any

from gistgnn.compare.comparison import rows_of, table_record
from gistgnn.compare.many_runs import train_run
from gistgnn.graphs import load
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.storage.json_files import plain
from gistgnn.storage.record import Record, record_of

PROVENANCE = {
    "version": "0.1.0",
    "date": "2026-11-23T01:02:03+00:00",
    "command": "gistgnn train --dataset digits",
    "machine": "a CPU, 2 threads of 2 cores, torch 2.13.0",
    "libraries": {"torch": "2.13.0", "numpy": "2.0", "scipy": None},
    "git": {"commit": "abc123", "changed": True},
}


@cache
def _real() -> dict[str, Any]:
    """What result.json holds of a real run of two rounds."""
    training = Training(2, 1, training="each")
    config = RunConfig(
        "digits", ModelConfig(hidden=(256, 256)), sub_gcns=4, training=training, standardise=True
    )
    real: dict[str, Any] = plain(train_run(config, load("digits"), "data"))
    return real


def run_record(evaluations: int = 20, **changes: Any) -> Record:
    """The record of `run_content`."""
    return record_of(run_content(evaluations, **changes))


def run_content(evaluations: int = 20, **changes: Any) -> dict[str, Any]:
    """What result.json holds of a real run, with the numbers of a run over so many rounds."""
    history = [
        {"round": i, "epoch": 10.0 * i, "step": 10 * i, "lr": 0.01, "train_seconds": 0.15 * i}
        | {"loss": 0.05 + 2 * math.exp(-i / 6) + 0.02 * math.sin(7 * i)}
        | {"validation": 0.97 - 0.5 * math.exp(-i / 4) + 0.004 * math.sin(5 * i)}
        | {"test": 0.96 - 0.5 * math.exp(-i / 4) + 0.004 * math.cos(3 * i)}
        for i in range(1, evaluations + 1)
    ]
    scores = {"accuracy": 0.9793, "f1_micro": 0.9793, "f1_macro": 0.9792}
    seconds = {"prepare": 0.21, "take": 0.05, "train": 2.4, "merge": 0.04, "evaluate": 0.31}
    numbers = {
        "test": scores,
        "validation": {name: value + 0.004 for name, value in scores.items()},
        "last": {"validation": scores, "test": scores},
        "provenance": PROVENANCE,
        "history": history,
        "per_round": history,
        "best_round": max(evaluations - 2, 1),
        "rounds": evaluations,
        "steps": 40 * evaluations,
        "traffic": {"workers": 4, "bytes_per_round": 157000.0},
        "train_seconds": 0.15 * evaluations,
        "seconds": {**seconds, "save": 0.0},
        "coverage": {"rounds": evaluations, "parameters": 84746, "never_trained": 0.75**20},
    }
    return json.loads(json.dumps({**_real(), **numbers, **changes}))


def scored(
    m: int, scores: list[float], seconds: list[float], method: str = "gist", **changes: Any
) -> Record:
    """A run with m sub-GCNs that has these test scores and seconds after its rounds."""
    rounds = len(scores)
    history = [
        {"round": k, "epoch": k, "step": 5 * k, "loss": 1.0, "lr": 0.01, "train_seconds": time}
        | {"validation": score, "test": score}
        for k, (score, time) in enumerate(zip(scores, seconds, strict=True), 1)
    ]
    numbers = {
        "test": {"accuracy": scores[-1]},
        "train_seconds": seconds[-1],
        "history": history,
        "rounds": rounds,
        "steps": 5 * m * rounds,
        "traffic": {"workers": m, "bytes_per_round": 100.0 * (m - 1)},
    }
    config = {**_real()["config"], "method": method, "sub_gcns": m}
    return run_record(rounds, config=config, inference_seconds=0.5 * m, **{**numbers, **changes})


def comparison_record() -> dict[str, Any]:
    """What a comparison.json of five rows and three seeds holds."""

    def runs(method: str, m: int, score: float, seconds: float) -> list[Record]:
        rising = [score - 40 * math.exp(-i / 5) + math.sin(3 * i + m) for i in range(1, 40)]
        records = []
        for shift in (-0.3, 0, 0.3):
            scores = [(value + shift) / 100 for value in rising] + [score / 100]
            times = [seconds * (1 + shift / 50) * i / 40 for i in range(1, 41)]
            records.append(scored(m, scores, times, method))
        return records

    groups = [
        runs("gist", 1, 91.40, 82.0),
        runs("gist", 4, 91.86, 24.2),
        runs("gist", 8, 89.94, 11.9),
        runs("local-sgd", 4, 91.05, 88.1),
        runs("ensemble", 4, 90.72, 23.8),
    ]
    facts = {
        "machine": "2 cores of an AMD EPYC",
        "command": "gistgnn compare --sub-gcns 2 4 8",
        "provenance": PROVENANCE,
        "notes": ["Bytes are what one worker would send, by formula."],
        "config": {"dataset": "digits"},
    }
    return {**table_record("GCN on digits", rows_of(groups), groups), **facts}


def experiment_record() -> dict[str, Any]:
    """What an experiment.json with one table and two charts holds."""
    lines = [
        ("ours", [2, 4, 8], [80.86, 81.26, 78.94], False),
        ("paper", [2, 4, 8], [80.82, 81.18, 79.58], True),
    ]
    drawn = [
        ("Accuracy by m", "m", "test accuracy (%)", False, lines),
        (
            "Bytes by ζ",
            "ζ",
            "MiB in a round",
            True,
            [("GIST", [1, 10, 100, 1000], [400, 40, 4, 0.4], False)],
        ),
    ]
    charts = [
        {"title": title, "xlabel": xlabel, "ylabel": ylabel, "log_x": True, "log_y": logy}
        | {
            "series": [
                dict(zip(("label", "x", "y", "dashed"), line, strict=True)) for line in series
            ]
        }
        for title, xlabel, ylabel, logy, series in drawn
    ]
    table = {
        "columns": ["m", "GIST, ours", "GIST, paper", "local SGD, ours", "difference"],
        "rows": [["2", "80.86 ± 0.42", "80.82 ± 0.38", "80.10 ± 0.60", "0.76"]],
        "note": "Five seeds. The paper's graph is larger; ours has its shape.\n\nTimes are of one "
        "machine.",
    }
    return {
        "title": "Table 6: GIST against local SGD",
        "scale": "small",
        "machine": "2 cores of an AMD EPYC",
        "command": "gistgnn reproduce local-sgd --scale small",
        "tables": [{**table, "charts": charts}],
        "config": {"dataset": "cora", "hidden": [256, 256]},
    }
