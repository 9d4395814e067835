"""How large a graph is: what decides the memory and time of training on it, without the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a graph.

    Attributes:
        nodes: N.
        edges: E, directed.
        train: training nodes.
        name: of the graph, for messages.
        features: F.
        classes: C, or labels per node.
        multi_label: whether a node has several labels.
        nonzero: share of the features that are not 0.
        reader: the module that reads a named data set; "file" for a user's graph.
    """

    nodes: int
    edges: int
    train: int
    name: str = ""
    features: int = 0
    classes: int = 0
    multi_label: bool = False
    nonzero: float = 1.0
    reader: str = "file"

    @classmethod
    def of_graph(cls, graph: Graph) -> GraphSizes:
        """Return the sizes of a graph in memory."""
        numbers = graph.num_nodes, graph.num_edges, int(graph.train.sum())
        nonzero = int(torch.count_nonzero(graph.x)) / graph.x.numel()
        return cls(*numbers, graph.name, graph.num_features, graph.num_classes, graph.multi_label, nonzero)

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> GraphSizes:
        """Return the published sizes of a named data set."""
        numbers, multi_label = (info.nodes, info.edges, info.train), info.task == "multi-label"
        return cls(*numbers, info.name, info.features, info.classes, multi_label, info.nonzero, info.reader)

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes

    def training(self) -> GraphSizes:
        """Return the training nodes' subgraph; both ends of an edge are taken to be in it as two random nodes are."""
        return replace(self, nodes=self.train, edges=round(self.edges * (self.train / self.nodes) ** 2))
