"""How large a graph is: what decides the memory and time of training on it, without the graph."""

from dataclasses import dataclass, replace

import torch

from gistgnn.graphs.graph import Graph
from gistgnn.graphs.named import DatasetInfo
from gistgnn.graphs.standardise import sample_of

_LOOKED_AT = 50  # clusters whose edges are read


@dataclass(frozen=True)
class StoredSizes:
    """The sizes of a graph that is mapped from a folder of clusters."""

    folder: str
    clusters: int  # c
    inside: float  # the share of the edges that lie inside clusters, of some clusters
    size: int  # bytes of the features, the edges and their data

    @classmethod
    def of(cls, graph: Graph) -> "StoredSizes | None":
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
    """The sizes of a graph."""

    nodes: int  # N
    edges: int  # E, directed
    train: int  # training nodes
    name: str = ""
    features: int = 0  # F
    classes: int = 0  # C, or labels per node
    multi_label: bool = False
    nonzero: float = 1.0  # share of the features that are not 0
    reader: str = "file"  # the module that reads a named data set; "file" for a user's graph
    scored: int | None = None  # validation and test nodes; None: all nodes that are not training nodes
    stored: StoredSizes | None = None  # of a graph in a folder of clusters; None: the graph is in memory

    @classmethod
    def of_graph(cls, graph: Graph) -> "GraphSizes":
        """Return the sizes of a graph."""
        sample = sample_of(graph.x)
        return cls(
            graph.num_nodes, graph.num_edges, int(graph.train.sum()), graph.name, graph.num_features,
            graph.num_classes, graph.multi_label, nonzero=int(torch.count_nonzero(sample)) / sample.numel(),
            scored=int(graph.val.sum()) + int(graph.test.sum()), stored=StoredSizes.of(graph),
        )  # fmt: skip

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> "GraphSizes":
        """Return the published sizes of a named data set."""
        several = info.task == "multi-label"
        sizes = cls(info.nodes, info.edges, info.train, info.name, info.features, info.classes, several)
        return replace(sizes, nonzero=info.nonzero, reader=info.reader)

    @property
    def scored_nodes(self) -> int:
        """Nodes whose predictions are scored."""
        return self.nodes - self.train if self.scored is None else self.scored

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes

    def training(self) -> "GraphSizes":
        """Return the training nodes' subgraph; both ends of an edge are taken to be in it as two random nodes are."""
        edges = round(self.edges * (self.train / self.nodes) ** 2)
        return replace(self, nodes=self.train, edges=edges, stored=None)
