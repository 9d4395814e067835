"""Models of users, and small graphs, for the tests of the core."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn.graphs import Graph
from gistgnn.layout.axes import Layout, named_tensors
from gistgnn.layout.check import infer_layout
from gistgnn.nn import GAT, GCN, GIN, GATv2, GraphSAGE

# Of the small graphs and of the models below.
F = 7  # input features
C = 3  # classes


def tiny_graph(
    nodes: int = 24, seed: int = 0, *, multi_label: bool = False, name: str = "tiny"
) -> Graph:
    """A random undirected graph whose classes can be read off its features in part."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % C
    x = torch.randn(nodes, F, generator=rng)
    x[torch.arange(nodes), y] += 1.5
    half = torch.randint(nodes, (2, 3 * nodes), generator=rng)
    order = torch.randperm(nodes, generator=rng)
    third = nodes // 3
    if multi_label:
        y = torch.nn.functional.one_hot(y, C) | torch.randint(2, (nodes, C), generator=rng)
    return Graph.build(
        x,
        torch.cat([half, half.flip(0)], dim=1),
        y,
        train=order[:third],
        val=order[third : 2 * third],
        test=order[2 * third :],
        num_classes=C,
        name=name,
    )


class Concatenated(nn.Module):
    """Two layers whose outputs all go into the last layer.

    They are concatenated in some order, perhaps with x among them.
    """

    def __init__(
        self, widths: Sequence[int], order: str, layer: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__()
        d1, d2 = widths
        self.order = order
        self.conv1 = layer(F, d1)
        self.conv2 = layer(d1, d2)
        sizes = {"x": F, "1": d1, "2": d2}
        self.out = layer(sum(sizes[part] for part in order), C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h1 = self.conv1(x, edge_index).relu()
        h2 = self.conv2(h1, edge_index).relu()
        parts = {"x": x, "1": h1, "2": h2}
        return self.out(torch.cat([parts[part] for part in self.order], dim=1), edge_index)


class CopiesOfTheWhole(nn.Module):
    """[h1, h2, Āh1, Āh2] goes into one weight.

    This is GraphSAGE's layer over a concatenation, written by hand.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        d1, d2 = widths
        self.conv1 = pyg.GCNConv(F, d1)
        self.conv2 = pyg.GCNConv(d1, d2)
        self.mean = pyg.SimpleConv("mean")
        self.out = nn.Linear(2 * (d1 + d2), C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h1 = self.conv1(x, edge_index).relu()
        h2 = self.conv2(h1, edge_index).relu()
        h = torch.cat([h1, h2], dim=1)
        return self.out(torch.cat([h, self.mean(h, edge_index)], dim=1))


class Residual(nn.Module):
    """Every layer adds to its input, so that all layers share one axis."""

    def __init__(self, width: int, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Linear(F, width)
        self.convs = nn.ModuleList(pyg.GCNConv(width, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.enter(x)
        for conv in self.convs:
            h = h + conv(self.norm(h), edge_index).relu()
        return self.out(h)


class Features(nn.Module):
    """A model without a graph, with batch norm and a shared scalar."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.hidden = nn.Linear(F, widths[0])
        self.norm = nn.BatchNorm1d(widths[0])
        self.out = nn.Linear(widths[0], C)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.hidden(x)).relu()) * self.scale


