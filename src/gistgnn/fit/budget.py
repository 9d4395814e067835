"""Train for a given time: choose a width by short trials, train a narrow model in cosine cycles, and make it wide.

The recipe uses nothing that a user could not use: runs of `fit` that begin where the last one ended, and `join`.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor

from gistgnn.accounting.costs import require_theta_fits, theta_bytes
from gistgnn.accounting.coverage import coverage_of
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.callbacks import note_missed_classes
from gistgnn.fit.identity import Fingerprint, fingerprint_of, require_same_training, settings_of
from gistgnn.fit.narrow import NarrowRuns, RecipeState, Train, drop_narrow_result, values_of
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Progress, Result
from gistgnn.fit.scorer import Running, Scorer
from gistgnn.global_model import GlobalModel
from gistgnn.layout.axes import Widths
from gistgnn.layout.joining import readout_of
from gistgnn.layout.width_scaling import rate_factors
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain
from gistgnn.utils.formats import duration
from gistgnn.utils.process_memory import available_bytes, keep_freed_memory
from gistgnn.utils.tensors import digest_of

log = logging.getLogger(__name__)

NARROWEST = 128  # features of a part; narrower ones learn worse, and are not faster by much
FIRST_EPOCHS, FIRST_STEPS = 12, (60, 1000)  # of the first cycle; the steps are limits
TRIAL, LEAST = 0.025, 20  # of the time, for the steps of a trial; and the steps that it has at least
SLOWER = 3  # times as long as planned: a trial that takes longer ends
NEAR = 0.1  # of a score: a wider part that is so much worse after a trial is as good in the end
ENOUGH_EPOCHS, ENOUGH_STEPS = 7, 300  # with fewer a part learns less than a narrower one with more
ROUNDS = 20  # in a cycle, about; the time is checked after each
TIMED = 3  # steps that are timed
SPARED = 0.02  # of the time, for what comes after the last round
AFTERWARDS = 0.5  # seconds more, in which the model and the report are written
CAREFUL = 0.95  # of the steps that there seems to be time for, the last cycle plans
WORTH_IT = 0.05  # of the time: with less left there is no other cycle


def fit_within(setup: Setup, train: Train) -> Result:
    """Train for the time of the settings' budget, and return the result.

    A narrow model is chosen by `Trials`. It trains in cosine cycles of doubling length, each of which begins where the
    last one ended: the best validation score of all counts, so a long budget does not overfit. Copies of it, side by
    side, are the full model. With ranks, every rank trains a part of its own, and these stand side by side.

    Args:
        setup: of the whole run.
        train: trains as a setup says, by Algorithm 1.
    """
    assert setup.given.budget is not None
    clock = Clock(setup.given.budget)
    keep_freed_memory()  # as a run does
    require_theta_fits(setup.gist.full_spec, setup.gist.store, setup.gist.ranks.count)
    setup.gist.scaling = setup.scaling
    fingerprint = fingerprint_of(setup)
    if setup.gist.ranks.count > 1:
        require_same_training(setup, fingerprint)
    with RecipeState(setup, fingerprint) as state:
        return _Recipe(setup, NarrowRuns(setup, train), clock, state, fingerprint).run()


class Clock:
    """How much of a budget is left.

    Attributes:
        seconds: the budget.
        used: the seconds that an earlier process has had of it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.used = 0.0
        self._begun = time.perf_counter()

    @property
    def passed(self) -> float:
        """The seconds that are over."""
        return self.used + time.perf_counter() - self._begun

    @property
    def left(self) -> float:
        """The seconds that are left for training; a few are spared for what comes after it."""
        return max((1 - SPARED) * self.seconds - AFTERWARDS - self.passed, 0.0)


class Choice(msgspec.Struct):
    """The width that was chosen: that of one of m parts of the full model."""

    sub_gcns: int  # m
    reason: str
    step_seconds: dict[int, float]  # of a step of one of m parts, by m
    scores: dict[int, float]  # on validation nodes after a trial, by m; more is better


