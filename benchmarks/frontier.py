"""The best score that a time buys: ordinary training, the paper's GIST, parts, and budgets.

    python -m benchmarks.frontier --out runs/frontier --ordinary 5 10 20 --narrow 8 --paper 120 \\
        --parts 20 80 --budget 10 20 -- --dataset amazon-computers --clusters 150 \\
        --hidden 1024 1024 --standardise

Ordinary training has runs of several lengths and rates; its frontier at a time is the best of these
runs. Options of `gistgnn train` that all runs share come last. All have a cosine schedule and the
fused runner, and are scored at their end; budgets also after every cycle. Settings run in a random
order for each seed. Finished runs stay in ``--out``; the same command goes on where it was stopped.
"""

import argparse
import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import trained_once
from benchmarks.tables import number, table

MODEL = ("--model", "graphsage", "--norm", "layer", "--dropout", "0.2", "--sampler", "clusters")
SAME = (*MODEL, "--runner", "fused", "--evaluate-every", "1000000", "--schedule", "cosine")
NEAR = 0.2  # points below the best score
OURS = ("parts", "budget")


@dataclass(frozen=True)
class Setting:
    """A run that is tried: its kind, its name in the table, and its options."""

    kind: str  # "ordinary", "narrow", "paper", "parts" or "budget"
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """A setting over its seeds."""

    setting: Setting
    seconds: float  # of training, the median
    total: float  # seconds of training and of evaluation, the median
    tests: tuple[float, ...]  # scores in percent

    @property
    def test(self) -> float:
        """The mean test score at the best validation score, in percent."""
        return statistics.fmean(self.tests)


