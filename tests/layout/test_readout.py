"""Which parameters are divided by m.

`tests/theta/test_mean.py` shows that the full model then is the mean.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn.layout.check import infer_layout
from gistgnn.layout.readout import cross_tensors, find_readout
from gistgnn.nn import GraphSAGE
from tests.helpers.models import C, F, Stack, every_model, layout_of
from tests.helpers.refusals import refused

# Its out.weight takes x, of which there is one, and h1 and h2, of which there are m.
MIXED = every_model()["jumping over x"]


def readout_of(
    build: Callable[[Any], nn.Module],
    widths: Any,
    split: Collection[int] = (0, 1, 2),
    input_axis: int | None = None,
) -> frozenset[str]:
    shared = isinstance(widths, int)
    axes = (widths,) if shared else widths
    layout = infer_layout(build, axes, shared=shared, input_axis=input_axis)
    return find_readout(build, axes, layout, split)


@pytest.mark.parametrize(("split", "name"), [((0, 1), "convs.1.weight"), ((0,), "convs.0.weight")])
def test_the_layer_that_sums_over_split_features_is_divided(
    split: Collection[int], name: str
) -> None:
    readout = readout_of(
        lambda widths: GraphSAGE(widths[0], widths[1:], C), (9, 8), split, input_axis=0
    )
    assert readout == {name}


class InOut(nn.Module):
    """Weights [in, out], as many write them.

    Without ``bias``, all that ReLU gets is homogeneous.
    """

    def __init__(self, widths: Sequence[int], bias: bool = True) -> None:
        super().__init__()
        self.enter = nn.Parameter(torch.empty(F, widths[0]))
        self.bias = nn.Parameter(torch.empty(widths[0])) if bias else 0
        self.leave = nn.Parameter(torch.empty(widths[0], C))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.enter + self.bias).relu() @ self.leave


class Pooled(InOut):
    """Sums over the features with a vector of one dimension; the mean needs no factor."""

    def __init__(self, widths: Sequence[int], mean: bool = False) -> None:
        super().__init__(widths)
        self.vector = nn.Parameter(torch.empty(widths[0]))
        self.mean = mean
        self.leave = nn.Parameter(torch.empty(1, C))

    def forward(self, x: Tensor) -> Tensor:
        h = (x @ self.enter + self.bias).relu() * self.vector
        return (h.mean(1, keepdim=True) if self.mean else h.sum(1, keepdim=True)) @ self.leave


class GCN2(nn.Module):
    """Layers that add the first features, with a weight [in, out] along the shared axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(F, width)
        self.leave = nn.Linear(width, C)
        self.convs = nn.ModuleList(pyg.GCN2Conv(width, 0.1, 0.5, layer) for layer in (1, 2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = h = self.enter(x).relu()
        for conv in self.convs:
            h = conv(h, first, edge_index).relu()
        return self.leave(h)


def hidden(between: Callable[[Tensor], Tensor]) -> Callable[[Any], nn.Module]:
    class Between(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return between(h)

    return lambda w: nn.Sequential(nn.Linear(F, w[0]), nn.Tanh(), Between(), nn.Linear(w[0], C))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (InOut, {"leave"}),
        # To divide "enter" would give the same output, but other features.
        (partial(InOut, bias=False), {"leave"}),
        (Pooled, {"vector"}),
        (partial(Pooled, mean=True), set()),
        (hidden(lambda h: h * h.softmax(dim=1)), set()),  # half as large, and summed twice
        (
            lambda w: Stack(w, partial(pyg.ARMAConv, num_stacks=2)),
            {"convs.1.init_weight", "convs.1.root_weight"},
        ),
        (lambda w: GCN2(w[0]), {"leave.weight"}),
    ],
)
def test_the_readout_is_seen_where_weights_do_not_end_in_the_input(
    build: Callable[[Any], nn.Module], expected: set[str]
) -> None:
    assert readout_of(build, (8,)) == expected


class FixedReadout(InOut):
    """The output layer does not train, so that there is no parameter to divide."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(widths)
        del self.leave
        self.register_buffer("leave", torch.randn(widths[0], C))


@pytest.mark.parametrize(
    "build",
    [
        hidden(lambda h: h * h.exp().sum(dim=1, keepdim=True)),
        hidden(lambda h: h - h.sum(dim=1, keepdim=True)),
        hidden(lambda h: nn.functional.normalize(h, dim=1)),
        FixedReadout,
        lambda w: Stack(w, pyg.TransformerConv),  # the scores' root of the width
        MIXED[0],
    ],
)
def test_a_model_that_is_no_mean_is_refused(build: Callable[[Any], nn.Module]) -> None:
    widths = (6, 9) if build is MIXED[0] else (8,)
    with refused(f"build({widths})", "mean of its sub-GCNs", "sub_gcns=1"):
        readout_of(build, widths)


def test_a_model_that_fails_at_a_larger_width_is_refused() -> None:
    class Narrow(InOut):
        def forward(self, x: Tensor) -> Tensor:
            if len(self.bias) > 9:
                raise RuntimeError("too\nwide")
            return super().forward(x)

    with refused("widths (10,)", "RuntimeError: too wide"):
        readout_of(Narrow, (8,))


def test_cross_tensors_lie_between_split_layers() -> None:
    layout = layout_of("gcn batch 3")
    assert cross_tensors(layout, (0, 1, 2)) == {"convs.1.weight", "convs.2.weight"}
    assert cross_tensors(layout, (1, 2)) == {"convs.2.weight"}
    assert cross_tensors(layout, (0, 2)) == cross_tensors(layout, ()) == set()
    assert cross_tensors(infer_layout(GCN2, (8,), shared=True), (0,)) == {
        "convs.0.weight1",
        "convs.1.weight1",
    }
