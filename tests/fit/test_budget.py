"""Runs with a budget of time: what is chosen, and whether the time is kept. The clock of these tests is simulated."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gistgnn import GIST, Result, Saving, Training
from gistgnn.defaults import BUDGET_LR
from gistgnn.fit import budget
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.fit.fit import Fit
from gistgnn.graphs import Graph
from gistgnn.nn import GCN
from gistgnn.sampling import FullGraph, whole_graph
from tests.helpers.models import OURS, C, tiny_graph

GRAPH: Graph = tiny_graph()
WIDE, NARROW = 512, 32


def make(width: int = WIDE, **options: Any) -> GIST:
    return GIST(lambda w: OURS["gcn"](w, dropout=0.1), (width,), **options)


class Machine:
    """A machine on which a step takes the time that `step` says, whatever else goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: Callable[[int, float], float]) -> None:
        self.now, self.step = 0.0, step
        monkeypatch.setattr(budget, "NARROWEST", NARROW // 4)
        monkeypatch.setattr(budget.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(budget, "step_seconds", self.measured)
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


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, 4), (3, 4), (15, 2), (300, 1)])
def test_the_widest_part_with_enough_epochs_is_chosen(machine: MakeMachine, seconds: float, chosen: int) -> None:
    machine(lambda m, _: 0.04 / m**2)
    gist, training = make(NARROW), Training(budget=seconds)
    found = budget.choose(gist, FullGraph(whole_graph(GRAPH)), training, seconds)
    phases = found["training"]["phases"]
    assert {(phase["sub_gcns"], phase["copies"]) for phase in phases} == {(chosen, chosen > 1)}
    assert found["training"]["lr"] == training.lr
    assert f"m = {chosen}" in found["reason"] or "ordinary training" in found["reason"]


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
    assert result.history[-1]["lr"] < 0.1 * BUDGET_LR, "the rate falls to the end, which moves with the time"
    lengths = [phase["epochs"] for phase in phases_of(result)]
    assert lengths[:-1] == [lengths[0] * 2**k for k in range(len(lengths) - 1)], (
        "cycles double; the last takes the rest"
    )
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
    asked = iter(range(1, 1000))
    stop = [InterruptWhen(lambda: next(asked) == 8)]
    cut = make(NARROW).fit(GRAPH, budget=10.0, progress=False, saving=Saving(tmp_path / "c", every=1), callbacks=stop)
    assert cut.interrupted
    used, clock.now = clock.now, 1000.0
    rest = make(NARROW).fit(GRAPH, budget=10.0, progress=False, saving=Saving(tmp_path / "c", resume=True))
    assert [phase["sub_gcns"] for phase in phases_of(rest)] == [phase["sub_gcns"] for phase in phases_of(cut)]
    assert len(rest.history) > len(cut.history)
    assert rest.history[: len(cut.history)] == cut.history
    assert used < 10 < 1000 < clock.now
