"""The progress of a run on standard error, step by step."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

from torch import Tensor

from gistgnn.runners.runner import Runner
from gistgnn.sampling import Batch, Sampler
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.pace import Pace
from gistgnn.utils.progress import State, display_here


class CountedSteps:
    """A sampler that calls a function after every step that was taken with one of its batches.

    Args:
        sampler: gives the batches.
        taken: called after every step, also of another sub-GCN.
    """

    def __init__(self, sampler: Sampler, taken: Callable[[], None]) -> None:
        self._sampler, self._taken = sampler, taken

    @property
    def steps_per_epoch(self) -> int:
        """See `Sampler`."""
        return self._sampler.steps_per_epoch

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """See `Sampler`."""
        with closing(self._sampler.batches(first_step, steps)) as batches:
            for batch in batches:
                yield batch
                self._taken()

    def select_columns(self, columns: Tensor) -> "CountedSteps":
        """See `Sampler`."""
        return CountedSteps(self._sampler.select_columns(columns), self._taken)

    def for_sub_gcn(self, i: int) -> "CountedSteps":
        """See `Sampler`; this one, where all sub-GCNs have the same batches."""
        own = self._sampler.for_sub_gcn(i)
        return self if own is self._sampler else CountedSteps(own, self._taken)


class ShownRun:
    """Shows how far a run has come, and how long it will still take.

    Args:
        schedule: returns the rounds of the run; with a budget they change.
        runner: trains the sub-GCNs; one with a true attribute `together` takes a step of all of them on each batch.
        shown: show it; otherwise nothing happens.
    """

    def __init__(self, schedule: Callable[[], Schedule], runner: Runner, *, shown: bool) -> None:
        self._schedule, self._runner = schedule, runner
        self._display = display_here() if shown else None
        self._state = State()
        self._pace: Pace | None = None  # while the run trains

    @contextmanager
    def training(self, sampler: Sampler, rounds: int) -> Iterator[Sampler]:
        """Show the progress within the block, in which a run trains after some rounds that are over.

        Yields the sampler to train with.
        """
        if self._display is None:
            yield sampler
            return
        self._pace = pace = Pace(rounds, getattr(self._runner, "together", None))
        schedule = self._schedule
        self._state.left = lambda: pace.left(schedule())
        self._state.rounds, self._state.of = rounds, self._schedule().rounds
        self._state.steps = self._pace.expected(self._plan())
        self._display.start(self._state)
        try:
            yield CountedSteps(sampler, self._step)
        finally:
            self._state.ended, self._state.step = True, 0
            self._display.stop(self._state)

    def round_over(self, rounds: int) -> None:
        """Show that some rounds are over; an evaluation, if there is one, begins."""
        state, schedule = self._state, self._schedule()
        state.rounds, state.of, state.step = rounds, schedule.rounds, 0
        if self._display and self._pace:
            plan = schedule.plan(rounds - 1)
            self._pace.round_over(plan)
            state.activity = "evaluating" if self._pace.evaluates(plan, rounds) else ""
            self._display.changed(state)

    def evaluated(self, entry: dict[str, Any], best: float | None) -> None:
        """Show an entry of the history, and the best score so far. Earlier ones of a resumed run are not shown."""
        self._state.entry, self._state.best, self._state.activity = entry, best, ""
        if self._display and self._pace:
            self._pace.evaluated()
            self._display.evaluated(self._state)

    def _plan(self) -> RoundPlan:
        """Return the plan of the current round."""
        schedule = self._schedule()
        return schedule.plan(min(self._state.rounds, schedule.rounds - 1))

    def _step(self) -> None:
        assert self._display
        assert self._pace
        self._pace.learn(getattr(self._runner, "together", None))  # it is known once a round has begun
        plan, state = self._plan(), self._state
        state.step, state.steps, state.activity = self._pace.step(plan), self._pace.expected(plan), ""
        self._display.changed(state)
