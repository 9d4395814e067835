"""Runs with a budget of time: what is chosen, whether the time is kept, and what the wide model is.

The clock of these tests is simulated.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gistgnn import GIST, InputError, Saving
from gistgnn.evaluation import evaluate
from gistgnn.fit import trials as short
from gistgnn.fit.fit import Fit
from gistgnn.fit.narrow import NarrowRuns
from gistgnn.fit.result import Progress, Scores
from gistgnn.fit.trials import Clock, Trials
from gistgnn.graphs import Graph
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling, FullGraph, whole_graph
from gistgnn.settings import LR
from gistgnn.training.metric import NAMED
from tests.helpers.models import OURS, C, tiny_graph
from tests.helpers.resuming import after

GRAPH: Graph = tiny_graph()
WIDE = 512
NARROW = 32


def make(width: int = WIDE, **options: Any) -> GIST:
    return GIST(lambda w: OURS["gcn"](w, dropout=0.1), (width,), **options)


class Machine:
    """A machine on which a step takes as long as `step(m, now)` says, for one of m parts."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, step: Callable[[int, float], float]
    ) -> None:
        self.now = 0.0
        self.step = step
        monkeypatch.setattr(short, "NARROWEST", NARROW // 4)
        monkeypatch.setattr(short.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(
            Trials, "step_seconds", lambda _, part, steps=0: self.measured(NARROW // part.widths[0])
        )
        record = Fit.after_round

        def after_round(run: Any, loss: float) -> None:
            m = NARROW // run.gist.widths[0]
            begun = self.now
            for _ in range(run.schedule.steps_of(run.progress.rounds).count):
                self.now += self.step(m, self.now)
            run.progress.seconds["train"] += self.now - begun
            record(run, loss)

        monkeypatch.setattr(Fit, "after_round", after_round)

    def measured(self, m: int) -> float:
        seconds = self.step(m, self.now)
        self.now += (1 + short.TIMED_STEPS) * seconds
        return seconds


MakeMachine = Callable[..., Machine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MakeMachine:
    return partial(Machine, monkeypatch)


def test_parts_are_not_narrower_than_they_may_be_and_are_equal() -> None:
    assert short.candidates(make()) == [4, 2, 1]
    for gist in (
        make(2 * short.NARROWEST - 1),
        # Two blocks would differ.
        make(2 * short.NARROWEST + 1),
        make(whole=[0]),
        # The blocks have random sizes.
        make(partition="categorical"),
        # A part sees all input features.
        GIST(lambda w: GCN(w[0], w[1:], C), (WIDE, WIDE), input_axis=0),
    ):
        assert short.candidates(gist) == [1]


@pytest.mark.parametrize(
    ("seconds", "ranks", "scores", "tried", "chosen"),
    [
        # The time is too short for a trial, so the narrowest is chosen, with a note.
        (1, 1, [], [], 4),
        # In doubt the narrowest is chosen, although a wider one has time for 300 steps.
        (7, 1, [], [], 4),
        # The best is chosen.
        (40, 1, [0.5, 0.7, 0.6], [4, 2, 1], 2),
        # The third is not tried, as it is slower still.
        (40, 1, [0.7, 0.5, 0.9], [4, 2], 4),
        # Wider ones that are near gain more from a longer training.
        (40, 1, [0.7, 0.69, 0.69], [4, 2, 1], 1),
        # Errors count as scores below zero.
        (40, 1, [-0.7, -0.5, -0.51], [4, 2, 1], 1),
        # Without a score the narrowest is chosen.
        (40, 1, [None, None], [4], 4),
        # Every rank has a part of its own.
        (40, 2, [0.7, 0.69, 0.69], [4, 2, 1], 2),
        # It has one even where half of the width is too much.
        (40, 2, [0.7, 0.5], [4, 2], 4),
    ],
)
def test_the_best_part_of_short_trials_is_chosen(
    machine: MakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    ranks: int,
    scores: Sequence[float | None],
    tried: list[int],
    chosen: int,
) -> None:
    clock = machine(lambda m, _: 0.04 / m)
    gist = make(NARROW)
    gist.ranks = SimpleNamespace(count=ranks)  # type: ignore[assignment]
    steps_of_trials: dict[int, int] = {}

    def train(trials: Trials, part: Any, m: int, steps: int) -> Any:
        steps_of_trials[m] = steps
        clock.now += steps * 0.04 / m
        score = scores[len(steps_of_trials) - 1]
        return SimpleNamespace(
            progress=Progress(scores=Scores(best_score=score)), interrupted=False
        )

    monkeypatch.setattr(Trials, "_train", train)
    runs: Any = SimpleNamespace(
        setup=SimpleNamespace(gist=gist, metric=NAMED["accuracy"]),
        sampler=FullGraph(whole_graph(GRAPH)),
        model=lambda widths: SimpleNamespace(widths=widths),
        evaluation_in_steps=lambda _: 1.0,
        with_smaller_batches=lambda _: None,
    )
    choice = Trials(runs, Clock(seconds)).choose()
    assert list(steps_of_trials) == tried
    for m, steps in steps_of_trials.items():
        assert steps == int(short.TRIAL * seconds * m / 0.04), "equal times"
    assert choice.sub_gcns == chosen
    assert list(choice.scores) == [
        m for m, score in zip(tried, scores, strict=False) if score is not None
    ]
    assert ("every rank" in choice.reason) == (ranks > 1)
    assert ("copies" in choice.reason) == (ranks == 1 and chosen > 1)
    assert ("more time" in choice.reason) == (seconds == 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "step",
    [
        lambda m, now: 0.01 / m,
        # It becomes half as fast.
        lambda m, now: 0.01 / m * (1 + (now > 5)),
        # It becomes twice as fast.
        lambda m, now: 0.02 / m / (1 + (now > 3)),
        lambda m, now: 0.01 / m * (1.5 if int(now) % 2 else 0.5),
    ],
)
def test_a_run_ends_with_its_budget(
    machine: MakeMachine, step: Callable[[int, float], float]
) -> None:
    clock = machine(step)
    result = make(NARROW).fit(GRAPH, budget=10.0, progress=False)
    assert 8.8 <= clock.now <= 10.2
    assert not result.progress.stopped_early
    epochs = [entry["epoch"] for entry in result.history]
    assert epochs == sorted(epochs)
    assert [entry["round"] for entry in result.history][-1] == result.progress.rounds


@pytest.mark.parametrize(
    ("step_seconds", "least", "most"),
    [
        (0.002, 54, 60),  # The least steps of a first cycle.
        (0.1, 8, 10),  # What a second has time for.
        (3.0, 1, 1),  # One step, however slow.
    ],
)
def test_a_budget_that_is_used_up_trains_for_a_second_or_its_least_steps(
    machine: MakeMachine, step_seconds: float, least: int, most: int
) -> None:
    machine(lambda m, _: step_seconds)
    result = make(NARROW).fit(GRAPH, budget=0.3, progress=False)
    assert least <= result.progress.steps <= most
    assert result.test


def test_cycles_double_and_the_rate_falls_in_each(machine: MakeMachine) -> None:
    machine(lambda m, _: 0.002 / m)
    begun: list[int] = []
    watch = SimpleNamespace(on_fit_begin=lambda run: begun.append(run.schedule.steps))
    result = make(NARROW).fit(GRAPH, budget=10.0, progress=False, callbacks=[watch])
    assert result.budget is not None
    cycles = begun[-result.budget.cycles :]
    doubling = [steps for steps in cycles[:-1] if steps == cycles[0] * 2 ** cycles.index(steps)]
    assert len(doubling) >= 3
    assert doubling == cycles[: len(doubling)], "only the last cycles fill up the time"
    assert result.history[-1]["lr"] < 0.1 * LR


def test_the_wide_model_has_the_output_and_the_scores_of_the_narrow_one(
    machine: MakeMachine,
) -> None:
    machine(lambda m, _: 0.01 / m)
    gist = make(NARROW)
    result = gist.fit(GRAPH, budget=2.0, progress=False, metric="f1_macro")
    assert result.budget is not None
    assert result.budget.sub_gcns > 1, "the test can tell"
    for split in ("validation", "test"):
        scores = evaluate(result.model, GRAPH, (split,))[split]
        for name in ("accuracy", "f1_macro"):
            assert scores[name] == pytest.approx(getattr(result, split)[name])
    expected = named_tensors(result.model)
    for name, tensor in named_tensors(gist.model()).items():
        assert torch.equal(tensor, expected[name]), "Θ is the result"


def test_the_best_trial_counts_if_nothing_later_is_better(
    machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(lambda m, _: 0.01 / m)
    train = NarrowRuns.train

    def with_score(runs: NarrowRuns, model: Any, training: Any, **options: Any) -> Any:
        result = train(runs, model, training, **options)
        # The narrowest part is far better in its trial; the widest is near, and is chosen.
        is_trial = options["title"].startswith("trial")
        score_of_trial = 2.0 if model.widths[0] == 8 else 1.9
        result.validation["accuracy"] = score_of_trial if is_trial else 0.1
        return result

    monkeypatch.setattr(NarrowRuns, "train", with_score)
    result = make(NARROW).fit(GRAPH, budget=40.0, progress=False)
    assert result.budget is not None
    assert result.budget.sub_gcns == 1
    assert result.progress.best_score == 2.0
    assert [len(axis.blocks) for axis in result.partition] == [4]


def test_a_resumed_run_keeps_its_choice_and_its_budget(
    machine: MakeMachine, tmp_path: Path
) -> None:
    clock = machine(lambda m, _: 0.01 / m)
    saving = Saving(tmp_path / "c", every=1)
    cut = make(NARROW).fit(GRAPH, budget=10.0, progress=False, saving=saving, callbacks=after(50))
    assert cut.interrupted
    used = clock.now
    clock.now = 1000.0
    resumed = make(NARROW).fit(
        GRAPH, budget=10.0, progress=False, saving=Saving(tmp_path / "c", resume=True)
    )
    assert not resumed.interrupted
    assert cut.budget is not None
    assert resumed.budget is not None
    assert resumed.budget.sub_gcns == cut.budget.sub_gcns
    assert len(resumed.history) > len(cut.history)
    steps_of_cut = [entry["step"] for entry in cut.history]
    assert [entry["step"] for entry in resumed.history][: len(steps_of_cut)] == steps_of_cut
    assert 2 < used < 10, "the test can tell"
    assert 1008.8 - used <= clock.now <= 1010.5 - used, "the time before the interruption counts"


def test_another_run_is_not_resumed(machine: MakeMachine, tmp_path: Path) -> None:
    machine(lambda m, _: 0.01 / m)
    make(NARROW).fit(GRAPH, budget=1.0, progress=False, saving=Saving(tmp_path / "c"))
    with pytest.raises(InputError, match="seed was 0, now 1"):
        make(NARROW, seed=1).fit(
            GRAPH, budget=1.0, progress=False, saving=Saving(tmp_path / "c", resume=True)
        )


@pytest.mark.parametrize(
    "options", [{"max_seconds": 5}, {"init": "itself"}, {"epochs": 3}, {"local_steps": 3}]
)
def test_what_a_budget_chooses_cannot_be_given(options: dict[str, Any]) -> None:
    gist = make()
    if "init" in options:
        options = {"init": gist.model()}
    with pytest.raises(InputError, match="budget"):
        gist.fit(GRAPH, budget=1.0, progress=False, **options)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("seconds", "cost_of_a_node", "sampler", "expected"),
    [
        # There is time for few steps, so more steps see as many nodes.
        (10.0, 1.0, ClusterSampling(), 4),
        # A step takes as long with fewer nodes.
        (10.0, 0.0, ClusterSampling(), 1),
        # There is time for many steps.
        pytest.param(300.0, 1.0, ClusterSampling(), 1, marks=pytest.mark.long),
        # The user has chosen the size.
        (10.0, 1.0, ClusterSampling(20, 8), 1),
        # A step sees the whole graph.
        (10.0, 1.0, None, 1),
    ],
)
def test_batches_are_smaller_where_there_is_time_for_few_steps(
    machine: MakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seconds: float,
    cost_of_a_node: float,
    sampler: ClusterSampling | None,
    expected: int,
) -> None:
    machine(lambda m, _: 0.4 / m)
    usual: list[int] = []

    def step_seconds(trials: Trials, part: Any, steps: int = 0) -> float:
        facts = trials.runs.sampler.facts
        per_batch = 1 if facts is None else facts.clusters_per_batch
        usual.append(per_batch)
        share = per_batch / usual[0]
        return 0.4 * (cost_of_a_node * share + 1 - cost_of_a_node)

    monkeypatch.setattr(Trials, "step_seconds", step_seconds)
    options: dict[str, Any] = {"budget": seconds, "sampler": sampler, "progress": False}
    saving = Saving(tmp_path / "c", every=1)
    cut = make(NARROW).fit(
        GRAPH, **options, saving=saving, callbacks=after(3) if seconds == 10 else ()
    )
    assert cut.budget is not None
    assert cut.budget.batch_divisor == expected
    if sampler is not None:
        assert cut.batches is not None
        assert cut.batches.clusters_per_batch == usual[0] // expected
    if seconds == 10:
        resumed = make(NARROW).fit(GRAPH, **options, saving=replace(saving, resume=True))
        assert resumed.batches == cut.batches, "a resumed run has the same batches"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("seconds_of_an_edge", "sampler", "expected"),
    [
        (1.0, ClusterSampling(), "split"),
        (0.0, ClusterSampling(), "metis"),
        # The user has chosen the number of clusters, so they are cut once.
        (1.0, ClusterSampling(20), "metis"),
        (1.0, ClusterSampling(method="random"), "random"),
    ],
)
def test_a_short_budget_cuts_clusters_in_less_time(
    machine: MakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seconds_of_an_edge: float,
    sampler: ClusterSampling,
    expected: str,
) -> None:
    machine(lambda m, _: 0.01 / m)
    monkeypatch.setattr(short, "CLUSTERING_SECONDS", seconds_of_an_edge)
    saving = Saving(tmp_path / "c", every=1)
    options: dict[str, Any] = {"budget": 5.0, "sampler": sampler, "progress": False}
    cut = make(NARROW).fit(GRAPH, **options, saving=saving, callbacks=after(40))
    assert cut.interrupted
    assert cut.config["sampler"]["method"] == expected
    monkeypatch.setattr(short, "CLUSTERING_SECONDS", 1.0 - seconds_of_an_edge)
    resumed = make(NARROW).fit(GRAPH, **options, saving=replace(saving, resume=True))
    assert resumed.config["sampler"]["method"] == expected, "a resumed run has the same clusters"
