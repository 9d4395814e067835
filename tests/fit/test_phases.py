"""Runs in phases: their history, by every runner, and the moments between rounds. `test_resume` has the stores."""

import math
from typing import Any

import pytest
import torch

from gistgnn import GIST
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.sampling import LadiesSampling, Sampling
from gistgnn.settings import Phase
from tests.helpers.phases import FEWER, REDRAWN, ROUNDS, fit, make
from tests.theta.stores import values


@pytest.mark.parametrize(
    ("sampler", "phases", "kept"), [(None, REDRAWN, "carry"), (LadiesSampling(8, (6, 6, 6)), FEWER, "reset")]
)
def test_the_fused_runner_gives_the_same(sampler: Sampling | None, phases: tuple[Phase, ...], kept: str) -> None:
    """But for rounding; Adam makes a large step of a gradient that is zero but for rounding."""
    found = []
    for runner in ("in-turn", "fused"):
        gist = make(dropout=0.0, norm="none", model="graphsage")
        options: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": kept}
        fit(gist, phases, runner=runner, sampler=sampler, **options)
        found.append(values(gist.theta))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


def test_the_history_goes_through_the_phases() -> None:
    history = fit(make()).history
    assert [entry["round"] for entry in history] == list(range(1, ROUNDS + 1))
    assert [entry["step"] for entry in history] == [2, 4, 6, 8, 9, 11, 13, 15, 16]
    assert [entry["epoch"] for entry in history] == pytest.approx([2, 4, 6, 14, 18, 22, 26, 28, 29])
    cosine = [0.5 * 0.05 * (1 + math.cos(math.pi * progress)) for progress in (0.25, 0.75)]
    assert [entry["lr"] for entry in history] == pytest.approx([0.05] * 3 + [0.02] * 2 + cosine + [0.01] * 2)


Tensors = dict[str, torch.Tensor]


def moments(phases: tuple[Phase, ...] = FEWER, **options: Any) -> tuple[GIST, list[Tensors]]:
    """Those that Θ holds after every round."""
    gist, found = make(), list[Tensors]()

    def look() -> None:
        found.append({name: tensor for name, tensor in values(gist.theta).items() if "/" in name})

    rounds = fit(gist, phases, callbacks=[InterruptWhen(look)], **options).progress.rounds
    return gist, found[-rounds:]


def ages(own: Tensors) -> set[float]:
    """The step counts of the optimisers."""
    return {float(count) for name, count in own.items() if name.endswith("/step")}


def test_moments_last_as_long_as_the_blocks() -> None:
    """Every phase, and every draw in a phase, begins anew."""
    assert list(map(ages, moments()[1])) == [{2}, {4}, {6}, {2}, {3}, {2}, {4}, {2}, {3}]


def test_a_phase_begins_without_the_moments_of_the_one_before() -> None:
    """Entries that no sub-GCN of a phase has held have no moments, though those of an earlier phase held them."""
    phases = (Phase(2, 8, redraw_every=0), Phase(4, 16, redraw_every=1))
    assert list(map(ages, moments(phases, cross_weights="random")[1])) == [{2}, {4}, set(), set()]
    gist, found = moments(phases, cross_weights="random", optimizer_state="carry")
    assert list(map(ages, found)) == [{2}, {4}, {2}, {4}]
    for after_rounds, draws in ((2, [1]), (3, [1, 2])):
        squares = found[after_rounds]["convs.1.weight/exp_avg_sq"].clone()
        assert squares.count_nonzero()
        for blocks in (each for draw in draws for each in gist.partition.split_into(4).blocks(draw)):
            squares[torch.meshgrid(blocks[1], blocks[0], indexing="ij")] = 0
        assert not squares.count_nonzero()
