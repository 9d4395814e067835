"""Train within a budget of time.

A width is chosen by short trials; a narrow model of it is trained in cosine cycles, and made wide.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from torch import Tensor

from gistgnn.accounting.costs import require_theta_fits
from gistgnn.accounting.coverage import coverage_of
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.identity import Fingerprint, facts_of, fingerprint_of, require_same_training
from gistgnn.fit.narrow import NarrowRuns, SavedState, Train, score_wide_model, trained_values
from gistgnn.fit.notes import note_missed_classes
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Progress, Result
from gistgnn.fit.trials import (
    Clock,
    Trials,
    cluster_method_within,
    settings_of_steps,
    width_in_words,
    widths_of_part,
    with_cluster_method,
)
from gistgnn.storage.record import BudgetFacts, Choice, Sent
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes

log = logging.getLogger(__name__)

# The first cycle has so many epochs, and steps within these limits, on batches of the usual size.
FIRST_EPOCHS = 12
FIRST_STEPS = (60, 1000)
ROUNDS = 20  # A cycle has so many rounds, and the time is checked after each.
CAREFUL = 0.95  # The last cycle plans this share of the steps for which there seems to be time.
WORTH_IT = 0.05  # With less than this share of the budget left, there is no other cycle.
# In the first cycle, evaluations take about this share of the time of the steps at most.
EVALUATIONS = 0.1
# Even if all of the budget is used up, the first cycle gets this share of it, and the time of the
# least steps of a cycle, up to so many seconds: an untrained model is of no use.
AT_LEAST = 0.1
SECONDS_OF_LEAST_STEPS = 1.0


def fit_within(setup: Setup, train: Train) -> Result:
    """Train for the time of the settings' budget, and return the result.

    A narrow model is chosen by `Trials`. It trains in cosine cycles of doubling length, each of
    which begins where the last one ended: the best validation score of all counts, so a long budget
    does not overfit. Copies of it, side by side, are the full model. With ranks, every rank trains
    a part of its own, and these stand side by side.

    Args:
        setup: of the whole run.
        train: trains as a setup says, by Algorithm 1.
    """
    assert setup.settings.budget is not None
    clock = Clock(setup.settings.budget)
    keep_freed_memory()
    require_theta_fits(setup.gist.full_spec, setup.gist.store, setup.gist.ranks.count)
    setup.gist.scaling = setup.scaling
    fingerprint = fingerprint_of(setup)
    if setup.gist.ranks.count > 1:
        require_same_training(setup, fingerprint)
    with SavedState(setup, fingerprint) as saved_state:
        if saved_state.saved is None:
            method = setup.gist.ranks.lead(lambda: cluster_method_within(setup, clock.seconds))
        else:  # A resumed run has the same clusters.
            method = saved_state.saved["cluster_method"]
        setup = with_cluster_method(setup, method)
        return _BudgetRun(setup, NarrowRuns(setup, train), clock, saved_state, fingerprint).run()


class _BudgetState(msgspec.Struct):
    """How far a run with a budget has come on one rank, without its models.

    Attributes:
        used: the seconds of the budget that are over.
        choice: the width that the trials have chosen; None until they are over.
        saves: how many times the state has been saved.
        cycles: how many cycles have ended.
        steps: the steps of the cycle that has begun; None between cycles.
        step_seconds: the time of a step in the last cycle, with its share of the evaluations.
        preparing_seconds: the time before the first step of the last cycle.
        evaluation_seconds: the time of one evaluation in the last cycle.
        best_m: the best model is one of so many parts.
        progress: of all cycles.
    """

    used: float = 0.0
    choice: Choice | None = None
    saves: int = 0
    cycles: int = 0
    steps: int | None = None
    step_seconds: float = 0.0
    preparing_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    best_m: int = 1
    progress: Progress = msgspec.field(default_factory=Progress)


class _BudgetRun:
    """The trials, the cycles and the wide model of one run; see `fit_within`."""

    def __init__(
        self,
        setup: Setup,
        runs: NarrowRuns,
        clock: Clock,
        saved_state: SavedState,
        fingerprint: Fingerprint,
    ) -> None:
        self._setup = setup
        self._gist = setup.gist
        self._ranks = setup.gist.ranks
        self._runs = runs
        self._clock = clock
        self._saved_state = saved_state
        self._fingerprint = fingerprint
        self._state = _BudgetState()
        self._interrupted = False
        # The values with which the next cycle begins. If there are none, the seed decides them.
        self._latest: dict[str, Tensor] = {}
        self._best: dict[str, Tensor] = {}  # The values of the best model so far.
        self._last: Result | None = None  # The result of the last narrow run in this process.
        self._resume()

    def run(self) -> Result:
        """Train, and return the result."""
        try:
            if self._state.choice is None:
                self._choose()
            while not self._interrupted and self._plan_cycle():
                self._train_cycle()
        except DivergedError as error:
            error.result = self._result()
            error.result.diverged = str(error)
            raise
        result = self._result()
        if self._ranks.leads:
            note_missed_classes(result.progress, self._setup.graph.class_names)
        return result

    def _choose(self) -> None:
        """Choose a width on rank 0, and begin with the model of its trial there."""
        trials = Trials(self._runs, self._clock)
        state = self._state
        self._save()
        chosen = self._ranks.lead(lambda: msgspec.to_builtins(trials.choose(), str_keys=True))
        self._interrupted = self._ranks.any(
            any(result.interrupted for result in trials.results.values())
        )
        if self._interrupted:
            self._save()
            return
        choice = msgspec.convert(chosen, Choice, strict=False)
        log.info("%s", choice.reason)
        state.choice = choice
        state.best_m = choice.sub_gcns
        self._use_batches(choice)
        state.step_seconds = choice.step_seconds[choice.sub_gcns]
        part = self._runs.model(widths_of_part(self._gist, choice.sub_gcns))
        state.evaluation_seconds = self._runs.evaluation_in_steps(part) * state.step_seconds
        if choice.sub_gcns in trials.results:
            result = trials.results[choice.sub_gcns]
            self._record(result)
            self._latest = trained_values(result.model)
        # In one process the best trial is the best model so far, whatever its width.
        if self._ranks.count == 1:
            for m, result in trials.results.items():
                if self._setup.metric.better(result.progress.best_score, state.progress.best_score):
                    self._keep_best(result, m, rounds_before=0)

    def _use_batches(self, choice: Choice) -> None:
        """Train on batches of the size that was chosen."""
        if choice.batch_divisor > 1:
            smaller = self._runs.with_smaller_batches(choice.batch_divisor)
            assert smaller is not None
            self._runs = smaller

    def _plan_cycle(self) -> bool:
        """Choose the steps of the next cycle, unless it has begun already.

        Returns False if there is no time for one more.
        """
        if self._state.steps is None:
            self._state.steps = self._ranks.lead(self._next_steps)
        return self._state.steps is not None

    def _next_steps(self) -> int | None:
        """Return the steps of the next cycle; None if there is to be none."""
        state = self._state
        if state.progress.stopped_by in ("patience", "callback"):
            return None
        left = self._seconds_of_training
        left = left - state.preparing_seconds - state.evaluation_seconds
        if state.cycles > 0 and left < WORTH_IT * self._clock.seconds:
            return None
        step_seconds = state.step_seconds
        if state.cycles == 0:  # The timed steps of the trials had no evaluations.
            step_seconds *= 1 + EVALUATIONS
        possible = max(left, 0.0) / step_seconds
        assert state.choice is not None
        least, most = (state.choice.batch_divisor * limit for limit in FIRST_STEPS)
        first = min(max(FIRST_EPOCHS * self._runs.sampler.steps_per_epoch, least), most)
        steps = first * 2**state.cycles
        if possible < 3 * steps:  # There is no time for this cycle and the next, of twice as many.
            steps = int(CAREFUL * possible)
        return max(steps, 1)

    @property
    def _seconds_of_training(self) -> float:
        """The seconds that are left for cycles, without those of the last scores.

        With one part, the scores of the wide model are those of the narrow one.
        """
        state = self._state
        parts = self._ranks.count
        left = self._clock.left - (parts * state.evaluation_seconds if parts > 1 else 0.0)
        if state.cycles == 0:
            return max(left, self._least_seconds + state.evaluation_seconds)
        return max(left, 1e-3)

    @property
    def _least_seconds(self) -> float:
        """The seconds of steps that the first cycle gets, whatever is left of the budget."""
        state = self._state
        assert state.choice is not None
        least_steps = state.choice.batch_divisor * FIRST_STEPS[0]
        seconds = (1 + EVALUATIONS) * least_steps * state.step_seconds
        return max(AT_LEAST * self._clock.seconds, min(seconds, SECONDS_OF_LEAST_STEPS))

    def _train_cycle(self) -> None:
        """Train the chosen part from where it is, for the steps that were planned."""
        state = self._state
        self._save()
        result = self._ranks.together(self._train_part)
        self._interrupted = self._ranks.any(result.interrupted)
        if self._interrupted:  # The checkpoint of this cycle says how much time it has taken.
            return
        progress = result.progress
        state.preparing_seconds = progress.seconds.get("prepare", 0.0)
        state.evaluation_seconds = result.inference_seconds or 0.0
        if progress.steps:
            seconds = progress.train_seconds + progress.seconds.get("evaluate", 0.0)
            # The last evaluation is planned by itself, so its time is none of the steps'.
            seconds = seconds - state.evaluation_seconds
            state.step_seconds = max(seconds, 1e-9) / progress.steps
        self._latest = trained_values(result.model)
        state.cycles += 1
        state.steps = None

    def _train_part(self) -> Result:
        """Train this rank's part in one cycle, and add the run to the progress of the whole one."""
        self._last = None
        state = self._state
        assert state.choice is not None
        assert state.steps is not None
        m = state.choice.sub_gcns
        runs = self._runs
        if self._ranks.count > 1:
            runs = runs.of_part(self._ranks.rank)
        seconds = self._seconds_of_training
        # The least steps of a first cycle are taken, however long it prepares and evaluates.
        is_least = state.cycles == 0 and seconds <= self._least_seconds + state.evaluation_seconds
        try:
            self._last = runs.train(
                runs.model(widths_of_part(self._gist, m)),
                settings_of_steps(runs, state.steps, ROUNDS),
                title=f"cycle {state.cycles + 1}, of width {width_in_words(self._gist, m)}",
                folder=self._folder,
                init=self._latest or None,
                max_seconds=None if is_least else seconds,
            )
        except DivergedError as error:
            self._last = error.result
            raise
        finally:
            if self._last is not None:
                self._record(self._last)
        return self._last

    @property
    def _folder(self) -> str:
        """The name of the folder of this rank's checkpoints in the cycle."""
        return f"stage-{self._state.cycles * self._ranks.count + self._ranks.rank}"

    def _record(self, result: Result) -> None:
        """Add a run of the chosen part to the progress of the whole run."""
        state = self._state
        assert state.choice is not None
        total = state.progress
        added = result.progress
        before = {
            "round": total.rounds,
            "step": total.steps,
            "epoch": total.history[-1]["epoch"] if total.history else 0.0,
            "train_seconds": total.train_seconds,
        }
        for entry in added.history:
            total.history.append(_add_numbers(entry, before))
        for numbers in added.per_round:
            total.per_round.append(_add_numbers(numbers, before))
        is_better = total.best_score is None or self._setup.metric.better(
            added.best_score, total.best_score
        )
        if added.history and is_better:
            self._keep_best(result, state.choice.sub_gcns, rounds_before=total.rounds)
        total.scores.last = added.scores.last
        total.rounds += added.rounds
        total.steps += added.steps
        total.train_seconds += added.train_seconds
        total.stopped_by = None if added.stopped_by == "max_seconds" else added.stopped_by
        total.add_seconds(added)

    def _keep_best(self, result: Result, m: int, *, rounds_before: int) -> None:
        """Take the model of a narrow run as the best one so far."""
        progress = self._state.progress
        scores = result.progress.scores
        progress.scores = replace(
            scores, best_round=rounds_before + scores.best_round, last=progress.scores.last
        )
        self._best = trained_values(result.model)
        self._state.best_m = m

    def _result(self) -> Result:
        """Return the result of the whole run: the wide model is made of the best narrow ones."""
        setup = self._setup
        gist = self._gist
        m = self._state.best_m
        if self._ranks.count > 1:
            self._agree_on_progress()
        progress = self._state.progress
        partition = gist.partition.split_into(m)
        if not self._ranks.any(not self._best):
            gist.join_parts(lambda _: self._best, m)
            if self._ranks.count > 1:
                score_wide_model(setup, self._runs.sampler, progress)
        # There is none if the run was interrupted in a trial, or had nothing left to do.
        last = self._last
        return Result(
            model=gist.model(),
            **facts_of(setup, self._fingerprint),
            **progress.entries(),
            interrupted=self._interrupted,
            peak_memory_bytes=peak_memory_bytes(gist.device),
            evaluation={} if last is None else last.evaluation,
            communication=None,
            inference_seconds=None if last is None else last.inference_seconds,
            traffic=Sent(workers=self._ranks.count),
            memory={} if last is None else last.memory,
            partition=partition.describe(0),
            coverage=coverage_of(gist.full_spec, partition, 1),
            batches=self._runs.sampler.facts,
            budget=self._facts(),
            local_steps=1 if last is None else last.local_steps,
        )

    def _agree_on_progress(self) -> None:
        """Let the history be that of rank 0, and the steps those of all ranks."""
        steps = sum(self._ranks.gather(self._state.progress.steps))
        first = self._ranks.lead(lambda: msgspec.to_builtins(self._state.progress))
        self._state.progress = msgspec.convert({**first, "steps": steps}, Progress)

    def _facts(self) -> BudgetFacts | None:
        """Return the entry "budget" of result.json; None before a width is chosen."""
        choice = self._state.choice
        if choice is None:
            return None
        return BudgetFacts(
            **msgspec.structs.asdict(choice),
            cycles=self._state.cycles,
            parts=min(self._ranks.count, choice.sub_gcns),
        )

    def _save(self) -> None:
        """Save what a resumed run needs: where it stands, and the models so far."""
        state = self._state
        state.saves += 1
        state.used = self._clock.passed
        every_rank = self._ranks.gather(msgspec.to_builtins(state, str_keys=True))
        tensors = {f"latest/{name}": tensor for name, tensor in self._latest.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self._best.items()}
        method = getattr(self._setup.sampling, "method", None)
        self._saved_state.save(
            state.saves, {"ranks": every_rank, "cluster_method": method}, tensors
        )

    def _resume(self) -> None:
        """Go on from the state that an earlier process has left."""
        saved = self._saved_state.saved
        if saved is None:
            return
        every_rank = saved["ranks"]
        if len(every_rank) != self._ranks.count:
            raise InputError(
                f"there are {self._ranks.count} ranks, and the run with the budget had "
                f"{len(every_rank)}, each with a "
                "part of its own: start as many"
            )
        self._state = msgspec.convert(every_rank[self._ranks.rank], _BudgetState, strict=False)
        if self._state.choice is not None:
            self._use_batches(self._state.choice)
        self._clock.used = self._state.used + self._saved_state.seconds_of(self._folder)
        for key, tensor in self._saved_state.tensors.items():
            kind, _, name = key.partition("/")
            (self._latest if kind == "latest" else self._best)[name] = tensor


def _add_numbers(entry: Mapping[str, Any], before: Mapping[str, float]) -> dict[str, Any]:
    """Return an entry of a cycle's history as one of the whole run, after what came before it."""
    sums = {name: entry[name] + value for name, value in before.items() if name in entry}
    return {**entry, **sums}
