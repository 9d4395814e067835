"""The settings of `benchmarks.frontier` averaged over seeds, their frontier, and what recipes win over it."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TIMES = {"train": "training only", "total": "with evaluation"}
KINDS = {
    "ordinary": "ordinary training",
    "narrow": "narrow model, ordinary training",
    "paper": "the paper's GIST",
    "recipe": "recipes of phases",
    "budget": "--budget",
}
OURS = ("recipe", "budget")


@dataclass(frozen=True)
class Point:
    """A setting, over its seeds.

    Args:
        kind: one of `KINDS`.
        name: the setting in words.
        seconds: the median over seeds, by the names of `TIMES`.
        test: the mean test score at the best validation score, in percent; None: a run diverged.
        last: the mean test score at the end of the run, likewise.
        deviation: the standard deviation of the test score; None: there is one seed.
        seeds: how many there are.
    """

    kind: str
    name: str
    seconds: dict[str, float]
    test: float | None
    last: float | None
    deviation: float | None
    seeds: int


class Frontier:
    """The best score that runs reach within a time, interpolated in the logarithm of time.

    Args:
        runs: (seconds, score) of each.

    Attributes:
        points: the runs that no other run equals in less or equal time, from short to long.
    """

    def __init__(self, runs: Iterable[tuple[float, float]]) -> None:
        self.points: list[tuple[float, float]] = []
        for seconds, score in sorted(runs, key=lambda run: (run[0], -run[1])):
            if not self.points or score > self.points[-1][1]:
                self.points.append((seconds, score))
        self._logs = [math.log(seconds) for seconds, _ in self.points]
        self._scores = [score for _, score in self.points]

    @classmethod
    def of(cls, points: Iterable[Point], kinds: str | Sequence[str], clock: str) -> "Frontier":
        """Return the frontier of the settings of one kind, or of several."""
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return cls((p.seconds[clock], p.test) for p in points if p.kind in kinds and p.test is not None)

    def at(self, seconds: float) -> float | None:
        """Return the best score within a time; None: no run is so short. After the longest run it is constant."""
        if not self.points or seconds < self.points[0][0]:
            return None
        return float(np.interp(math.log(seconds), self._logs, self._scores))

    def reaches(self, score: float) -> float | None:
        """Return the seconds until a score; None: no run has it. At the earliest, the time of the shortest run."""
        if not self.points or score > self._scores[-1]:
            return None
        return math.exp(float(np.interp(score, self._scores, self._logs)))


@dataclass(frozen=True)
class Gain:
    """What a recipe wins over the frontier of ordinary training.

    Args:
        points: its score minus the frontier's at equal time, in points.
        too_short: ordinary training has no run so short, and the points are against its shortest run.
        saved: the time at which the frontier reaches its score, divided by its time.
        bound: ">": ordinary training does not reach the score, and `saved` is of the frontier's best score; "<": its
            shortest run is better already; "": neither.
    """

    points: float
    too_short: bool
    saved: float
    bound: str


def gain(frontier: Frontier, seconds: float, score: float) -> Gain:
    """Compare a run with a frontier that is not empty."""
    (shortest, lowest), (longest, _) = frontier.points[0], frontier.points[-1]
    other, reached = frontier.at(seconds), frontier.reaches(score)
    bound = ">" if reached is None else "<" if score < lowest else ""
    points = score - (lowest if other is None else other)
    return Gain(points, seconds < shortest, (longest if reached is None else reached) / seconds, bound)


def name_of(setting: dict[str, Any]) -> str:
    """Return a setting in words."""
    kind = setting["kind"]
    if kind == "recipe":
        return f"`{setting['phases']}`"
    if kind == "paper":
        return f"GIST, {setting['epochs']} epochs"
    if kind == "budget":
        return f"budget of {setting['seconds']:g} s"
    who = f"narrow, d/{setting['part']}" if kind == "narrow" else "ordinary"
    return f"{who}, {setting['epochs']} epochs, lr {setting['lr']:g}"


def points_of(runs: Iterable[dict[str, Any]]) -> list[Point]:
    """Average the runs of every setting over its seeds; settings are sorted by kind and time."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        alike.setdefault(json.dumps(run["setting"], sort_keys=True), []).append(run)
    found = []
    for group in alike.values():
        tests = [100 * run["test"] for run in group if run["test"] is not None]
        whole = len(tests) == len(group)
        found.append(
            Point(
                group[0]["setting"]["kind"],
                name_of(group[0]["setting"]),
                {clock: statistics.median(run[f"{clock}_seconds"] for run in group) for clock in TIMES},
                statistics.fmean(tests) if whole else None,
                statistics.fmean(100 * run["last"] for run in group) if whole else None,
                statistics.stdev(tests) if whole and len(tests) > 1 else None,
                len(group),
            )
        )
    return sorted(found, key=lambda point: (list(KINDS).index(point.kind), point.seconds["train"]))


def budgets(points: Sequence[Point], clock: str) -> list[tuple[float, float, float | None, float | None]]:
    """Return budgets: (seconds, score of ordinary training, of recipes, of recipes in half the time).

    The budgets are the times of the runs on the frontier of ordinary training.
    """
    recipes = Frontier.of(points, OURS, clock)
    ordinary = Frontier.of(points, "ordinary", clock).points
    return [(seconds, score, recipes.at(seconds), recipes.at(seconds / 2)) for seconds, score in ordinary]