@dataclass
class Trials:
    """Short trainings of parts of several widths, for about the same time each.

    Attributes:
        timed: the seconds of a step of one of m parts, by m.
        results: of the trials, by m.
    """

    runs: NarrowRuns
    clock: Clock
    timed: dict[int, float] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)

    def choose(self) -> Choice:
        """Try parts, the narrowest first, and choose one.

        It is the part with the best score, or a wider one whose score is near: it gains more from a longer training. A
        part is not made wider without a trial: on a slow or a busy machine the narrowest trains.
        """
        gist = self.runs.setup.gist
        narrowest = max(candidates(gist))
        for m in candidates(gist):
            self.timed[m] = self._step_seconds(m)
            if self.clock.left / self.timed[m] < self._enough_steps and m != narrowest:
                break
            steps = int(TRIAL * self.clock.seconds / self.timed[m])
            model = self.runs.model(widths_of_part(gist, m), gist.seed)
            if steps < LEAST or self.runs.evaluation_in_steps(model) > steps:  # it would be scored for longer
                break
            try:
                self.results[m] = self._train(m, steps)
            except DivergedError:
                break  # if the part that is chosen diverges as well, its cycle says so
            if self.results[m].interrupted or not self._is_near(m):
                break  # a wider one is slower still
        near = [m for m in self.results if self._is_near(m)]
        m = min(near, default=narrowest)
        ranks = gist.ranks.count
        for_all_ranks = [each for each in near if each >= ranks]
        if m < ranks and for_all_ranks:
            m = min(for_all_ranks)  # that every rank trains one of its own costs no time
        scores = {each: self.score(each) for each in self.results if math.isfinite(self.score(each))}
        return Choice(m, self._reason(m, scores), dict(self.timed), scores)

    @property
    def _steps_per_epoch(self) -> int:
        return self.runs.sampler.steps_per_epoch

    @property
    def _enough_steps(self) -> int:
        """The steps that a part needs for a good score."""
        return max(ENOUGH_EPOCHS * self._steps_per_epoch, ENOUGH_STEPS)

    def score(self, m: int) -> float:
        """Return the validation score after the trial of one of m parts, where more is better."""
        score = self.results[m].progress.best_score
        if score is None:
            return -math.inf
        return score if self.runs.setup.metric.higher_is_better else -score

    def _is_near(self, m: int) -> bool:
        """Whether one of m parts is in the end as good as the best, if it is wider."""
        best = max(map(self.score, self.results))
        if math.isinf(best):
            return False
        return self.score(m) >= best - NEAR * abs(best)

    def _step_seconds(self, m: int) -> float:
        """Measure the time of a step of one of m parts, with its batch."""
        gist, training = self.runs.setup.gist, self.runs.setup.training
        spec = self.runs.model(widths_of_part(gist, m), gist.seed).full_spec
        part = spec.from_seed().to(gist.device).train()
        optimizer = training.make_optimizer(part.parameters(), rate_factors(spec.width_scaling, part, training))

        def now() -> float:
            if gist.device.type == "cuda":
                torch.cuda.synchronize(gist.device)
            return time.perf_counter()

        with closing(self.runs.sampler.batches(0, 1 + TIMED)) as batches:
            steps = StepRange(0, 1 + TIMED, 1 + TIMED)
            subtrain(part, optimizer, [next(batches)], training, steps)
            begun = now()
            subtrain(part, optimizer, batches, training, steps)
            return (now() - begun) / TIMED

    def _train(self, m: int, steps: int) -> Result:
        """Train one of m parts for some steps, with a rate that falls to zero."""
        gist = self.runs.setup.gist
        return self.runs.train(
            self.runs.model(widths_of_part(gist, m), gist.seed),
            settings_of_cycle(self.runs, steps, rounds=2),
            title=f"trial of width {width_in_words(gist, m)}",
            sampler=self.runs.sampler,
            max_seconds=max(min(SLOWER * TRIAL * self.clock.seconds, self.clock.left), 1e-3),
        )

    def _reason(self, m: int, scores: Mapping[int, float]) -> str:
        gist = self.runs.setup.gist
        what = f"a part of width {width_in_words(gist, m)} trains, and its copies are the full model"
        if gist.ranks.count > 1:
            what = f"every rank trains a part of width {width_in_words(gist, m)}"
        if m == 1:
            what = "the full model trains"
        steps = self.clock.left / self.timed[m]
        epochs = math.floor(steps / self._steps_per_epoch * 10) / 10
        there_is = f"{duration(self.clock.left)} are left, for about {epochs:g} epoch{'s' * (epochs != 1)}"
        if steps < self._enough_steps:
            there_is += ", fewer than a part needs: give more time"
        tried = []
        for each, seconds in self.timed.items():
            score = f", {abs(self.score(each)):.3g} in a trial" if each in scores else ""
            tried.append(f"width {width_in_words(gist, each)}: {duration(seconds)}{score}")
        return f"{what}: {there_is}; a step takes {'; '.join(tried)}"


