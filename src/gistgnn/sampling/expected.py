"""How large batches will be, before there is a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gistgnn.graphs.sizes import GraphSizes


@dataclass(frozen=True)
class Expected:
    """About how large a batch is.

    In batches with edges of their own in every layer, `nodes` are the input nodes of each layer, the first layer's
    first, and then the output nodes.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]  # of every layer; one number where all layers have the same
    loss_nodes: int  # training nodes
    steps: int  # of an epoch
    sampled: bool = False  # edges are sampled and have weights; else the batch has all edges between its nodes
    precomputed: bool = False  # the first layer's sums over neighbours are computed once, for the whole graph

    @classmethod
    def whole(cls, graph: GraphSizes) -> Expected:
        """Return the size of the whole graph, an upper bound for any batch."""
        return cls((graph.nodes,), (graph.edges,), graph.train, 1)

    @classmethod
    def subgraph(cls, graph: GraphSizes, nodes: float, edges: float, steps: int = 0, **kind: bool) -> Expected:
        """Return the size of a subgraph that has its share of the training nodes."""
        share = min(nodes / graph.nodes, 1)
        count = max(1, round(graph.nodes * share))
        steps = steps or max(1, round(graph.nodes / count))
        return cls((count,), (max(1, round(edges)),), round(graph.train * share), steps, **kind)

    @classmethod
    def induced(cls, graph: GraphSizes, drawn: int, followed: int) -> Expected:
        """Return the size of the subgraph of ``drawn`` random nodes, ``followed`` of them reached along an edge."""
        share = -math.expm1(-drawn / graph.nodes)
        edges = graph.edges * share**2 + 2 * followed
        return cls.subgraph(graph, graph.nodes * share, edges, sampled=True)

    @classmethod
    def layered(cls, graph: GraphSizes, nodes: list[float], edges: list[float]) -> Expected:
        """Return the size of layers, from the output nodes down: the nodes that each reaches, the edges of each."""
        counts = [min(round(count), graph.nodes) for count in nodes]
        numbers = tuple(max(1, min(round(count), graph.edges)) for count in reversed(edges))
        steps = max(1, -(-graph.train // counts[0]))
        return cls(tuple(reversed(counts)), numbers, min(counts[0], graph.train), steps, sampled=True)

    def sizes(self, graph: GraphSizes) -> GraphSizes:
        """Return the sizes of a batch of the graph, or of its first layer, the largest."""
        return replace(graph, nodes=self.nodes[0], edges=self.edges[0], train=self.loss_nodes)
