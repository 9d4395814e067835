"""How fast a run goes, step by step, and the time that is left."""

import time
from collections.abc import Callable

from gistgnn.schedule import RoundPlan, Schedule

Clock = Callable[[], float]


class Pace:
    """Measures steps and evaluations, and estimates the time that is left.

    A phase that has not begun is taken to be as fast as the latest one, where a step's time is proportional to a
    sub-GCN's width.

    Args:
        rounds: that are over already.
        together: all sub-GCNs take a step at once; None: not known. The first round shows it in any case.
        clock: seconds.
    """

    def __init__(self, rounds: int, together: bool | None = None, clock: Clock = time.perf_counter) -> None:
        self._rounds, self._clock = rounds, clock
        self._together = together
        self._at_once = 1.0  # steps of sub-GCNs for every call of `step`, where they are not all taken at once
        self._measured: dict[tuple[int | None, bool], list[tuple[float, float]]] = {}  # seconds and steps of rounds
        self._latest: tuple[int | None, bool] | None = None
        self._evaluations: list[float] = []  # seconds
        self._taken, self._begun = 0, clock()

    def learn(self, together: bool | None) -> None:
        """Learn whether all sub-GCNs take a step at once, unless a round has shown it; None: it is still not known."""
        if together is not None and not self._measured:
            self._together = together

    def step(self, plan: RoundPlan) -> int:
        """Count a step of a round; return how many were counted in it."""
        self._taken += 1
        return min(self._taken, self.expected(plan))

    def expected(self, plan: RoundPlan) -> int:
        """Return about how many steps will be counted in a round."""
        return round(_steps_of(plan) / self._weight(plan))

    def round_over(self, plan: RoundPlan) -> None:
        """Record that the round is over."""
        now = self._clock()
        if self._taken and plan.workers > 1:
            self._at_once = _steps_of(plan) / self._taken
            self._together = self._at_once >= plan.workers
        self._latest = _kind(plan)
        self._measured.setdefault(self._latest, []).append((now - self._begun, _steps_of(plan)))
        self._rounds, self._taken, self._begun = self._rounds + 1, 0, now

    def evaluated(self) -> None:
        """Record that the evaluation after a round is over."""
        now = self._clock()
        self._evaluations.append(now - self._begun)
        self._begun = now

    def evaluates(self, plan: RoundPlan, rounds: int) -> bool:
        """Return whether an evaluation follows a round, after which so many are over."""
        return plan.last or rounds % plan.evaluate_every == 0

    def left(self, schedule: Schedule) -> float | None:
        """Return the seconds that are left, without preparation; None before the first step."""
        if self._rounds >= schedule.rounds:
            return 0.0
        current = schedule.plan(self._rounds)
        running = self._clock() - self._begun
        if not self._measured.get(_kind(current)) and self._taken:
            done = self._taken * self._weight(current)
            self._latest, measured = _kind(current), {_kind(current): running / done}
        else:
            measured = {kind: _rate(rounds) for kind, rounds in self._measured.items()}
        if self._latest not in measured:
            return None
        seconds = -min(running, _steps_of(current) * self._rate_of(current, measured))  # of the current round
        for phase, steps in zip(schedule.phases, schedule.steps, strict=True):
            if phase.stop > self._rounds:
                plan = schedule.plan(max(phase.start, self._rounds))
                taken = plan.stretch.first - plan.stretch.begun
                seconds += (steps - taken) * plan.workers * self._rate_of(plan, measured)
        return max(seconds, 0.0) + self._evaluating(schedule)

    def _rate_of(self, plan: RoundPlan, measured: dict[tuple[int | None, bool], float]) -> float:
        """Return the seconds of a sub-GCN's step."""
        if (kind := _kind(plan)) in measured:
            return measured[kind]
        assert self._latest is not None
        return measured[self._latest] * (self._latest[0] or 1) / (plan.sub_gcns or 1)

    def _evaluating(self, schedule: Schedule) -> float:
        """Return the seconds of the evaluations that are left."""
        if not self._evaluations:
            return 0.0
        count = 0
        for phase in schedule.phases:
            if phase.stop > self._rounds:
                every = schedule.plan(phase.start).evaluate_every
                count += phase.stop // every - max(phase.start, self._rounds) // every
                count += phase.stop % every != 0  # a phase ends with one
        recent = self._evaluations[-5:]
        return count * sum(recent) / len(recent)

    def _weight(self, plan: RoundPlan) -> float:
        """Return the steps of single sub-GCNs that a counted step stands for."""
        return plan.workers if self._together else min(self._at_once, plan.workers)


def _steps_of(plan: RoundPlan) -> int:
    """Return the steps of all sub-GCNs in a round."""
    return plan.stretch.count * plan.workers


def _kind(plan: RoundPlan) -> tuple[int | None, bool]:
    """Return what the time of a sub-GCN's step depends on: m, and whether one trains for all."""
    return plan.sub_gcns, plan.copies


def _rate(rounds: list[tuple[float, float]]) -> float:
    """Return the seconds of a step; the first round loads code, so it counts only while there is no other."""
    counted = rounds[1:][-50:] or rounds
    return sum(seconds for seconds, _ in counted) / sum(steps for _, steps in counted)
