"""Folders of clusters, made in memory: what `gistgnn partition --out` makes of larger graphs."""

from pathlib import Path

import msgspec
import numpy as np
import torch

from gistgnn.graphs import CSR, Graph
from gistgnn.graphs.clustering import Clusters, cluster
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.folder import write_array


def renumbered(graph: Graph, clusters: Clusters) -> Graph:
    """Return the graph with its nodes in the order of its clusters."""
    order = clusters.order
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order))
    source, target = position[graph.edge_index]
    by_target = np.lexsort((source.numpy(), target.numpy()))
    return Graph(
        graph.x[order],
        CSR.of(torch.stack([source, target])[:, by_target], graph.num_nodes),
        graph.y[order],
        graph.train[order],
        graph.val[order],
        graph.test[order],
        graph.num_classes,
        graph.name,
        graph.regression,
        **{name: value[by_target] for name, value in graph.edge_data.items()},
    )


def make_clustered(graph: Graph, count: int, folder: Path) -> tuple[Graph, Clusters]:
    """Write a graph as a folder of clusters.

    Return it in memory, renumbered, and the clusters of the old numbers.
    """
    clusters = cluster(graph.edges, graph.num_nodes, count, "random", 0)
    same = renumbered(graph, clusters)
    manifest = convert(same, folder)
    arrays = dict(manifest.arrays)
    for name, values in (("node", clusters.order), ("cluster_ptr", clusters.ptr)):
        arrays[name] = write_array(folder, name, values.numpy())
    msgspec.structs.replace(manifest, arrays=arrays).write(folder)
    return same, clusters
