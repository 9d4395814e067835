"""Runs with a budget of time: what is chosen, and whether the time is kept. The clock of these tests is simulated."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gistgnn import GIST, Result, Saving, Training
from gistgnn.fit import budget
from gistgnn.fit.fit import Fit
from gistgnn.graphs import Graph
from gistgnn.nn import GCN
from gistgnn.sampling import FullGraph, whole_graph
from gistgnn.settings import LR
from tests.helpers.models import OURS, C, tiny_graph
from tests.helpers.resuming import after

GRAPH: Graph = tiny_graph()
WIDE, NARROW = 512, 32


def make(width: int = WIDE, **options: Any) -> GIST:
    return GIST(lambda w: OURS["gcn"](w, dropout=0.1), (width,), **options)


class Machine:
    """A machine on which a step takes the time that `step` says; the parts that are tried have the scores given."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, step: Callable[[int, float], float], scores: Sequence[float] = ()
    ) -> None:
        self.now, self.step = 0.0, step
        self.tried: dict[int, int] = {}  # m, and the steps of the trial
        monkeypatch.setattr(budget, "NARROWEST", NARROW // 4)
        monkeypatch.setattr(budget.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(budget, "step_seconds", self.measured)
        monkeypatch.setattr(budget, "trained", self.trained)
        monkeypatch.setattr(budget, "score", lambda setup, m: scores[len(self.tried) - 1] if scores else -m)
        keep = Fit.after_round

        def train(own: Any, plan: Any, loss: float) -> None:
            m = plan.sub_gcns or 1
            for _ in range(plan.steps.count):
                self.now += self.step(m, self.now)
            keep(own, plan, loss)

        monkeypatch.setattr(Fit, "after_round", train)

    def measured(self, trainer: Any, sampler: Any, training: Any, m: int) -> float:
        seconds = self.step(m, self.now)
        self.now += (1 + budget.TIMED) * seconds
        return seconds

    def trained(self, trainer: Any, sampler: Any, training: Any, m: int, steps: int) -> int:
        self.tried[m] = steps
        self.now += steps * self.step(m, self.now)
        return m


MakeMachine = Callable[..., Machine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MakeMachine:
    return partial(Machine, monkeypatch)


def phases_of(result: Result) -> list[dict[str, Any]]:
    assert result.budget is not None
    return list(result.budget["training"]["phases"])


def test_parts_are_not_narrower_than_they_may_be_and_have_copies() -> None:
    assert budget.candidates(make()) == [4, 2, 1]
    for gist in (
        make(2 * budget.NARROWEST - 1),
        make(2 * budget.NARROWEST + 1),  # two blocks would differ
        make(whole=[0]),
        make(partition="categorical"),  # blocks of random sizes have no copies
        GIST(lambda w: GCN(w[0], w[1:], C), (WIDE, WIDE), input_axis=0),  # copies see all input features
    ):
        assert budget.candidates(gist) == [1]


@pytest.mark.parametrize(
    ("seconds", "ranks", "scores", "tried", "chosen"),
    [
        (1, 1, [], [], 4),  # too short for a trial: the narrowest, and a note
        (7, 1, [], [], 2),  # or the widest that has 300 steps
        (40, 1, [0.5, 0.7, 0.6], [4, 2, 1], 2),  # the best
        (40, 1, [0.7, 0.5, 0.9], [4, 2], 4),  # the third is not tried: it is slower still
        (40, 1, [0.7, 0.69, 0.69], [4, 2, 1], 1),  # wider ones that are near gain more from a longer training
        (40, 1, [-0.7, -0.5, -0.51], [4, 2, 1], 1),  # errors count as scores below zero
        (40, 2, [0.7, 0.69, 0.69], [4, 2, 1], 2),  # every rank has a part of its own
        (40, 2, [0.7, 0.5], [4, 2], 4),  # which has copies if half of the width is too much
    ],
)
def test_the_best_part_of_short_trials_is_chosen(
    machine: MakeMachine, seconds: float, ranks: int, scores: list[float], tried: list[int], chosen: int
) -> None:
    clock = machine(lambda m, _: 0.04 / m, scores)
    gist, training = make(NARROW), Training(budget=seconds)
    gist.ranks = SimpleNamespace(count=ranks)  # type: ignore[assignment]
    setup: Any = SimpleNamespace(gist=gist, training=training, given=training)
    found = budget.choose(setup, FullGraph(whole_graph(GRAPH)), seconds)
    assert list(clock.tried) == tried
    assert all(steps == int(budget.TRIAL * seconds * m / 0.04) for m, steps in clock.tried.items()), "equal times"
    phases, trained, reason = found["training"]["phases"], ranks, found["reason"]
    assert {(phase["sub_gcns"], phase["copies"]) for phase in phases} == {(chosen, trained if trained < chosen else 0)}
    assert found["training"]["redraw_every"] == 0
    steps = trained * (1 - budget.SPARED) * (seconds - clock.now) * chosen / 0.04
    assert sum(phase["epochs"] for phase in phases) == pytest.approx(steps, rel=0.01)
    said = [ranks > 1, trained < chosen, seconds == 1]
    assert said == [words in reason for words in ("every rank", "copied", "more time")]


@pytest.mark.parametrize(
    "step",
    [
        lambda m, now: 0.01 / m,
        lambda m, now: 0.01 / m * (1 + (now > 5)),  # becomes half as fast
        lambda m, now: 0.02 / m / (1 + (now > 3)),  # twice as fast
        lambda m, now: 0.01 / m * (1.5 if int(now) % 2 else 0.5),
    ],
)
def test_a_run_ends_with_its_budget(machine: MakeMachine, step: Callable[[int, float], float]) -> None:
    clock = machine(step)
    result = make(NARROW).fit(GRAPH, budget=10.0, progress=False)
    assert 9 <= clock.now <= 11
    assert result.history[-1]["lr"] < 0.1 * LR, "the rate falls to the end, which moves with the time"
    lengths = [phase["epochs"] for phase in phases_of(result)]
    assert lengths[:-1] == [lengths[0] * 2**k for k in range(len(lengths) - 1)]  # cycles double
    assert result.history[-1]["epoch"] == pytest.approx(sum(lengths))


def test_what_was_taken_can_be_repeated_as_phases(machine: MakeMachine) -> None:
    machine(lambda m, _: 0.01 / m)
    one, other = make(NARROW), make(NARROW)
    first = one.fit(GRAPH, budget=2.0, progress=False)
    second = other.fit(GRAPH, Training.from_dict(first.budget["training"]), progress=False)  # type: ignore[index]
    assert second.history[-1]["test"] == first.history[-1]["test"]
    assert second.budget is None


def test_a_resumed_run_keeps_its_phases_and_its_budget(machine: MakeMachine, tmp_path: Path) -> None:
    clock = machine(lambda m, _: 0.01 / m)
    cut = make(NARROW).fit(
        GRAPH, budget=10.0, progress=False, saving=Saving(tmp_path / "c", every=1), callbacks=after(8)
    )
    assert cut.interrupted
    used, clock.now = clock.now, 1000.0
    rest = make(NARROW).fit(GRAPH, budget=10.0, progress=False, saving=Saving(tmp_path / "c", resume=True))
    assert [phase["sub_gcns"] for phase in phases_of(rest)] == [phase["sub_gcns"] for phase in phases_of(cut)]
    assert len(rest.history) > len(cut.history)
    assert rest.history[: len(cut.history)] == cut.history
    assert used < 10 < 1000 < clock.now
