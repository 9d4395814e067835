"""How Θ begins.

At random as in the paper, or with the scale of narrow models where it is their mean.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.storage import tensors
from tests.helpers.fitting import same
from tests.helpers.models import OURS, C, F
from tests.theta.stores import store, values


def begun(gist: GIST, *, averages: bool = True) -> GIST:
    gist.begin_run(averages=averages)
    return gist


@pytest.mark.parametrize("m", [2, 8])
def test_the_sub_gcns_begin_with_the_scale_of_narrow_models(m: int) -> None:
    gist = begun(GIST(OURS["graphsage"], (256, 256), m, seed=1, width_scaling="none"))
    sub = gist.begin_round().subs[0]
    narrow = OURS["graphsage"]((256 // m, 256 // m))
    for name in ("convs.1.weight", "convs.2.weight"):
        actual, expected = (
            float(model.get_parameter(name).detach().std()) for model in (sub, narrow)
        )
        # With the scale of the full model it would be smaller by a factor of √m.
        assert actual == pytest.approx(expected, rel=0.2), name


def test_without_a_mean_theta_begins_as_in_the_paper() -> None:
    """With the values of the seed for the full model, also after a run of another kind."""
    gist = GIST(OURS["gcn"], (8, 8), 4)
    torch.manual_seed(9)
    expected = values(GIST(OURS["gcn"], (8, 8), 1).theta)
    assert same(values(gist.theta), expected)
    assert not same(values(begun(gist).theta), expected)
    assert same(values(begun(gist, averages=False).theta), expected)
    assert same(values(begun(GIST(OURS["gcn"], (8, 8), 4), averages=False).theta), expected)
    assert same(
        values(begun(gist).theta), values(GIST(OURS["gcn"], (8, 8), 4, regression=True).theta)
    )


class Masked(nn.Module):
    """Has buffers along two split axes: of numbers, of integers and of flags."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        d1, d2 = widths
        self.enter = nn.Linear(F, d1)
        self.out = nn.Linear(d2, C)
        self.register_buffer("mix", torch.randn(d2, d1))
        self.register_buffer("mask", torch.ones(d2, d1, dtype=torch.bool))
        self.register_buffer("times", torch.ones(d2, d1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.enter(x).relu() @ (self.mix * self.mask * self.times).t()).relu())


def test_buffers_between_blocks_are_scaled_like_weights() -> None:
    gist = begun(GIST(Masked, (64, 64), 2))
    sub = gist.begin_round().subs[0]
    for buffers in (values(gist.theta), dict(sub.named_buffers())):
        assert buffers["mask"].all()
        assert (buffers["times"] == 1).all()
    assert float(sub.mix.std()) == pytest.approx(2**0.5, rel=0.1)


@pytest.mark.parametrize("averages", [False, True])
@pytest.mark.parametrize("model", ["gcn", "masked"])
def test_theta_begins_alike_in_every_store(
    model: str, averages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "LARGE", 1)

    def theta_in(kind: str) -> dict[str, Tensor]:
        gist = GIST(BUILDS[model], (8, 9), 2, store=store(kind, tmp_path))
        return values(begun(gist, averages=averages).theta)

    expected = theta_in("memory")
    assert same(theta_in("host"), expected)
    assert same(theta_in("disk"), expected)
    # The lock of the folder is gone with the GIST that held it.
    assert [path.name for path in tmp_path.iterdir()] == ["theta"]


BUILDS: dict[str, Any] = {"gcn": OURS["gcn"], "masked": Masked}