class _Recipe:
    """The trials, the cycles and the wide model of one run; see `fit_within`."""

    def __init__(
        self, setup: Setup, runs: NarrowRuns, clock: Clock, state: RecipeState, fingerprint: Fingerprint
    ) -> None:
        self._setup, self._gist, self._ranks = setup, setup.gist, setup.gist.ranks
        self._runs, self._clock, self._state, self._fingerprint = runs, clock, state, fingerprint
        self._choice: Choice | None = None
        self._saves = 0  # of the state
        self._cycles = 0  # that have ended
        self._steps: int | None = None  # of the cycle that has begun
        self._step_seconds = 0.0
        self._preparing = 0.0  # seconds before the first step of a cycle
        self._evaluating = 0.0  # seconds of an evaluation
        self._interrupted = False
        self._epochs = 0.0
        self.progress = Progress()
        self._latest: dict[str, Tensor] = {}  # of the last cycle; empty: the seed's values
        self._best: dict[str, Tensor] = {}
        self._best_m = 1
        self._last: Result | None = None
        self._resume()

    def run(self) -> Result:
        """Train, and return the result."""
        try:
            if self._choice is None:
                self._choose()
            while not self._interrupted and self._plan_cycle():
                self._train_cycle()
        except DivergedError as error:
            if self._last is not None:
                self._record(self._last, self._best_m if self._choice is None else self._choice.sub_gcns)
                error.result = self._result()
                error.result.diverged = str(error)
            raise
        except Exception as error:
            drop_narrow_result(error)
            raise
        result = self._result()
        if self._ranks.leads:
            note_missed_classes(result.progress, self._setup.graph.class_names)
        return result

    def _choose(self) -> None:
        """Choose a width on rank 0, and begin with the model of its trial there."""
        trials = Trials(self._runs, self._clock)
        self._save()
        chosen = self._ranks.lead(lambda: msgspec.to_builtins(trials.choose(), str_keys=True))
        choice = msgspec.convert(chosen, Choice, strict=False)
        self._interrupted = self._ranks.any(any(result.interrupted for result in trials.results.values()))
        if self._interrupted:
            self._last = next(iter(trials.results.values()), None)
            return
        log.info("%s", choice.reason)
        self._choice, self._best_m = choice, choice.sub_gcns
        self._step_seconds = choice.step_seconds[choice.sub_gcns]
        model = self._runs.model(widths_of_part(self._gist, choice.sub_gcns), self._gist.seed)
        self._evaluating = self._runs.evaluation_in_steps(model) * self._step_seconds
        for m, result in trials.results.items():
            if m == choice.sub_gcns:
                self._record(result, m)
                self._latest = values_of(result.model)
        if self._ranks.count == 1:  # the best trial is the best model so far, whatever its width
            for m, result in trials.results.items():
                if self._setup.metric.better(result.progress.best_score, self.progress.best_score):
                    self._keep_best(result.progress, values_of(result.model), m)

    def _plan_cycle(self) -> bool:
        """Choose the steps of the next cycle, unless it has begun; False: there is no time for one more."""
        if self._steps is None:
            self._steps = self._ranks.lead(self._next_steps)
        return self._steps is not None

    def _next_steps(self) -> int | None:
        left = self._clock.left - self._preparing - self._evaluating - self._seconds_of_scores
        if self._cycles > 0 and left < WORTH_IT * self._clock.seconds:
            return None
        if self.progress.stopped_by in ("patience", "callback"):
            return None
        possible = max(left, 0.0) / self._step_seconds
        epoch = self._runs.sampler.steps_per_epoch
        first = min(max(FIRST_EPOCHS * epoch, FIRST_STEPS[0]), FIRST_STEPS[1])
        steps = first * 2**self._cycles
        if possible < 3 * steps:  # there is no room for this one and the next
            steps = int(CAREFUL * possible)
        return max(steps, 1)

    @property
    def _seconds_of_scores(self) -> float:
        """Seconds that scoring the wide model takes; with one part the scores are those of the narrow model."""
        if self._ranks.count == 1 or self._last is None:
            return 0.0
        return self._ranks.count * (self._last.inference_seconds or 0.0)

    def _train_cycle(self) -> None:
        """Train the chosen part from where it is, for the steps that were planned."""
        assert self._choice is not None
        assert self._steps is not None
        gist, m, steps = self._gist, self._choice.sub_gcns, self._steps
        self._save()
        rank = self._ranks.rank

        def train() -> Result:
            try:
                self._last = self._runs.train(
                    self._runs.model(widths_of_part(gist, m), self._runs.seed_of(rank)),
                    settings_of_cycle(self._runs, steps),
                    title=f"cycle {self._cycles + 1}, of width {width_in_words(gist, m)}",
                    sampler=self._runs.sampler if self._ranks.count == 1 else self._runs.batches_of(rank),
                    folder=self._folder,
                    init=self._latest or None,
                    max_seconds=max(self._clock.left - self._seconds_of_scores, 1e-3),
                )
            except DivergedError as error:
                self._last = error.result
                raise
            return self._last

        result = self._ranks.together(train)
        progress = result.progress
        self._interrupted = self._ranks.any(result.interrupted)
        if self._interrupted:
            self._save()
            if progress.history:
                self._record(result, m)
            return
        self._preparing = progress.seconds.get("prepare", 0.0)
        self._evaluating = result.inference_seconds or 0.0
        if progress.steps:  # the last evaluation has its time apart
            seconds = progress.train_seconds + progress.seconds.get("evaluate", 0.0) - self._evaluating
            self._step_seconds = max(seconds, 1e-9) / progress.steps
        self._record(result, m)
        self._latest = values_of(result.model)
        self._cycles += 1
        self._steps = None

    @property
    def _folder(self) -> str:
        """The name of the folder of this rank's checkpoints in the cycle."""
        return f"stage-{self._cycles * self._ranks.count + self._ranks.rank}"

    def _record(self, result: Result, m: int) -> None:
        """Add a narrow run to the progress of the whole run."""
        whole, own = self.progress, result.progress
        for entry in own.history:
            whole.history.append(
                {
                    **entry,
                    "round": whole.rounds + entry["round"],
                    "step": whole.steps + entry["step"],
                    "epoch": self._epochs + entry["epoch"],
                    "train_seconds": whole.train_seconds + entry["train_seconds"],
                }
            )
        is_better = self._setup.metric.better(own.best_score, whole.best_score) or whole.best_score is None
        if own.history and is_better:
            self._keep_best(own, values_of(result.model), m)
        whole.last = own.last
        whole.rounds += own.rounds
        whole.steps += own.steps
        whole.train_seconds += own.train_seconds
        whole.stopped_by = None if own.stopped_by == "max_seconds" else own.stopped_by
        whole.stopped_early = whole.stopped_by is not None
        for activity, seconds in own.seconds.items():
            whole.seconds[activity] = whole.seconds.get(activity, 0.0) + seconds
        if own.history:
            self._epochs += own.history[-1]["epoch"]

    def _keep_best(self, own: Progress, values: dict[str, Tensor], m: int) -> None:
        whole = self.progress
        whole.best, whole.best_score = own.best, own.best_score
        whole.best_round = whole.rounds + own.best_round
        whole.classes, whole.temperature = own.classes, own.temperature
        self._best, self._best_m = values, m

    def _result(self) -> Result:
        """Return the result of the whole run: the wide model is made of the best narrow ones."""
        if self._ranks.count > 1:
            self._agree_on_progress()
        setup, gist, progress = self._setup, self._gist, self.progress
        shared: dict[str, Any] = {
            "progress": progress,
            "interrupted": self._interrupted,
            "budget": self._facts(),
            "diverged": None,
            "coverage": coverage_of(gist.full_spec, gist.partition.split_into(self._best_m), 1),
            "traffic": {"workers": self._ranks.count},
            "config": settings_of(setup),
            "run": digest_of(self._fingerprint),
            "fingerprint": self._fingerprint,
        }
        assert self._last is not None
        if not self._ranks.any(not self._best):
            gist.join_parts(lambda _: self._best, self._best_m)
            shared["partition"] = gist.partition.split_into(self._best_m).describe(0)
        if self._ranks.count > 1 and progress.history:
            self._score()
        return replace(self._last, model=gist.model(), **shared)

    def _agree_on_progress(self) -> None:
        """Let the history be that of rank 0, and the steps those of all ranks."""
        steps = sum(self._ranks.gather(self.progress.steps))
        first = self._ranks.lead(lambda: msgspec.to_builtins(self.progress))
        self.progress = msgspec.convert({**first, "steps": steps}, Progress)

    def _score(self) -> None:
        """Score the wide model of several different parts."""
        setup, gist, progress = self._setup, self._gist, self.progress
        classes = None if setup.any_outputs else setup.graph.num_classes
        with closing(self._runs.sampler.batches(0, 1)) as batches:
            evaluation = partial(setup.evaluation.prepare, seed=gist.seed)
            running = Running(gist.theta, gist.full_spec)
            scorer = Scorer(running, setup.graph, setup.metric, evaluation, next(batches), classes)
        progress.best = progress.last = scorer()
        progress.best_score = progress.best["validation"][setup.metric.name]
        progress.best_round = progress.rounds
        progress.classes, progress.temperature = scorer.classes, scorer.temperature
        scores = {split: progress.best.get(split, {}).get(setup.metric.name) for split in ("validation", "test")}
        progress.history.append({**progress.history[-1], **scores})

    def _facts(self) -> dict[str, Any]:
        """Return the entry "budget" of result.json."""
        if self._choice is None:
            return {"reason": "interrupted before a width was chosen"}
        facts = msgspec.to_builtins(self._choice, str_keys=True)
        return {**facts, "cycles": self._cycles, "parts": min(self._ranks.count, self._choice.sub_gcns)}

    def _save(self) -> None:
        """Save what a resumed run needs: the choice, the cycle that has begun, and the models so far."""
        self._saves += 1
        saved = {
            "ranks": self._ranks.count,
            "used": self._clock.passed,
            "choice": None if self._choice is None else msgspec.to_builtins(self._choice, str_keys=True),
            "counts": [self._saves, self._cycles, self._steps, self._best_m],
            "seconds": [self._step_seconds, self._preparing, self._evaluating, self._epochs],
            "progress": self._ranks.gather(msgspec.to_builtins(self.progress)),
        }
        tensors = {f"latest/{name}": tensor for name, tensor in self._latest.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self._best.items()}
        self._state.save(self._saves, saved, tensors)

    def _resume(self) -> None:
        """Go on from the state that an earlier process has left."""
        saved = self._state.saved
        if saved is None:
            return
        if saved["ranks"] != self._ranks.count:
            raise InputError(
                f"there are {self._ranks.count} ranks, and the run with the budget had {saved['ranks']}, each with a "
                "part of its own: start as many"
            )
        self._saves, self._cycles, self._steps, self._best_m = saved["counts"]
        self._step_seconds, self._preparing, self._evaluating, self._epochs = saved["seconds"]
        self.progress = msgspec.convert(saved["progress"][self._ranks.rank], Progress)
        self._clock.used = saved["used"] + self._state.seconds_of(self._folder)
        if saved["choice"] is not None:
            self._choice = msgspec.convert(saved["choice"], Choice, strict=False)
        for key, tensor in self._state.tensors.items():
            kind, _, name = key.partition("/")
            (self._latest if kind == "latest" else self._best)[name] = tensor


