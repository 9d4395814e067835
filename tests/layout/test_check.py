from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.layout.axes import Layout
from gistgnn.layout.check import infer_layout
from gistgnn.layout.readout import find_readout
from gistgnn.nn import GraphSAGE
from tests.helpers.models import USERS, C, F, Stack, every_model, layout_of
from tests.helpers.refusals import refused


def infer(build: Callable[[Any], nn.Module], *widths: int, input_axis: int | None = None) -> Layout:
    return infer_layout(build, widths, shared=False, input_axis=input_axis)


@pytest.mark.parametrize("name", every_model())
def test_a_model_has_a_layout(name: str) -> None:
    layout = layout_of(name)
    assert layout.dims
    assert all(layout.carriers(axis) for axis in range(len(layout.units)))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_pyg_gat_heads(heads: int) -> None:
    layout = infer_layout(lambda w: pyg.models.GAT(F, w, 2, C, heads=heads), (16,), shared=True)
    assert layout.units == (heads,)


@pytest.mark.parametrize(
    "layer", [pyg.TransformerConv, pyg.GATv2Conv, pyg.GraphConv, pyg.TAGConv, pyg.ResGatedGraphConv]
)
def test_other_pyg_layers_need_no_rule(layer: type[nn.Module]) -> None:
    layout = infer(lambda w: Stack(w, layer), 8, 6)
    assert layout.units == (1, 1)


def test_input_axis() -> None:
    layout = infer(lambda w: GraphSAGE(w[0], w[1:], C), 9, 8, input_axis=0)
    assert layout.carriers(0) == ["convs.0.weight"]
    with refused("could not be called"):
        infer(lambda w: GraphSAGE(w[0], w[1:], C), 9, 8)  # d_0 is not a hidden axis


def test_weight_norm_and_tied_layers() -> None:
    class Tied(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.enter = nn.utils.parametrizations.weight_norm(nn.Linear(F, width))
            self.conv = pyg.GCNConv(width, width)
            self.out = nn.Linear(width, C)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv(self.enter(x).relu(), edge_index).relu()
            return self.out(self.conv(h, edge_index))

    assert len(infer_layout(Tied, (12,), shared=True).dims) == 7


def test_a_model_that_refuses_small_widths_is_tried_at_larger_ones() -> None:
    def build(widths: tuple[int, ...]) -> nn.Module:
        if widths[0] < 40:
            raise ValueError("too narrow")
        return USERS["features"][0](widths)

    assert infer(build, 64).units == (1,)


class Hidden(nn.Module):
    """One hidden layer, and a function of its features."""

    def __init__(self, widths: Sequence[int], between: Callable[[Tensor], Tensor], inner: int | None = None) -> None:
        super().__init__()
        self.enter = nn.Linear(F, widths[0] if inner is None else inner)
        self.leave = nn.Linear(widths[0] if inner is None else inner, C)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.between(self.enter(x).relu()))


@pytest.mark.parametrize(
    "between",
    [
        lambda h: torch.cat([2 * h[:, :2], h[:, 2:]], dim=1),
        lambda h: torch.cat([h[:, :1].tanh(), h[:, 1:]], dim=1),
        lambda h: h * torch.linspace(1, 2, h.shape[1], dtype=h.dtype),
        lambda h: h.cumsum(dim=1),
        lambda h: h.flip(1),
        lambda h: h + h.roll(1, dims=1),
        lambda h: h.sort(dim=1).values,
        lambda h: h.view(len(h), 2, -1).softmax(dim=2).view(len(h), -1) if h.shape[1] % 2 == 0 else h.cumsum(1),
    ],
    ids=["first two", "first", "by position", "cumsum", "flip", "neighbours", "sort", "groups"],
)
def test_features_that_depend_on_their_position_are_refused(between: Callable[[Tensor], Tensor]) -> None:
    with refused("parameter '", "weight'", "cannot be confirmed", "width 0"):
        infer(lambda w: Hidden(w, between), 12)


def test_heads_inside_the_features_are_refused() -> None:
    """[d, heads] where gistgnn looks for [heads, d]."""

    class Interleaved(nn.Module):
        def __init__(self, widths: Sequence[int]) -> None:
            super().__init__()
            self.enter = nn.Linear(F, 2 * widths[0])
            self.mix = nn.Parameter(torch.empty(widths[0], 2))
            self.leave = nn.Linear(widths[0], C)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave((self.enter(x).view(len(x), -1, 2).tanh() * self.mix).sum(2))

    with refused("cannot be confirmed", "'enter.weight'"):
        infer(Interleaved, 12)


@pytest.mark.parametrize("inner", [lambda d: min(d, 64), lambda d: max(d, 32), lambda d: -(-d // 16) * 16])
def test_a_size_that_stops_growing_with_the_width_is_refused(inner: Callable[[int], int]) -> None:
    """The full width does not show it, but a sub-GCN would not fit its slice."""

    def build(widths: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(
            nn.Linear(F, widths[0]),
            nn.ReLU(),
            nn.Linear(widths[0], inner(widths[0])),
            nn.ReLU(),
            nn.Linear(inner(widths[0]), C),
        )

    with refused("2.weight"):
        infer(build, 128)


def test_a_model_whose_output_does_not_depend_on_the_axis_is_refused() -> None:
    class Blind(Hidden):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :C] + 0 * super().forward(x)

    with refused("'enter.weight'", "does not depend"):
        infer(lambda w: Blind(w, lambda h: h), 12)


def test_a_forward_that_cannot_be_called_is_refused() -> None:
    class Timed(Hidden):
        def forward(self, x: Tensor, edge_index: Tensor, time: Tensor) -> Tensor:
            return super().forward(x)

    with refused("Timed.forward(x, edge_index, time) takes 'time', which gistgnn does not give"):
        infer(lambda w: Timed(w, lambda h: h), 12)


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
def test_a_forward_that_raises_is_refused(error: type[Exception]) -> None:
    def between(h: Tensor) -> Tensor:
        raise error("spoiled\nhere")

    with refused("could not be called", error.__name__, "spoiled"):
        infer(lambda w: Hidden(w, between), 12)


def test_an_output_that_is_no_tensor_of_nodes_is_refused_by_that_name() -> None:
    class Two(Hidden):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x

    with refused("returned tuple", "one tensor"):
        infer(lambda w: Two(w, lambda h: h), 12)


def test_the_users_random_stream_does_not_move() -> None:
    def needs_values(widths: tuple[int, ...]) -> nn.Module:
        model = USERS["features"][0](widths)
        model.norms = [float(p.detach().norm()) for p in model.parameters()]
        return model

    for build in (USERS["features"][0], needs_values):
        before = torch.random.get_rng_state()
        layout = GIST(build, (8,), 2).layout
        find_readout(build, (8,), layout, shared=False, split=(0,))
        assert torch.equal(torch.random.get_rng_state(), before)


class Reversed(nn.Module):
    """Seven layers whose outputs are joined from last to first: of 5,040 orders the reversed one is right."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (F, *widths)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(sum(widths), C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = []
        for layer in self.layers:
            x = layer(x).tanh()
            hidden.append(x)
        return self.out(torch.cat(hidden[::-1], dim=1))


def test_a_long_reversed_concatenation_is_found() -> None:
    layout = infer_layout(Reversed, (8, 7, 6, 8, 7, 6, 8), shared=False)
    assert [segment.axis for segment in layout.dims["out.weight"][1]] == [6, 5, 4, 3, 2, 1, 0]
