"""Choose the width of a narrow model within a budget of time, by short trials of several widths."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch

from gistgnn.accounting.costs import theta_bytes
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.narrow import NarrowRuns
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Result
from gistgnn.global_model import GlobalModel
from gistgnn.layout.axes import Widths
from gistgnn.layout.joining import readout_of
from gistgnn.layout.width_scaling import rate_factors
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.storage.record import Choice
from gistgnn.subtrain import subtrain
from gistgnn.utils.formats import duration
from gistgnn.utils.process_memory import available_bytes

# Parts of fewer features than this learn worse, and are not faster by much.
NARROWEST = 128
TRIAL = 0.025  # The steps of a trial take this share of the budget.
LEAST_STEPS = 20  # A trial has at least so many steps.
SLOWER = 3  # A trial ends if it takes so many times as long as it was planned to take.
# A wider part whose score is 10 % lower after its short trial is as good in the end.
NEAR = 0.1
# With fewer epochs or fewer steps than these, a part learns less than a narrower one.
ENOUGH_EPOCHS = 7
ENOUGH_STEPS = 300
TIMED_STEPS = 3
FEW_STEPS = 150  # With time for fewer steps than this, smaller batches are tried.
SMALLER = 4  # They have a fourth of the nodes.
# Smaller batches are taken if an epoch of them takes at most twice as long, as a few steps tell.
MOST_COST = 2
# METIS takes so many seconds for each edge in each direction, in up to three cuts.
CLUSTERING_SECONDS = 4e-6
CLUSTERING = 0.05  # METIS may take this share of the budget.
# After the last round, this share of the budget and so many seconds are left, in which the model
# and the report are written.
SPARED = 0.02
AFTERWARDS = 0.5
ROUNDS_OF_A_TRIAL = 2


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


@dataclass
class Trials:
    """Short trainings of parts of several widths, for about the same time each.

    Attributes:
        runs: trains the parts, on batches of the size that was chosen.
        clock: how much time is left.
        batch_divisor: batches have about 1 / this number of the usual nodes.
        timed: the seconds of a step of one of m parts, by m.
        results: of the trials, by m.
    """

    runs: NarrowRuns
    clock: Clock
    batch_divisor: int = 1
    timed: dict[int, float] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)

    def choose(self) -> Choice:
        """Try parts of several widths, the narrowest first, and choose one.

        It is the part with the best score, or a wider one whose score is near, as a wider one gains
        more from a longer training. A width without a trial is not chosen, so on a slow or busy
        machine it is the narrowest.
        """
        gist = self.runs.setup.gist
        possible = candidates(gist)
        narrowest = possible[0]
        for m in possible:
            part = self.runs.model(widths_of_part(gist, m))
            self.timed[m] = self.step_seconds(part)
            if m == narrowest:
                self._try_smaller_batches(part, m)
            has_time = self.clock.left / self.timed[m] >= self._enough_steps
            if m != narrowest and not has_time:
                break
            steps = int(TRIAL * self.clock.seconds / self.timed[m])
            # A trial needs time for enough steps, and for its score.
            if steps < LEAST_STEPS or self.runs.evaluation_in_steps(part) > steps:
                break
            try:
                self.results[m] = self._train(part, m, steps)
            except DivergedError:  # If the chosen part diverges as well, its cycle says so.
                break
            # A wider part is slower still.
            if self.results[m].interrupted or not self._is_near(m):
                break
        m = self._pick(narrowest)
        scores = {
            tried: self.score(tried) for tried in self.results if math.isfinite(self.score(tried))
        }
        return Choice(
            sub_gcns=m,
            reason=self._reason(m, scores),
            batch_divisor=self.batch_divisor,
            step_seconds=dict(self.timed),
            scores=scores,
        )

    def _try_smaller_batches(self, part: GlobalModel, m: int) -> None:
        """Take smaller batches if there is time for few steps.

        More steps on as many nodes then teach more. The batches stay as they are where a step on a
        smaller one takes nearly as long.
        """
        usual = self.runs
        usual_seconds = self.timed[m]
        # On a GPU a step on a smaller batch takes as long.
        is_on_gpu = self.runs.setup.gist.device.type == "cuda"
        if is_on_gpu or self.clock.left / usual_seconds > FEW_STEPS:
            return
        smaller = usual.with_smaller_batches(SMALLER)
        if smaller is None:
            return
        self.runs = smaller
        seconds = self.step_seconds(part, SMALLER * TIMED_STEPS)
        if seconds * SMALLER > MOST_COST * usual_seconds:
            self.runs = usual
            return
        self.batch_divisor = SMALLER
        self.timed[m] = seconds

    def step_seconds(self, model: GlobalModel, steps: int = TIMED_STEPS) -> float:
        """Measure the time of a step of a part, with its batch: the mean of some."""
        training = self.runs.setup.training
        spec = model.full_spec
        part = spec.from_seed().to(model.device).train()
        optimizer = training.make_optimizer(
            part.parameters(), rate_factors(spec.width_scaling, part, training)
        )

        def now() -> float:
            if model.device.type == "cuda":
                torch.cuda.synchronize(model.device)
            return time.perf_counter()

        with closing(self.runs.sampler.batches(0, 1 + steps)) as batches:
            step_range = StepRange(0, 1 + steps, 1 + steps)
            # The first step is not timed: libraries prepare themselves in it.
            subtrain(part, optimizer, [next(batches)], training, step_range)
            begun = now()
            subtrain(part, optimizer, batches, training, step_range)
            return (now() - begun) / steps

    def score(self, m: int) -> float:
        """Return the validation score after the trial of one of m parts, where more is better."""
        score = self.results[m].progress.best_score
        if score is None:
            return -math.inf
        return score if self.runs.setup.metric.higher_is_better else -score

    def _pick(self, narrowest: int) -> int:
        """Return the m of the widest part that is near the best; without trials the narrowest."""
        near = [m for m in self.results if self._is_near(m)]
        ranks = self.runs.setup.gist.ranks.count
        # It costs no time that every rank trains another part.
        enough_for_ranks = [m for m in near if m >= ranks]
        return min(enough_for_ranks or near, default=narrowest)

    @property
    def _enough_steps(self) -> int:
        """The steps that a part needs for a good score."""
        return max(ENOUGH_EPOCHS * self.runs.sampler.steps_per_epoch, ENOUGH_STEPS)

    def _is_near(self, m: int) -> bool:
        """Whether one of m parts is in the end as good as the best, if it is wider."""
        best = max(map(self.score, self.results))
        if math.isinf(best):
            return False
        return self.score(m) >= best - NEAR * abs(best)

    def _train(self, part: GlobalModel, m: int, steps: int) -> Result:
        """Train one of m parts for some steps, with a rate that falls to zero."""
        return self.runs.train(
            part,
            settings_of_steps(self.runs, steps, ROUNDS_OF_A_TRIAL),
            title=f"trial of width {width_in_words(self.runs.setup.gist, m)}",
            max_seconds=max(min(SLOWER * TRIAL * self.clock.seconds, self.clock.left), 1e-3),
        )

    def _reason(self, m: int, scores: Mapping[int, float]) -> str:
        """Say what was chosen and why, in one line."""
        gist = self.runs.setup.gist
        left = self.clock.left
        width = width_in_words(gist, m)
        if m == 1:
            choice = "the full model trains"
        elif gist.ranks.count > 1:
            choice = f"every rank trains a part of width {width}"
        else:
            choice = f"a part of width {width} trains, and its copies are the full model"
        steps = left / self.timed[m]
        epochs = math.floor(steps / self.runs.sampler.steps_per_epoch * 10) / 10
        time_left = f"{duration(left)} are left, for about {epochs:g} epoch{'s' * (epochs != 1)}"
        if steps < self._enough_steps:
            time_left += ", fewer than a part needs: give more time"
        tried = []
        for parts, seconds in self.timed.items():
            score = f", {abs(scores[parts]):.3g} in a trial" if parts in scores else ""
            tried.append(f"width {width_in_words(gist, parts)}: {duration(seconds)}{score}")
        return f"{choice}: {time_left}; a step takes {'; '.join(tried)}"


def cluster_method_within(setup: Setup, seconds: float) -> str | None:
    """Return the method by which a run with a budget cuts clusters; None without clusters.

    METIS cuts once, and its clusters are split, if more cuts would take much of the time.
    """
    sampling = setup.sampling
    if not isinstance(sampling, ClusterSampling):
        return None
    if sampling.clusters is not None or sampling.method != "metis":
        return sampling.method
    is_slow = CLUSTERING_SECONDS * setup.graph.num_edges > CLUSTERING * seconds
    return "split" if is_slow else "metis"


def with_cluster_method(setup: Setup, method: str | None) -> Setup:
    """Return the same run with clusters that are cut by a method of `cluster_method_within`."""
    if not isinstance(setup.sampling, ClusterSampling) or method is None:
        return setup
    return replace(setup, sampling=replace(setup.sampling, method=method))


def candidates(gist: GlobalModel) -> list[int]:
    """Return every m that may be chosen, the largest first."""
    partition = gist.partition
    possible = even_parts([partition.features[axis] for axis in partition.split])
    is_whole = len(partition.split) < len(partition.features)
    if is_whole or gist.input_axis is not None or partition.kind != "balanced":
        possible = [1]  # Equal parts have to be narrow in all hidden layers.
    elif len(possible) > 1:
        try:
            readout_of(gist.build, gist.layout, gist.widths)
        except InputError:  # Copies of this model cannot stand side by side.
            possible = [1]
    available = available_bytes(gist.device)
    fitting = [
        m
        for m in possible
        if 6 * theta_bytes(replace(gist.full_spec, widths=widths_of_part(gist, m))) < available
    ]
    return sorted(fitting or possible[-1:], reverse=True)


def even_parts(widths: Sequence[int]) -> list[int]:
    """Return the powers of 2 that divide widths into parts of at least `NARROWEST` features.

    1 is always one of them.
    """
    possible = [1]
    m = 2
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


def settings_of_steps(runs: NarrowRuns, steps: int, rounds: int) -> Training:
    """Return the settings of a narrow run of some steps, whose learning rate falls to zero."""
    return replace(
        runs.setup.settings,
        budget=None,
        epochs=steps / runs.sampler.steps_per_epoch,
        local_steps=max(math.ceil(steps / rounds), 1),
        schedule="cosine",
        training="split",
        evaluate_every="auto",
    )
