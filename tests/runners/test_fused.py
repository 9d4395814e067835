"""The fused runner does what the in-turn runner does, where it can.

Elsewhere it trains in turn, and says so.
"""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gistgnn import GIST
from gistgnn.graphs.clustering import cluster
from gistgnn.nn import MODELS
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import (
    Batch,
    ClusterBatches,
    FullGraph,
    NeighborSampling,
    Sampler,
    whole_graph,
)
from gistgnn.settings import Training
from tests.helpers.logs import logged
from tests.helpers.models import OURS, PYG, USERS, C, Case, F, some_models, tiny_graph

from .comparing import DOUBLE, FULL, SGD, WHOLE, in_double, of_inputs, runners_agree, trained

FEW = Batch(DOUBLE.x, DOUBLE.edges, DOUBLE.y, DOUBLE.loss_nodes[:2])
BAGS = functional.one_hot(WHOLE.y % C, F).double() * (WHOLE.x > 1.5)  # few of them not zero
SAMPLERS: dict[str, Sampler] = {
    "full": FullGraph(DOUBLE),
    "clusters": ClusterBatches(DOUBLE, cluster(WHOLE.edge_index, 24, 6, "random"), 3),
    "some without training nodes": ClusterBatches(
        FEW, cluster(WHOLE.edge_index, 24, 4, "random"), 1
    ),
    "sparse": FullGraph(Batch(BAGS, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes)),
    "multi-label": FullGraph(in_double(whole_graph(tiny_graph(multi_label=True)))),
}


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    return Training(
        9,
        optimizer="sgd",
        lr=0.1,
        momentum=draw(st.sampled_from([0.0, 0.9])),
        weight_decay=draw(st.sampled_from([0.0, 0.1])),
        clip_norm=draw(st.sampled_from([None, 0.05])),
        optimizer_state=draw(st.sampled_from(["reset", "carry"])),
        schedule=draw(st.sampled_from(["constant", "step"])),
    )


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(list(OURS)),
    norm=st.sampled_from(["none", "layer", "batch"]),
    widths=st.lists(st.integers(4, 9), min_size=1, max_size=2).map(tuple),
    m=st.integers(1, 4),
    steps=st.integers(1, 3),
    sampler=st.sampled_from([*SAMPLERS, "neighbor"]),
    training=trainings(),
    whole_axes=st.sampled_from([(), (0,)]),
)
@example("gin", "batch", (7, 4), 4, 1, "clusters", SGD, ())  # equal values
def test_the_fused_runner_equals_the_in_turn_runner(
    name: str,
    norm: str,
    widths: tuple[int, ...],
    m: int,
    steps: int,
    sampler: str,
    training: Training,
    whole_axes: tuple[int, ...],
) -> None:
    case: Case = partial(OURS[name], norm=norm), widths
    by_layers = NeighborSampling(2, batch_size=8).sampler(DOUBLE, 0, layers=len(widths) + 1)
    chosen = SAMPLERS.get(sampler, by_layers)
    assert runners_agree(case, m, chosen, training, steps, whole=whole_axes) == []


class Plain(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter = nn.Linear(F, widths[0])
        self.out = nn.Linear(widths[0], C)


class Frozen(Plain):
    """A first layer that is not trained, and a number of its own for all sub-GCNs."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__(widths)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.enter.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.enter(x).relu()) * self.scale


class Counting(Plain):
    """Puts a new tensor in its buffer's place at every call, instead of changing the old one."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__(widths)
        self.register_buffer("mean", torch.zeros(widths[0]))

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x).relu()
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(dim=0)
        return self.out(h - self.mean)


MOMENTUM: dict[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0.9,
    "optimizer_state": "carry",
    "clip_norm": 1.0,
}
# For models in which no norm follows a bias, so that every gradient is above rounding.
ADAM = {"weight_decay": 0.1, "optimizer_state": "carry"}
OTHERS: list[tuple[Case, dict[str, Any]]] = [
    *(
        (some_models()[name], MOMENTUM)
        for name in ("pyg gcn layer_norm cat", "pyg gin batch_norm None", *USERS)
    ),
    ((OURS["graphsage"], (9, 7)), {"optimizer": "adam", **ADAM}),
    ((PYG["gin"], 12), {"optimizer": "adamw", **ADAM}),
    ((Frozen, (9,)), {"optimizer": "sgd", "weight_decay": 0.1}),
    ((Counting, (9,)), {"optimizer": "sgd"}),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("case", "options"), OTHERS)
def test_the_fused_runner_equals_the_in_turn_runner_for_other_models(
    case: Case, options: dict[str, Any]
) -> None:
    assert runners_agree(case, 3, SAMPLERS["full"], Training(9, lr=0.05, **options)) == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_the_fused_runner_equals_the_in_turn_runner_where_classes_are_many(
    name: str, norm: str
) -> None:
    """The output layer then leaves out nodes without a loss."""
    case: Case = lambda widths: MODELS[name](F, widths, 60, norm=norm), (8, 6)
    assert runners_agree(case, 2, SAMPLERS["clusters"], SGD) == []


class Branching(Plain):
    """What it does with the features depends on their values."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        return self.out(h.relu() if h.mean() > 0 else h.tanh())


class Noisy(Plain):
    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        if h.dtype == torch.float32 and h.device.type != "meta":
            h = h + torch.randn(len(h), 1)
        return self.out(h.relu())


CANNOT = "torch.func.vmap cannot run this model"
OTHER = "torch.func.vmap gives this model another output"
FALLING_BACK: list[tuple[Case, str]] = [
    ((Branching, (8,)), CANNOT),
    ((partial(PYG["gcn"], jk="lstm"), 8), CANNOT),
    ((Noisy, (8,)), OTHER),
]


@pytest.mark.parametrize(("case", "why"), FALLING_BACK)
def test_what_vmap_cannot_do_trains_in_turn(case: Case, why: str) -> None:
    gist = GIST(*case, 2)
    with logged() as notes:
        fused = trained(Fused(), gist, FULL, SGD)
    expected = trained(InTurn(), GIST(*case, 2), FULL, SGD)
    (note,) = notes  # of two rounds
    assert note.startswith(f"the sub-GCNs train in turn, not fused: {why}")
    assert "\n" not in note
    torch.testing.assert_close(fused, expected, rtol=0, atol=0)  # the check has left no trace


OWN = Training(9, optimizer=torch.optim.RAdam)
INDEPENDENT = ClusterBatches(
    DOUBLE, cluster(WHOLE.edge_index, 24, 6, "random"), 2
).with_independent_batches()


@pytest.mark.parametrize(
    ("case", "sampler", "training", "options", "why"),
    [
        ((OURS["gcn"], (8,)), INDEPENDENT, SGD, {}, "their batches are independent"),
        (
            (of_inputs, (F, 8)),
            FullGraph(DOUBLE),
            SGD,
            {"input_axis": 0},
            "the input features are partitioned",
        ),
        ((OURS["gcn"], (8,)), FullGraph(DOUBLE), OWN, {}, "the optimizer is RAdam"),
    ],
)
def test_what_is_not_fused_trains_in_turn(
    case: Case, sampler: Sampler, training: Training, options: dict[str, Any], why: str
) -> None:
    (note,) = runners_agree(case, 2, sampler, training, **options)
    assert note.startswith(f"the sub-GCNs train in turn, not fused: {why}")