def candidates(gist: GlobalModel) -> list[int]:
    """Return every m that may be chosen, the largest first."""
    partition = gist.partition
    possible = even_parts([partition.features[axis] for axis in partition.split])
    is_whole = len(partition.split) < len(partition.features)
    if is_whole or gist.input_axis is not None or partition.kind != "balanced":
        possible = [1]  # equal parts are narrow in all hidden layers
    elif len(possible) > 1:
        try:
            readout_of(gist.build, gist.layout, gist.widths, shared=gist.shared)
        except InputError:  # copies of this model cannot stand side by side
            possible = [1]
    available = available_bytes(gist.device)
    fitting = [
        m for m in possible if 6 * theta_bytes(replace(gist.full_spec, widths=widths_of_part(gist, m))) < available
    ]
    return sorted(fitting or possible[-1:], reverse=True)


def even_parts(widths: Sequence[int]) -> list[int]:
    """Return every power of 2 that divides some widths into parts that are not narrower than `NARROWEST`; 1 always."""
    possible, m = [1], 2
    while widths and all(width % m == 0 and width // m >= NARROWEST for width in widths):
        possible.append(m)
        m *= 2
    return possible


def widths_of_part(gist: GlobalModel, m: int) -> Widths:
    """Return the widths of one of m equal parts of a model."""
    return gist.layout.widths(gist.partition.split_into(m).sizes(0)[0])


def width_in_words(gist: GlobalModel, m: int) -> str:
    """Return the widths of one of m parts as messages show them."""
    widths = dict.fromkeys(gist.partition.features[axis] // m for axis in gist.partition.split)
    return " and ".join(map(str, widths))


def settings_of_cycle(runs: NarrowRuns, steps: int, rounds: int = ROUNDS) -> Training:
    """Return the settings of a narrow run of some steps, in which the learning rate falls to zero."""
    return replace(
        runs.setup.given,
        budget=None,
        epochs=steps / runs.sampler.steps_per_epoch,
        local_steps=max(math.ceil(steps / rounds), 1),
        schedule="cosine",
        training="split",
        evaluate_every="auto",
    )
