"""What cannot be fused trains in turn, and says so."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import ClusterBatches, FullGraph
from gistgnn.schedule import StepRange
from tests.helpers.logs import logged
from tests.helpers.models import OURS, PYG, USERS, C, Case, F, tiny_graph

from .comparing import DOUBLE, FULL, SGD, WHOLE, runners_agree, trained


class Branching(nn.Module):
    """What it does with the features depends on their values."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        return self.out(h.relu() if h.mean() > 0 else h.tanh())


class Item(Branching):
    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        return self.out(h / h.norm().item())


class Nonzero(Branching):
    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        rows = (h > 0).all(dim=1).nonzero().squeeze(1)
        return self.out(h.index_add(0, rows, h[rows]))


class KeepsState(Branching):
    """Every call adds to a number that is no buffer."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.enter.weight.device.type != "meta" and self.enter.weight.dtype == torch.float32:
            self.calls += 1
        return self.out(self.enter(x).relu()) * (1 + self.calls)


class Noisy(Branching):
    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        noise = torch.randn(len(h), 1) if h.dtype == torch.float32 and h.device.type != "meta" else 0
        return self.out((h + noise).relu())


def cumulative(widths: tuple[int, ...]) -> nn.Module:
    model = USERS["features"][0](widths)
    model.norm = nn.BatchNorm1d(widths[0], momentum=None)  # asks its count of batches for a number
    return model


CANNOT, OTHER = "torch.func.vmap cannot run this model", "torch.func.vmap gives this model another output"
FALLING_BACK: dict[str, tuple[Case, str]] = {
    "a branch": ((Branching, (8,)), CANNOT),
    "item": ((Item, (8,)), CANNOT),
    "nonzero": ((Nonzero, (8,)), CANNOT),
    "a cumulative batch norm": ((cumulative, (8,)), CANNOT),
    "lstm": ((partial(PYG["gcn"], jk="lstm"), 8), CANNOT),
    "a count": ((KeepsState, (8,)), OTHER),
    "noise": ((Noisy, (8,)), OTHER),
}


@pytest.mark.parametrize(("case", "why"), FALLING_BACK.values(), ids=FALLING_BACK)
def test_what_vmap_cannot_do_trains_in_turn(case: Case, why: str) -> None:
    with logged() as notes:
        fused, losses = trained(Fused(), GIST(*case, 2), FULL, SGD)
    expected, own = trained(InTurn(), GIST(*case, 2), FULL, SGD)
    (note,) = notes  # of two rounds
    assert note.startswith(f"the sub-GCNs train in turn, not fused: {why}")
    assert "\n" not in note
    assert fused.keys() == expected.keys()
    assert all(torch.equal(fused[name], expected[name]) for name in expected)  # the check has left no trace
    assert losses == own


def test_batches_or_inputs_of_their_own_train_in_turn() -> None:
    independent = ClusterBatches(DOUBLE, cluster(WHOLE.edge_index, 24, 6, "random"), 2, independent=True)
    assert runners_agree((OURS["gcn"], (8,)), 2, independent, SGD) == [
        "the sub-GCNs train in turn, not fused: their batches are independent"
    ]
    case: Case = lambda w: type(OURS["gcn"]((4,)))(w[0], w[1:], C), (F, 8)
    assert runners_agree(case, 2, FullGraph(DOUBLE), SGD, input_axis=0) == [
        "the sub-GCNs train in turn, not fused: the input features are partitioned"
    ]


def test_fit_logs_it_once() -> None:
    options: dict[str, Any] = {"epochs": 12, "local_steps": 2, "runner": "fused", "progress": False}
    for case, times in ((FALLING_BACK["item"][0], 1), ((OURS["gcn"], (8,)), 0)):
        with logged() as notes:
            GIST(*case, 2).fit(tiny_graph(), **options)
        assert sum("the sub-GCNs train in turn, not fused" in note for note in notes) == times


@pytest.mark.parametrize("case", [(partial(OURS["gcn"], dropout=0.5, norm="batch"), (8, 7)), (Item, (8,))])
def test_the_check_leaves_modules_and_random_numbers_alone(case: Case) -> None:
    """A round of no step at all: what is left is what was there."""
    round_ = GIST(*case, 2).begin_round()
    before = [{name: t.clone() for name, t in named_tensors(sub).items()} for sub in round_]
    torch.manual_seed(3)
    stream = torch.get_rng_state()
    Fused()(round_, FULL, SGD, StepRange(0, 0, 9), 0)
    assert torch.equal(torch.get_rng_state(), stream)
    for sub, own in zip(round_, before, strict=True):
        assert all(torch.equal(t, own[name]) for name, t in named_tensors(sub).items())
        assert all(module.training for module in sub.modules())
        assert all(p.grad is None for p in sub.parameters())
