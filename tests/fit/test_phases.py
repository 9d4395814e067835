"""Runs in phases: the same Θ in every store, and resumed at every round."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, Saving
from gistgnn.baselines.registry import METHODS
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.sampling import ClusterSampling, LadiesSampling, Sampling
from gistgnn.settings import Phase, Training
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.phases import FEWER, REDRAWN, ROUNDS, WIDTHS, fit, make
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, state
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
    [
        ("full", FEWER, {}),
        ("full", FEWER, OTHER),
        ("shared clusters", REDRAWN, OTHER),
        ("independent clusters", FEWER, {}),
        ("layers", FEWER, {}),
    ],
)
def test_the_stores_agree(tmp_path: Path, sampler: str, phases: tuple[Phase, ...], options: dict[str, Any]) -> None:
    results = {}
    for kind in ("memory", "host", "disk") if sampler == "full" else ("memory", "disk"):
        gist = make(store=store(kind, tmp_path))
        results[kind] = state(gist, fit(gist, phases, sampler=SAMPLERS[sampler], **options))
    assert all(found == results["memory"] for found in results.values())


@pytest.mark.parametrize(
    ("sampler", "phases", "kept"),
    [
        ("full", FEWER, "reset"),
        ("full", REDRAWN, "carry"),
        ("shared clusters", FEWER, "carry"),
        ("layers", FEWER, "reset"),
    ],
)
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


# Resuming.

WAYS: dict[str, dict[str, Any]] = {
    "memory": {},
    "carry": {"optimizer_state": "carry", "optimizer": "sgd", "momentum": 0.9},
    "disk": {"store": "disk"},
    "fused": {"runner": "fused", "optimizer_state": "carry"},
}


def run(way: str, folder: Path, **options: Any) -> dict[str, Any]:
    own = {**WAYS[way], **options}
    gist = make(store=store(own.pop("store", "memory"), folder))
    return state(gist, fit(gist, evaluate_every=2, **own))


@cache
def unbroken(way: str) -> dict[str, Any]:
    return run("memory" if way == "disk" else way, Path())


@pytest.mark.parametrize(("way", "stops"), [*((way, [1] * (ROUNDS - 1)) for way in WAYS), ("disk", [2, 4])])
def test_a_run_that_is_stopped_goes_on(tmp_path: Path, way: str, stops: list[int]) -> None:
    """After every round, or in the middle of some phases."""
    saving = Saving(tmp_path / "checkpoints", resume=True)
    for rounds in stops:
        run(way, tmp_path, saving=saving, callbacks=after(rounds))
    assert run(way, tmp_path, saving=saving) == unbroken(way)


def test_a_checkpoint_of_other_phases_is_refused(tmp_path: Path) -> None:
    saving = Saving(tmp_path, resume=True)
    fit(make(), saving=saving, callbacks=after(2))
    for phases in (FEWER[:-1], (*FEWER[:-1], Phase(1, 4)), REDRAWN):
        with refused("of another run"):
            fit(make(), phases, saving=saving)
    with refused("of another run", "redraw_every was None, now 3"):
        fit(make(), redraw_every=3, saving=saving)
    assert fit(make(), saving=saving).progress.rounds == ROUNDS


# What is refused.


def test_settings_out_of_range_are_refused() -> None:
    phases: dict[str, dict[str, Any]] = {
        "sub_gcns is 0": {"sub_gcns": 0},
        "sub_gcns is '8'": {"sub_gcns": "8"},
        "epochs is 0": {"epochs": 0},
        "epochs is nan": {"epochs": math.nan},
        "redraw_every is -1": {"redraw_every": -1},
        "redraw_every is 2 in a phase of copies, which keep their blocks: use 0": {"redraw_every": 2, "copies": True},
    }
    for said, own in phases.items():
        with refused(said):
            Phase(**{"sub_gcns": 2, "epochs": 1, **own})
    copies, zero = Phase(4, 1, copies=True), {"cross_weights": "zero"}
    settings: dict[str, dict[str, Any]] = {
        "lr is -0.1": {"phases": [Phase(2, 1, lr=-0.1)]},
        "schedule is 'linear', expected one of constant, step, cosine": {"phases": [Phase(2, 1, schedule="linear")]},
        "redraw_every is 0.5": {"epochs": 1, "redraw_every": 0.5},
        "cross_weights is 'none', expected one of random, zero": {"epochs": 1, "cross_weights": "none"},
        "epochs is 5, but the phases have 3": {"epochs": 5, "phases": [Phase(2, 3)]},
        "epochs is 0": {"phases": ()},
        "phases is [8], expected a list of Phase": {"phases": [8]},
        "phases is Phase(": {"phases": Phase(2, 1)},
        "cross_weights is 'random', but a phase has copies: use zero": {"phases": [copies]},
        "4 and 6 sub-GCNs, but the blocks are kept": {"phases": [Phase(4, 1), Phase(6, 1, redraw_every=0)]},
        "8 and 6 sub-GCNs": {"phases": [Phase(8, 1), Phase(2, 1), Phase(6, 1)], "redraw_every": 0},
        "a phase of 4 copies comes after one of 4 sub-GCNs": {"phases": [Phase(4, 1), copies], **zero},
        "a phase of 4 copies comes after one of 2 copies": {"phases": [Phase(2, 1, copies=True), copies], **zero},
    }
    for said, own in settings.items():
        with refused(said):
            Training(**own)


def test_phases_that_do_not_fit_the_model_are_refused() -> None:
    with refused("sub_gcns is 9", "8 features of axis 0"):
        fit(make(), (Phase(4, 1), Phase(9, 1)))
    with refused("8 features of axis 0 do not make 3 equal blocks", "copies"):
        fit(make(), (Phase(3, 1, copies=True),))
    with refused("the partition is categorical, but the phases differ in m"):
        fit(make(partition="categorical"), (Phase(2, 1), Phase(1, 1)))
    with refused("the partition is categorical, but copies need equal blocks"):
        fit(make(partition="categorical"), (Phase(2, 1, copies=True),))


@pytest.mark.parametrize("method", ["local-sgd", "data-parallel", "ensemble"])
def test_phases_are_refused_by_what_gist_is_compared_with(method: str) -> None:
    for name, value in (("phases", (Phase(2, 2),)), ("redraw_every", 2), ("cross_weights", "zero")):
        gist = METHODS[method].load()(OURS["gcn"], WIDTHS, 2)
        settings: dict[str, Any] = {"epochs": 2, name: value}
        with refused(f"{name} is given, but the method is {method}: use gist"):
            gist.fit(tiny_graph(), Training(**settings), sampler=SAMPLERS["shared clusters"], progress=False)
