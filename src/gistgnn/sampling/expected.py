"""How large batches are to be expected, before there are any."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Of a graph that is trained on.

    Attributes:
        nodes: N.
        edges: E, directed.
        train: training nodes.
    """

    nodes: int
    edges: int
    train: int

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes


@dataclass(frozen=True)
class Expected:
    """About how large a batch is.

    Attributes:
        nodes: in the batch; of a batch that is sampled by layers the input nodes of every layer, the first layer's
            first, and the output nodes.
        edges: of every layer; one number where all layers have the same.
        loss_nodes: training nodes of the batch.
        steps: in an epoch.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    loss_nodes: int
    steps: int

    @classmethod
    def subgraph(cls, graph: Sizes, nodes: float, edges: float, steps: int | None = None) -> Expected:
        """A part of the graph with its share of the training nodes."""
        share = min(nodes / graph.nodes, 1)
        count = max(1, round(graph.nodes * share))
        return cls(
            (count,), (max(1, round(edges)),), round(graph.train * share), steps or max(1, round(graph.nodes / count))
        )

    @classmethod
    def induced(cls, graph: Sizes, touched: int, along: int) -> Expected:
        """The subgraph of nodes that are drawn evenly, ``touched`` times, ``along`` of them by following an edge."""
        share = -math.expm1(-touched / graph.nodes)
        return cls.subgraph(graph, graph.nodes * share, graph.edges * share**2 + 2 * along)

    @classmethod
    def layered(cls, graph: Sizes, nodes: list[float], edges: list[float]) -> Expected:
        """Layers, from the output nodes down: how many nodes each reaches, and edges each has."""
        counts = [min(round(each), graph.nodes) for each in nodes]
        steps = max(1, -(-graph.train // counts[0]))
        found = tuple(max(1, min(round(each), graph.edges)) for each in edges)
        return cls(tuple(reversed(counts)), tuple(reversed(found)), min(counts[0], graph.train), steps)
