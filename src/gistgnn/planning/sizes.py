"""How large a graph and its batches are, without the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gistgnn.graphs import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.sampling import Sampling
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.sampling.expected import Expected, Sizes


@dataclass(frozen=True)
class GraphSizes(Sizes):
    """The sizes of a graph that decide how much memory and time training takes (see also `Sizes`).

    Attributes:
        name: of the graph, for messages.
        features: F.
        classes: C, or labels per node.
        multi_label: whether a node has several labels.
        nonzero: share of the features that are not 0.
        reader: the module that reads a named data set; "file" for a user's graph.
    """

    name: str
    features: int
    classes: int
    multi_label: bool = False
    nonzero: float = 1.0
    reader: str = "file"

    @classmethod
    def of_graph(cls, graph: Graph) -> GraphSizes:
        """Return the sizes of a graph in memory."""
        nonzero = int(torch.count_nonzero(graph.x)) / graph.x.numel()
        nodes, edges, train = graph.num_nodes, graph.num_edges, int(graph.train.sum())
        columns = graph.num_features, graph.num_classes
        return cls(nodes, edges, train, graph.name, *columns, graph.multi_label, nonzero)

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> GraphSizes:
        """Return the published sizes of a named data set."""
        nodes, columns, multi = (info.nodes, info.edges, info.train), (info.features, info.classes), info.task
        return cls(*nodes, info.name, *columns, multi == "multi-label", info.nonzero, info.reader)

    @property
    def sparse(self) -> bool:
        """Whether models get the features as a sparse matrix (see `Batch.features`)."""
        return self.nonzero < SPARSE_BELOW

    def training(self) -> GraphSizes:
        """Return the training nodes' subgraph; both ends of an edge are taken to be in it as two random nodes are."""
        return replace(self, nodes=self.train, edges=round(self.edges * (self.train / self.nodes) ** 2))

    def expected(self, sampling: Sampling | None, layers: int) -> Expected:
        """Return how large the batches of a sampler are; None: every step sees the whole graph."""
        return Expected.whole(self) if sampling is None else sampling.expected(self, layers)

    def batch(self, expected: Expected) -> GraphSizes:
        """Return the sizes of a batch; of its first layer, the largest, where it is sampled by layers."""
        return replace(self, nodes=expected.nodes[0], edges=expected.edges[0], train=expected.loss_nodes)