def settings(options: argparse.Namespace) -> list[Setting]:
    """Return all settings that the options ask for."""
    one_round = (*SAME, "--local-steps", "1000000000")  # a run is one round
    chosen = []
    for epochs in options.ordinary:
        for lr in options.lr:
            words = (*one_round, "--sub-gcns", "1", "--epochs", str(epochs), "--lr", f"{lr:g}")
            chosen.append(Setting("ordinary", f"ordinary, {epochs} epochs, lr {lr:g}", words))
            for part in options.narrow:
                hidden = [str(int(width) // part) for width in values_of("--hidden", options.train)]
                name = f"narrow, d/{part}, {epochs} epochs, lr {lr:g}"
                chosen.append(Setting("narrow", name, (*words, "--hidden", *hidden)))
    for epochs in options.paper:
        words = (*SAME, "--sub-gcns", "8", "--lr", "0.01", "--set", "optimizer_state=carry")
        lengths = ("--epochs", str(epochs), "--local-steps", str(options.local_steps))
        chosen.append(Setting("paper", f"GIST, {epochs} epochs", (*words, *lengths)))
    for epochs in options.parts:
        m = str(options.sub_gcns)
        method = ("--method", "parts", "--sub-gcns", m)
        words = (*one_round, *method, "--epochs", str(epochs), "--lr", "0.01")
        chosen.append(Setting("parts", f"{m} parts, {epochs} epochs", words))
    for seconds in options.budget:
        words = (*MODEL, "--budget", f"{seconds:g}s")
        chosen.append(Setting("budget", f"budget of {seconds:g} s", words))
    return chosen


def values_of(option: str, words: Sequence[str]) -> list[str]:
    """Return the values of an option in a command line."""
    following = list(words[words.index(option) + 1 :])
    count = next(
        (index for index, word in enumerate(following) if word.startswith("--")), len(following)
    )
    return following[:count]


def point_of(setting: Setting, results: Sequence[dict[str, Any]]) -> Point:
    """Average a setting's runs over the seeds."""
    tests = tuple(100 * next(iter(result["test"].values())) for result in results)
    training = statistics.median(result["train_seconds"] for result in results)
    total = statistics.median(
        result["train_seconds"] + result["seconds"]["evaluate"] for result in results
    )
    return Point(setting, training, total, tests)


class Frontier:
    """The best score that runs reach within a time, interpolated in the logarithm of time.

    Args:
        runs: (seconds, score) of each run.
    """

    def __init__(self, runs: Iterable[tuple[float, float]]) -> None:
        # The runs whose score no other run has in as little time, from the shortest to the longest.
        self.points: list[tuple[float, float]] = []
        for seconds, score in sorted(runs, key=lambda run: (run[0], -run[1])):
            if not self.points or score > self.points[-1][1]:
                self.points.append((seconds, score))
        self._logs = [math.log(seconds) for seconds, _ in self.points]
        self._scores = [score for _, score in self.points]

    def at(self, seconds: float) -> float | None:
        """Return the best score within a time, or None if no run is so short.

        After the longest run it is constant.
        """
        if not self.points or seconds < self.points[0][0]:
            return None
        return float(np.interp(math.log(seconds), self._logs, self._scores))

    def reaches(self, score: float) -> float | None:
        """Return the seconds until a score, or None if no run has it.

        They are at least the time of the shortest run.
        """
        if not self.points or score > self._scores[-1]:
            return None
        return math.exp(float(np.interp(score, self._scores, self._logs)))


def report(points: Sequence[Point]) -> str:
    """Return the tables: every setting, and what ours wins over ordinary training."""
    rows = []
    for point in points:
        seconds_of_point = [number(point.seconds), number(point.total)]
        scores = [f"{point.test:.2f}", str(len(point.tests))]
        rows.append([point.setting.name, *seconds_of_point, *scores])
    text = table(["setting", "s", "s, with evaluation", "test, %", "seeds"], rows)
    ordinary = Frontier(
        (point.seconds, point.test) for point in points if point.setting.kind == "ordinary"
    )
    ours = Frontier((point.seconds, point.test) for point in points if point.setting.kind in OURS)
    if not (ordinary.points and ours.points):
        return text
    goal = ordinary.points[-1][1] - NEAR
    theirs = ordinary.reaches(goal)
    ours_after = ours.reaches(goal)
    assert theirs is not None
    reached = (
        f"{number(ours_after)} s, {theirs / ours_after:.1f}x sooner"
        if ours_after
        else "not reached"
    )
    wins = []
    for seconds, score in ordinary.points:
        win = points_above(ours.at(seconds), score)
        win_in_half = points_above(ours.at(seconds / 2), score)
        wins.append([number(seconds), f"{score:.2f}", win, win_in_half])
    head = ["s", "ordinary, %", "ours, points more", "in half the time"]
    verdict = f"To {goal:.2f} %: ordinary {number(theirs)} s, ours {reached}."
    return f"{text}\n\n{verdict}\n\n{table(head, wins)}"


def points_above(score: float | None, other: float) -> str:
    """Format how many points a score is above another one."""
    return "—" if score is None else f"{score - other:+.2f}"


def main(words: Sequence[str] | None = None) -> None:
    """Train every setting that is not in the folder yet, with every seed, and print the report."""
    options = parse(words)
    chosen = settings(options)
    results: dict[tuple[str, int], dict[str, Any]] = {}
    for seed in options.seeds:
        order = list(chosen)
        random.Random(seed).shuffle(order)
        for setting in order:
            line = [*options.train, *setting.words, "--seed", str(seed)]
            results[setting.name, seed] = trained_once(line, options.out / "runs.json")
    points = []
    for setting in chosen:
        runs = [results[setting.name, seed] for seed in options.seeds]
        points.append(point_of(setting, runs))
    print(report(points))


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    rates = [0.001, 0.003, 0.01]
    epochs: dict[str, Any] = {"type": int, "nargs": "*", "default": [], "metavar": "EPOCHS"}
    add("--ordinary", type=int, nargs="+", default=[5, 10, 20], metavar="EPOCHS")
    add("--lr", type=float, nargs="+", default=rates, help="of ordinary and of narrow training")
    add("--narrow", **(epochs | {"metavar": "M"}), help="models of width d/M as well")
    add("--paper", **epochs, help="GIST with m = 8")
    add("--local-steps", type=int, default=15, help="ζ of the paper's GIST")
    add("--parts", **epochs, help="narrow models, joined at the end")
    add("--sub-gcns", type=int, default=4, metavar="M", help="how many parts")
    add("--budget", type=float, nargs="*", default=[], metavar="SECONDS")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--out", type=Path, default=Path("runs/frontier"), help="the folder of finished runs")
    of_train = "options of gistgnn train, with --dataset and --hidden"
    add("train", nargs="+", metavar="-- TRAIN", help=of_train)
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
