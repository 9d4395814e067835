"""Runs in phases: the same Θ in every store and by every runner, and the moments between rounds."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.sampling import ClusterSampling, LadiesSampling, Sampling
from gistgnn.settings import Phase
from tests.helpers.phases import FEWER, REDRAWN, ROUNDS, fit, make
from tests.helpers.resuming import state
from tests.theta.stores import store, values

# Every way of training.

SAMPLERS: dict[str, Sampling | None] = {
    "full": None,
    "shared clusters": ClusterSampling(4, 2, "random"),
    "independent clusters": ClusterSampling(4, 2, "random", batches="independent"),
    "layers": LadiesSampling(8, (6, 6, 6)),
}


OTHER: dict[str, Any] = {"precision": "bf16", "clip_norm": 0.5, "optimizer_state": "carry"}


@pytest.mark.parametrize(
    ("sampler", "phases", "options"),
    [("full", FEWER, OTHER), ("shared clusters", REDRAWN, OTHER), ("independent clusters", FEWER, {})],
)
def test_the_stores_agree(tmp_path: Path, sampler: str, phases: tuple[Phase, ...], options: dict[str, Any]) -> None:
    results = {}
    for kind in ("memory", "host", "disk") if sampler == "full" else ("memory", "disk"):
        gist = make(store=store(kind, tmp_path))
        results[kind] = state(gist, fit(gist, phases, sampler=SAMPLERS[sampler], **options))
    assert all(found == results["memory"] for found in results.values())


@pytest.mark.parametrize(("sampler", "phases", "kept"), [("full", REDRAWN, "carry"), ("layers", FEWER, "reset")])
def test_the_fused_runner_gives_the_same(sampler: str, phases: tuple[Phase, ...], kept: str) -> None:
    """But for rounding; Adam makes a large step of a gradient that is zero but for rounding."""
    found = []
    for runner in ("in-turn", "fused"):
        gist = make(dropout=0.0, norm="none", model="graphsage")
        options: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": kept}
        fit(gist, phases, runner=runner, sampler=SAMPLERS[sampler], **options)
        found.append(values(gist.theta))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


# The history.


def test_the_history_goes_through_the_phases() -> None:
    history = fit(make()).history
    assert [entry["round"] for entry in history] == list(range(1, ROUNDS + 1))
    assert [entry["step"] for entry in history] == [2, 4, 6, 8, 9, 11, 13, 15, 16]
    assert [entry["epoch"] for entry in history] == pytest.approx([2, 4, 6, 14, 18, 22, 26, 28, 29])
    cosine = [0.5 * 0.05 * (1 + math.cos(math.pi * progress)) for progress in (0.25, 0.75)]
    assert [entry["lr"] for entry in history] == pytest.approx([0.05] * 3 + [0.02] * 2 + cosine + [0.01] * 2)


# Moments.


Tensors = dict[str, torch.Tensor]


def moments(folder: Path, kind: str, phases: tuple[Phase, ...] = FEWER, **options: Any) -> tuple[GIST, list[Tensors]]:
    """Those that Θ holds after every round."""
    gist = make(store=store(kind, folder))
    found: list[Tensors] = []

    def look() -> None:
        found.append({name: tensor for name, tensor in values(gist.theta).items() if "/" in name})

    rounds = fit(gist, phases, callbacks=[InterruptWhen(look)], **options).progress.rounds
    return gist, found[-rounds:]


def ages(own: Tensors) -> set[float]:
    """The step counts of the optimisers."""
    return {float(count) for name, count in own.items() if name.endswith("/step")}


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_moments_last_as_long_as_the_blocks(tmp_path: Path, kind: str) -> None:
    """Every phase, and every draw in a phase, begins anew."""
    _, found = moments(tmp_path, kind)
    assert list(map(ages, found)) == [{2}, {4}, {6}, {2}, {3}, {2}, {4}, {2}, {3}]


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("kept", ["reset", "carry"])
def test_a_phase_begins_without_the_moments_of_the_one_before(tmp_path: Path, kind: str, kept: str) -> None:
    """Entries that no sub-GCN of a phase has held have no moments, though those of an earlier phase held them."""
    phases = (Phase(2, 8, redraw_every=0), Phase(4, 16, redraw_every=1))
    gist, found = moments(tmp_path, kind, phases, cross_weights="random", optimizer_state=kept)
    assert list(map(ages, found)) == [{2}, {4}, {2}, {4}] if kept == "carry" else [{2}, {4}, set(), set()]
    if kept == "reset":
        return
    for after_rounds, draws in ((2, [1]), (3, [1, 2])):
        squares = found[after_rounds]["convs.1.weight/exp_avg_sq"].clone()
        assert squares.count_nonzero()
        for blocks in (each for draw in draws for each in gist.partition.split_into(4).blocks(draw)):
            squares[torch.meshgrid(blocks[1], blocks[0], indexing="ij")] = 0
        assert not squares.count_nonzero()