class Stack(nn.Module):
    """PyG layers in a row, one width per hidden layer."""

    def __init__(
        self, widths: Sequence[int], layer: Callable[[int, int], nn.Module], in_features: int = F
    ) -> None:
        super().__init__()
        sizes = [in_features, *widths, C]
        self.convs = nn.ModuleList(layer(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


OURS: dict[str, Callable[..., nn.Module]] = {
    "gcn": lambda widths, **kw: GCN(F, widths, C, **kw),
    "graphsage": lambda widths, **kw: GraphSAGE(F, widths, C, **kw),
    "gat": lambda widths, **kw: GAT(F, widths, C, heads=2, **kw),
    "gatv2": lambda widths, **kw: GATv2(F, widths, C, heads=2, **kw),
    "gin": lambda widths, **kw: GIN(F, widths, C, **kw),
}

PYG: dict[str, Callable[..., nn.Module]] = {
    "gcn": lambda width, **kw: pyg.models.GCN(F, width, 3, C, **kw),
    "graphsage": lambda width, **kw: pyg.models.GraphSAGE(F, width, 3, C, **kw),
    "gat": lambda width, **kw: pyg.models.GAT(F, width, 3, C, heads=2, **kw),
    "gin": lambda width, **kw: pyg.models.GIN(F, width, 3, C, **kw),
}

USERS: dict[str, tuple[Callable[[Any], nn.Module], int | tuple[int, ...]]] = {
    "jumping": (lambda w: Concatenated(w, "12", pyg.GCNConv), (6, 9)),
    "jumping reversed": (lambda w: Concatenated(w, "21", pyg.GCNConv), (9, 6)),
    "jumping over x": (lambda w: Concatenated(w, "1x2", pyg.GCNConv), (6, 9)),
    "sage over a concatenation": (lambda w: Concatenated(w, "12", pyg.SAGEConv), (6, 9)),
    "copies of the whole": (CopiesOfTheWhole, (6, 9)),
    "residual": (Residual, 10),
    "features": (Features, (11,)),
    "pyg sage stack": (lambda w: Stack(w, pyg.SAGEConv), (8, 7)),
}


PLAIN: dict[str, Any] = {
    "standardise": False,
    "schedule": "constant",
    "optimizer_state": "reset",
    "lr": 0.01,
}
"""Keywords of `GIST.fit` with which a run is easy to do by hand; they are not its defaults."""

# A function `build`, and the widths to check it at.
Case = tuple[Callable[[Any], nn.Module], int | tuple[int, ...]]


def every_model() -> dict[str, Case]:
    """Models of every kind: ours, PyG's built with one shared width, and users' own."""
    cases: dict[str, Case] = {}
    for name, ours in OURS.items():
        for norm in ("none", "layer", "batch"):
            for depth in (1, 2, 3):
                cases[f"{name} {norm} {depth}"] = (
                    partial(ours, norm=norm),
                    tuple(range(6, 6 + depth)),
                )
    for name, theirs in PYG.items():
        for norm in (None, "layer_norm", "batch_norm"):
            for jk in (None, "cat", "max", "lstm"):
                cases[f"pyg {name} {norm} {jk}"] = (partial(theirs, norm=norm, jk=jk), 12)
    return cases | USERS


def some_models() -> dict[str, Case]:
    """One of each kind, for tests that take long."""
    ours = ["gcn none 2", "graphsage layer 3", "gat batch 2", "gatv2 none 2", "gin layer 2"]
    theirs = [
        "gcn layer_norm cat",
        "graphsage None max",
        "gat batch_norm None",
        "gin batch_norm None",
        "gcn None lstm",
    ]
    chosen = [*ours, *(f"pyg {name}" for name in theirs), *USERS]
    return {name: case for name, case in every_model().items() if name in chosen}


@cache
def layout_of(name: str) -> Layout:
    """A model's layout, which is the same at all widths."""
    build, widths = every_model()[name]
    shared = isinstance(widths, int)
    return infer_layout(build, (widths,) if isinstance(widths, int) else widths, shared=shared)


def built(name: str, features: Sequence[int], seed: int = 0) -> nn.Module:
    """A model whose axes have these numbers of features.

    Every floating-point tensor has random values.
    """
    build, widths = every_model()[name]
    sizes = layout_of(name).widths(features)
    torch.manual_seed(seed)
    module = build(sizes[0] if isinstance(widths, int) else sizes)
    for tensor in named_tensors(module).values():
        if tensor.is_floating_point():
            tensor.detach().normal_()
    return module
