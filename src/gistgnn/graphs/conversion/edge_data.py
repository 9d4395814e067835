"""The pass over the edges of a graph with edge data: it is in memory and sorted, so it is written as it is."""

from __future__ import annotations

import numpy as np

from gistgnn.graphs.csr import CSR
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.on_disk.making import Making
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter


def write_sorted(graph: Graph, work: Making) -> dict[str, StoredArray]:
    """Write `rowptr.npy`, `col.npy` and the files of the edge data.

    Raises:
        OSError: they cannot be written.
    """
    edges = graph.edges if isinstance(graph.edges, CSR) else CSR.of(graph.edges, graph.num_nodes)
    values = {"rowptr": edges.rowptr.long(), "col": edges.col.int(), **graph.edge_data}
    arrays = {}
    for name, tensor in values.items():
        array = np.ascontiguousarray(tensor.cpu().numpy())
        with ArrayWriter(work.folder / f"{name}.npy", array.dtype, array.shape[1:]) as file:
            file.append(array)
            arrays[name] = file.finish()
    return arrays
