"""Graphs with edge data, and models that use it."""

from dataclasses import replace
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn.graphs import Graph
from tests.helpers.models import C, F, tiny_graph

D = 2  # features of an edge
RELATIONS = 3  # types of edges


def weighted(graph: Graph, seed: int = 0, *, ones: bool = False) -> Graph:
    """The graph with edge weights, random ones or ones."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.rand(graph.num_edges, generator=rng) * 2 + 0.1
    return replace(graph, edge_weight=torch.ones_like(weight) if ones else weight)


def telling(graph: Graph) -> Graph:
    """The graph with node numbers in column 0 of x, and edge data that tell them.

    The data of an edge follow from its two ends.
    """
    x = graph.x.clone()
    x[:, 0] = torch.arange(graph.num_nodes)
    return replace(graph, x=x, **told(x, graph.edge_index))


def told(x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
    """The edge data of `telling` for the nodes and edges of a batch of it."""
    source, target = x[edge_index, 0]
    attr = torch.stack([source, target], dim=1)
    return {
        "edge_weight": source * 100 + target + 1,
        "edge_attr": attr,
        "edge_type": (source + 2 * target).long() % 3,
    }


class WithEdges(nn.Module):
    """Two layers that take edge data of one name."""

    def __init__(self, name: str, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.name = name
        self.first = first
        self.second = second

    def run(self, x: Tensor, edge_index: Tensor, data: Tensor) -> Tensor:
        h = self.first(x, edge_index, data).relu()
        return self.second(h, edge_index, data)


class Weighted(WithEdges):
    """A weighted GCN of PyG's layers."""

    def __init__(self, widths: Any) -> None:
        super().__init__("edge_weight", pyg.GCNConv(F, widths[0]), pyg.GCNConv(widths[0], C))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.run(x, edge_index, edge_weight)  # type: ignore[arg-type]


class Relational(WithEdges):
    """An RGCN."""

    def __init__(self, widths: Any, features: int = F) -> None:
        layers = [pyg.RGCNConv(a, b, RELATIONS) for a, b in ((features, widths[0]), (widths[0], C))]
        super().__init__("edge_type", *layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.run(x, edge_index, edge_type)


class EdgeFeatures(WithEdges):
    """A GIN with edge features."""

    def __init__(self, widths: Any) -> None:
        layers = [
            pyg.GINEConv(nn.Linear(a, b), edge_dim=D) for a, b in ((F, widths[0]), (widths[0], C))
        ]
        super().__init__("edge_attr", *layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.run(x, edge_index, edge_attr)


MODELS: dict[str, type[WithEdges]] = {
    "weighted GCN": Weighted,
    "RGCN": Relational,
    "GINE": EdgeFeatures,
}


def edge_graph(nodes: int = 24, seed: int = 0) -> Graph:
    """A small graph with edge data of every name."""
    graph = tiny_graph(nodes, seed)
    rng = torch.Generator().manual_seed(seed)
    attr = torch.randn(graph.num_edges, D, generator=rng)
    types = torch.randint(RELATIONS, (graph.num_edges,), generator=rng)
    return replace(weighted(graph, seed), edge_attr=attr, edge_type=types)


def only(graph: Graph, *names: str) -> Graph:
    """The graph with edge data of these names alone."""
    return replace(graph, **{name: None for name in graph.edge_data if name not in names})
