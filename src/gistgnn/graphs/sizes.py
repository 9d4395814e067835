"""How large a graph is: what decides the memory and time of training on it, without the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.standardise import sample_of

_LOOKED_AT = 50  # clusters whose edges are read


@dataclass(frozen=True)
class StoredSizes:
    """The sizes of a graph that is mapped from a folder of clusters, in bytes.

    Attributes:
        folder: where its files lie.
        clusters: c, a number.
        inside: the share of the edges that lie inside clusters, of some clusters.
        size: of the features, the edges and their data.
    """

    folder: str
    clusters: int
    inside: float
    size: int

    @classmethod
    def of(cls, graph: Graph) -> StoredSizes | None:
        """Return the sizes of a graph's files; None: it is in memory, or not in the order of clusters."""
        ptr, edges, inside, found = graph.cluster_ptr, graph.edges, 0, 0
        if graph.folder is None or ptr is None:
            return None
        for cluster in torch.linspace(0, len(ptr) - 2, _LOOKED_AT).round().long().unique().tolist():
            start, stop = int(ptr[cluster]), int(ptr[cluster + 1])
            source = edges.col[int(edges.rowptr[start]) : int(edges.rowptr[stop])]
            inside, found = inside + int(((source >= start) & (source < stop)).sum()), found + len(source)
        size = sum(tensor.nbytes for tensor in (graph.x, edges.col, *graph.edge_data.values()))
        return cls(str(graph.folder), len(ptr) - 1, inside / max(found, 1), size)


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
        scored: validation and test nodes; None: all nodes that are not training nodes.
        stored: of a graph in a folder of clusters, the sizes of its files; None: the graph is in memory.
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
    scored: int | None = None
    stored: StoredSizes | None = None

    @classmethod
    def of_graph(cls, graph: Graph) -> GraphSizes:
        """Return the sizes of a graph."""
        sample = sample_of(graph.x)
        return cls(
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            train=int(graph.train.sum()),
            name=graph.name,
            features=graph.num_features,
            classes=graph.num_classes,
            multi_label=graph.multi_label,
            nonzero=int(torch.count_nonzero(sample)) / sample.numel(),
            scored=int(graph.val.sum()) + int(graph.test.sum()),
            stored=StoredSizes.of(graph),
        )

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> GraphSizes:
        """Return the published sizes of a named data set."""
        return cls(
            info.nodes,
            info.edges,
            info.train,
            info.name,
            info.features,
            info.classes,
            info.task == "multi-label",
            info.nonzero,
            info.reader,
        )

    @property
    def scored_nodes(self) -> int:
        """Nodes whose predictions are scored."""
        return self.nodes - self.train if self.scored is None else self.scored

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes

    def training(self) -> GraphSizes:
        """Return the training nodes' subgraph; both ends of an edge are taken to be in it as two random nodes are."""
        edges = round(self.edges * (self.train / self.nodes) ** 2)
        return replace(self, nodes=self.train, edges=edges, stored=None)
