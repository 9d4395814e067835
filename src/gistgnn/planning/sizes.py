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
class GraphSizes:
    """The sizes of a graph that decide what training on it takes.

    Attributes:
        name: what messages call it.
        nodes: N.
        edges: E, directed.
        features: F.
        classes: C, or labels per node.
        train: training nodes.
        multi_label: whether a node has several labels.
        nonzero: share of the features that are not 0.
        reader: of a named data set, which module reads it; "file" otherwise.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    multi_label: bool = False
    nonzero: float = 1.0
    reader: str = "file"

    @classmethod
    def of_graph(cls, graph: Graph) -> GraphSizes:
        """Those of a graph in memory."""
        return cls(
            graph.name,
            graph.num_nodes,
            graph.num_edges,
            graph.num_features,
            graph.num_classes,
            int(graph.train.sum()),
            graph.multi_label,
            int(torch.count_nonzero(graph.x)) / graph.x.numel(),
        )

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> GraphSizes:
        """Those of a named data set, as published."""
        return cls(
            info.name,
            info.nodes,
            info.edges,
            info.features,
            info.classes,
            info.train,
            info.task == "multi-label",
            info.nonzero,
            info.reader,
        )

    @property
    def sparse(self) -> bool:
        """Whether models are given the features as a sparse matrix (see `Batch.features`)."""
        return self.nonzero < SPARSE_BELOW

    def standardised(self) -> GraphSizes:
        """With features that are hardly ever 0."""
        return replace(self, nonzero=1.0)

    def training(self) -> GraphSizes:
        """The subgraph of the training nodes; an edge is taken to have both ends in it as two random nodes would."""
        return replace(self, nodes=self.train, edges=round(self.edges * (self.train / self.nodes) ** 2))

    def expected(self, sampling: Sampling | None, layers: int) -> Expected | None:
        """How large batches of it are; None: as large as it is itself."""
        return None if sampling is None else sampling.expected(self.sizes, layers)

    @property
    def sizes(self) -> Sizes:
        """What a sampler goes by."""
        return Sizes(self.nodes, self.edges, self.train)

    def batch(self, expected: Expected | None) -> GraphSizes:
        """A batch of the expected size; its largest layer, where it is sampled by layers. None: the graph itself."""
        if expected is None:
            return self
        return replace(self, nodes=expected.nodes[0], edges=expected.edges[0], train=expected.loss_nodes)
