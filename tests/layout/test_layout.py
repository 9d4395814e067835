"""The layout of a model: inferred from its shapes, checked by permutation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.layout.axes import Dim, Segment
from gistgnn.layout.check import infer_layout
from tests.helpers.edges import D
from tests.helpers.fitting import fit
from tests.helpers.models import OURS, PYG, USERS, C, F, Stack

Build = Callable[[Any], nn.Module]


def dim(*parts: str | int) -> Dim:
    """dim("0", "1", 7): axis 0, axis 1, then seven features of no axis."""
    return tuple(Segment(int(p)) if isinstance(p, str) else Segment(None, p) for p in parts)


class Embedded(nn.Module):
    """Takes edge features that are numbers of kinds."""

    def __init__(self, widths: tuple[int, ...], edge_dim: int = D) -> None:
        super().__init__()
        self.kinds = nn.Embedding(3, edge_dim)
        self.conv = pyg.GINEConv(nn.Linear(F, widths[0]), edge_dim=edge_dim)
        self.out = nn.Linear(widths[0], C)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.out(self.conv(x, edge_index, self.kinds(edge_attr)).relu())


class Tied(nn.Module):
    """One layer twice, weight norm, and widths that are not small."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 40:
            raise ValueError("too narrow")
        self.enter = nn.utils.parametrizations.weight_norm(nn.Linear(F, width))
        self.conv = pyg.GCNConv(width, width)
        self.out = nn.Linear(width, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(self.enter(x).relu(), edge_index).relu()
        return self.out(self.conv(h, edge_index))


def through(inner: Callable[..., int]) -> Build:
    return lambda w: nn.Sequential(nn.Linear(F, inner(*w)), nn.ReLU(), nn.Linear(inner(*w), C))


GCN_DIMS = {
    "convs.0.weight": (dim("0"), dim(F)),
    "convs.0.bias": (dim("0"),),
    "convs.1.weight": (dim("1"), dim("0")),
    "convs.2.weight": (dim(C), dim("1")),
    "convs.2.bias": (dim(C),),
}
SAGE_DIMS = {"convs.0.weight": (dim("0"), dim(2 * F)), "convs.1.weight": (dim("1"), dim("0", "0"))}
GAT_DIMS = {  # a width counts the channels of one head
    "convs.0.weight": (dim("0", "0"), dim(F)),
    "convs.0.source": (dim(2), dim("0")),
    "convs.1.weight": (dim("1", "1"), dim("0", "0")),
    "convs.1.bias": (dim("1", "1"),),
    "convs.2.weight": (dim(2 * C), dim("1", "1")),
}
PYG_GAT_DIMS = {  # the width is divided over the heads
    "convs.0.lin.weight": (dim("0", "0"), dim(F)),
    "convs.0.att_src": (dim(1), dim(2), dim("0")),
    "convs.1.lin.weight": (dim("0", "0"), dim("0", "0")),
}
LSTM_DIMS = {  # four gates, hidden 3d/2; an axis is d/2
    "jk.lstm.weight_hh_l0": (dim(*["0"] * 12), dim("0", "0", "0")),
    "jk.att.weight": (dim(1), dim(*["0"] * 6)),
}
DIMS: list[tuple[Build, Any, tuple[int, ...], dict[str, tuple[Dim, ...]]]] = [
    (OURS["gcn"], (8, 6), (1, 1), GCN_DIMS),
    (OURS["graphsage"], (8, 6), (1, 1), SAGE_DIMS),
    (OURS["gat"], (8, 6), (1, 1), GAT_DIMS),
    (PYG["gat"], 12, (2,), PYG_GAT_DIMS),
    (lambda w: pyg.models.GAT(F, w, 2, C, heads=4), 16, (4,), {}),
    (lambda w: PYG["gcn"](w, jk="lstm"), 12, (2,), LSTM_DIMS),
    (
        USERS["features"][0],
        (11,),
        (1,),
        {"norm.running_var": (dim("0"),), "scale": (), "norm.num_batches_tracked": ()},
    ),
    (*USERS["residual"], (1,), {"convs.0.lin.weight": (dim("0"), dim("0"))}),
    (lambda w: Stack(w, pyg.TransformerConv), (8, 6), (1, 1), {}),
    (lambda w: Stack(w, pyg.ResGatedGraphConv), (8, 6), (1, 1), {}),
    (Tied, 64, (1,), {"conv.lin.weight": (dim("0"), dim("0"))}),
    # It takes sorted edges alone.
    (lambda w: Stack(w, lambda a, b: pyg.SAGEConv(a, b, aggr="lstm")), (8,), (1,), {}),
    # Edge features of any number are tried.
    *(
        (partial(Embedded, edge_dim=n), (8,), (1,), {"conv.lin.weight": (dim(F), dim(n))})
        for n in (D, F, 1)
    ),
    *(
        (partial(pyg.models.GAT, F, num_layers=2, out_channels=C, edge_dim=n), 8, (1,), {})
        for n in (D, F, 1)
    ),
    # The order of the parts of a concatenation; the sizes do not always tell them apart.
    (*USERS["jumping"], (1, 1), {"out.lin.weight": (dim(C), dim("0", "1"))}),
    (*USERS["jumping reversed"], (1, 1), {"out.lin.weight": (dim(C), dim("1", "0"))}),
    (USERS["jumping reversed"][0], (8, 8), (1, 1), {"out.lin.weight": (dim(C), dim("1", "0"))}),
    (*USERS["jumping over x"], (1, 1), {"out.lin.weight": (dim(C), dim("0", F, "1"))}),
    (*USERS["sage over a concatenation"], (1, 1), {"out.lin_r.weight": (dim(C), dim("0", "1"))}),
    (*USERS["copies of the whole"], (1, 1), {"out.weight": (dim(C), dim("0", "1", "0", "1"))}),
    # At an even d, d // 2 + 1 is one feature of no axis beside an axis of d / 2.
    (through(lambda d: d // 2 + 1), (12,), (2,), {"0.weight": (dim(1, "0"), dim(F))}),
]


@pytest.mark.parametrize(("build", "widths", "units", "expected"), DIMS)
def test_dimensions_lie_along_their_axes(
    build: Build, widths: Any, units: Any, expected: dict[str, Any]
) -> None:
    shared = isinstance(widths, int)
    layout = infer_layout(build, (widths,) if shared else widths, shared=shared)
    assert layout.units == units
    assert {name: layout.dims[name] for name in expected} == expected
    assert layout.widths(layout.features([24] * len(units))) == (24,) * len(units)


def test_input_features_are_an_axis_if_asked_for() -> None:
    layout = infer_layout(
        lambda w: Stack(w[1:], pyg.SAGEConv, w[0]), (9, 8), shared=False, input_axis=0
    )
    assert layout.dims["convs.0.lin_l.weight"] == (dim("1"), dim("0"))
    assert layout.names_along(0) == ["convs.0.lin_l.weight", "convs.0.lin_r.weight"]


def test_a_compiled_model_has_the_layout_of_the_plain_one_and_trains_alike() -> None:
    plain = GIST(PYG["gcn"], 8, 2)
    compiled = GIST(lambda width: torch.compile(PYG["gcn"](width), backend="eager"), 8, 2)
    with torch.compiler.set_stance("force_eager"):  # compiling takes seconds
        one = fit(plain, epochs=2)
        other = fit(compiled, epochs=2)
    assert compiled.layout.dims.keys() == {f"_orig_mod.{name}" for name in plain.layout.dims}
    torch.testing.assert_close(
        one.model.convs[0].lin.weight, other.model._orig_mod.convs[0].lin.weight
    )
