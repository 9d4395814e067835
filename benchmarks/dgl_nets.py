"""The same model as a DGL user would write and run it: layers of `dgl.nn` on DGL's graphs."""

import os
import sys
import types
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import DROPOUT, Case
from benchmarks.other_library import OtherLibrary, StackOfLayers
from gistgnn.sampling import Batch


def import_dgl() -> Any:
    """Import DGL, without its GraphBolt where that has no library for this torch.

    Raises:
        ImportError: DGL is not here, or does not load.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # otherwise DGL writes a file into the home folder
    try:
        import dgl
    except (ImportError, OSError) as error:
        if getattr(error, "name", None) == "dgl":  # it is not installed
            raise
        # GraphBolt is DGL's loader. Nothing here uses it, but `import dgl` imports it.
        for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
            del sys.modules[name]
        sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
        try:
            import dgl
        except OSError as cause:
            raise ImportError(str(cause)) from cause
        finally:
            if "dgl" not in sys.modules:
                del sys.modules["dgl.graphbolt"]
    return dgl


def why_not() -> str | None:
    """Return why DGL does not import, in one line; None if it does."""
    try:
        import_dgl()
    except ImportError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


class DGLModel(StackOfLayers):
    """A stack of DGL's layers.

    GraphSAGE has two linear layers, of the node itself and of its neighbours' mean, as the authors' code has.
    """

    def make_layer(self, case: Case, features: int, width: int, *, last: bool) -> nn.Module:
        """Build DGL's layer for the model's name."""
        from dgl.nn.pytorch import GATConv, GraphConv, SAGEConv

        if case.model == "gat":
            return GATConv(features, width, case.heads, attn_drop=DROPOUT)
        return SAGEConv(features, width, "mean") if case.model == "graphsage" else GraphConv(features, width)

    def call(self, layer: nn.Module, x: Tensor, structure: Any, *, last: bool) -> Tensor:
        """Return a layer's output: [N, width]. Heads are joined, and in the last layer averaged."""
        out: Tensor = layer(structure, x)
        if out.dim() == 3:
            out = out.mean(dim=1) if last else out.flatten(1)
        return out


class DGLContender(OtherLibrary):
    """DGL's model. GCN and GAT get graphs with self-loops, as in DGL's examples."""

    def __init__(self, case: Case) -> None:
        self._dgl = import_dgl()
        super().__init__(case, DGLModel)

    def structure(self, batch: Batch) -> Any:
        """Return a graph with the formats that a step needs, so that no step makes them."""
        edges = batch.edges
        entries = torch.empty(0, dtype=torch.int32, device=batch.x.device)  # the edges are numbered as they come
        graph = self._dgl.graph(
            ("csc", (edges.rowptr.int(), edges.col.int(), entries)),
            num_nodes=len(batch.x),
            device=batch.x.device,
        )
        if self._case.model != "graphsage":
            graph = self._dgl.add_self_loop(graph)
        graph = graph.formats(["coo", "csc", "csr"] if self._case.model == "gat" else ["csc", "csr"])
        graph.create_formats_()
        return graph
