"""How Θ begins: at random as in the paper, with the scale of narrow models, or as narrow models side by side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.layout.axes import named_tensors
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.settings import Phase, Training
from gistgnn.storage import tensors
from tests.helpers.fitting import same
from tests.helpers.models import OURS, C, F
from tests.helpers.reference import held_positions
from tests.theta.stores import store, values


def training(m: int, kind: str, *, copies: bool = False) -> Training:
    return Training(phases=(Phase(m, 4, copies=copies, redraw_every=0), Phase(1, 1)), cross_weights=kind)


def first(training: Training) -> RoundPlan:
    return Schedule(training, 1, 1).plan(0)


def begun(gist: GIST, training: Training) -> GIST:
    gist._begin_run(training, first(training), resumed=False)
    return gist


def between(gist: GIST, name: str, plan: RoundPlan) -> Tensor:
    """The entries of a tensor that no sub-GCN holds."""
    tensor = values(gist.theta)[name]
    outside = torch.ones_like(tensor, dtype=torch.bool)
    for blocks in gist._partition_of(plan).blocks(plan.draw):
        rows = [held_positions(dim, blocks, gist.theta.place.slices.features) for dim in gist.layout.dims[name]]
        outside[torch.meshgrid(*map(torch.tensor, rows), indexing="ij")] = False
    return tensor[outside]


@pytest.mark.parametrize(("model", "copies"), [("gcn", False), ("gat", True)])
def test_zero_cross_weights_make_narrow_models_side_by_side(model: str, copies: bool) -> None:
    own = training(4, "zero", copies=copies)
    gist = begun(GIST(lambda w: OURS[model](w, norm="batch"), (8, 12), 4, seed=3), own)
    assert (gist.next_round, gist.theta.place.round) == (0, 0)
    for name in ("convs.0.weight", "convs.1.weight"):
        assert not between(gist, name, first(own)).count_nonzero()
    subs = gist.begin_round(replace(first(own), copies=False)).subs
    narrow = [
        replace(gist._full_spec, widths=(2, 3), stream=(0 if copies else i,)).initial_tensors()
        for i in range(len(subs))
    ]
    assert not torch.equal(narrow[0]["convs.0.weight"], narrow[1]["convs.0.weight"]) or copies
    for i, sub in enumerate(subs):
        for name, tensor in named_tensors(sub).items():
            expected = narrow[i][name]
            if (
                tensor.is_floating_point() and tensor.shape == gist.theta.specs[name].shape
            ):  # all hold it, so Θ has the mean
                expected = sum(each[name] for each in narrow) / 4
            torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "m"), [("random", 8), ("zero", 2)])
def test_the_sub_gcns_begin_with_the_scale_of_narrow_models(kind: str, m: int) -> None:
    gist = begun(GIST(OURS["graphsage"], (256, 256), m, seed=1, width_scaling="none"), training(m, kind))
    sub, narrow = gist.begin_round(first(training(m, kind))).subs[0], OURS["graphsage"]((256 // m, 256 // m))
    for name in ("convs.1.weight", "convs.2.weight"):
        found, expected = (float(model.get_parameter(name).detach().std()) for model in (sub, narrow))
        assert found == pytest.approx(expected, rel=0.3), name


def test_without_phases_theta_begins_as_in_the_paper() -> None:
    gist = GIST(OURS["gcn"], (8, 8), 4)
    plain = values(gist.theta)
    begun(gist, training(4, "zero"))
    assert not same(values(gist.theta), plain)
    assert same(values(begun(GIST(OURS["gcn"], (8, 8), 4), Training(4)).theta), plain)


class Masked(nn.Module):
    """Has buffers along two split axes: of numbers, of integers and of flags."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        d1, d2 = widths
        self.enter, self.out = nn.Linear(F, d1), nn.Linear(d2, C)
        self.register_buffer("mix", torch.randn(d2, d1))
        self.register_buffer("mask", torch.ones(d2, d1, dtype=torch.bool))
        self.register_buffer("times", torch.ones(d2, d1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.enter(x).relu() @ (self.mix * self.mask * self.times).t()).relu())


@pytest.mark.parametrize("kind", ["random", "zero"])
def test_buffers_between_blocks_are_scaled_like_weights(kind: str) -> None:
    own = training(2, kind)
    gist = begun(GIST(Masked, (8, 8), 2), own)
    assert bool(between(gist, "mix", first(own)).count_nonzero()) == (kind == "random")
    sub = gist.begin_round(first(own)).subs[0]
    for found in (values(gist.theta), dict(sub.named_buffers())):
        assert found["mask"].all()
        assert (found["times"] == 1).all()
    assert float(sub.mix.std()) == pytest.approx(2**0.5 if kind == "random" else 1, rel=0.5)


@pytest.mark.parametrize(("model", "kind"), [("gcn", "zero"), ("masked", "random")])
def test_theta_begins_alike_everywhere(model: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "LARGE", 1)
    memory, host, disk = (
        values(begun(GIST(BUILDS[model], (8, 9), 2, store=store(place, tmp_path)), training(2, kind)).theta)
        for place in ("memory", "host", "disk")
    )
    assert same(memory, host)
    assert same(memory, disk)
    assert [path.name for path in tmp_path.iterdir()] == ["theta"]


BUILDS: dict[str, Any] = {"gcn": OURS["gcn"], "masked": Masked}
