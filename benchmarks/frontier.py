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
    """One kind of run: "ordinary", "narrow", "paper", "parts" or "budget"; its name; and its
    options.
    """

    kind: str
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """A setting over its seeds: the median seconds of training and in all, and its test scores in
    percent.
    """

    setting: Setting
    seconds: float
    total: float
    tests: tuple[float, ...]

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
        more = ("--epochs", str(epochs), "--local-steps", str(options.local_steps))
        chosen.append(Setting("paper", f"GIST, {epochs} epochs", (*words, *more)))
    for epochs in options.parts:
        m = str(options.sub_gcns)
        words = (
            *one_round,
            "--method",
            "parts",
            "--sub-gcns",
            m,
            "--epochs",
            str(epochs),
            "--lr",
            "0.01",
        )
        chosen.append(Setting("parts", f"{m} parts, {epochs} epochs", words))
    chosen += [
        Setting("budget", f"budget of {s:g} s", (*MODEL, "--budget", f"{s:g}s"))
        for s in options.budget
    ]
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
    """The best score that runs, (seconds, score), reach within a time, interpolated in the
    logarithm of time.
    """

    def __init__(self, runs: Iterable[tuple[float, float]]) -> None:
        # no other run equals them in less or equal time; ascending
        self.points: list[tuple[float, float]] = []
        for seconds, score in sorted(runs, key=lambda run: (run[0], -run[1])):
            if not self.points or score > self.points[-1][1]:
                self.points.append((seconds, score))
        self._logs = [math.log(seconds) for seconds, _ in self.points]
        self._scores = [score for _, score in self.points]

    def at(self, seconds: float) -> float | None:
        """Return the best score within a time; None: no run is so short. After the longest run it
        is constant.
        """
        if not self.points or seconds < self.points[0][0]:
            return None
        return float(np.interp(math.log(seconds), self._logs, self._scores))

    def reaches(self, score: float) -> float | None:
        """Return the seconds until a score; None: no run has it. At the earliest, the time of the
        shortest run.
        """
        if not self.points or score > self._scores[-1]:
            return None
        return math.exp(float(np.interp(score, self._scores, self._logs)))


def report(points: Sequence[Point]) -> str:
    """Return the tables: every setting, and what ours wins over ordinary training."""
    rows = [
        [
            point.setting.name,
            number(point.seconds),
            number(point.total),
            f"{point.test:.2f}",
            str(len(point.tests)),
        ]
        for point in points
    ]
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
        won = [
            f"{other - score:+.2f}" if (other := ours.at(s)) is not None else "—"
            for s in (seconds, seconds / 2)
        ]
        wins.append([number(seconds), f"{score:.2f}", *won])
    head = ["s", "ordinary, %", "ours, points more", "in half the time"]
    return (
        f"{text}\n\nTo {goal:.2f} %: ordinary {number(theirs)} s, ours "
        f"{reached}.\n\n{table(head, wins)}"
    )


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
    print(
        report(
            [
                point_of(setting, [results[setting.name, seed] for seed in options.seeds])
                for setting in chosen
            ]
        )
    )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--ordinary", type=int, nargs="+", default=[5, 10, 20], metavar="EPOCHS")
    add(
        "--lr",
        type=float,
        nargs="+",
        default=[0.001, 0.003, 0.01],
        help="of ordinary and of narrow training",
    )
    add(
        "--narrow", type=int, nargs="*", default=[], metavar="M", help="models of width d/M as well"
    )
    add("--paper", type=int, nargs="*", default=[], metavar="EPOCHS", help="GIST with m = 8")
    add("--local-steps", type=int, default=15, help="ζ of the paper's GIST")
    add(
        "--parts",
        type=int,
        nargs="*",
        default=[],
        metavar="EPOCHS",
        help="narrow models, joined at the end",
    )
    add("--sub-gcns", type=int, default=4, metavar="M", help="how many parts")
    add("--budget", type=float, nargs="*", default=[], metavar="SECONDS")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--out", type=Path, default=Path("runs/frontier"), help="the folder of finished runs")
    add(
        "train",
        nargs="+",
        metavar="-- TRAIN",
        help="options of gistgnn train, with --dataset and --hidden",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
