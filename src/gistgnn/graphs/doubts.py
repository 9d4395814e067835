"""Notes on a graph that is valid, and perhaps not what its owner means."""

import logging

import torch

from gistgnn.graphs.csr import CSR, check_sources
from gistgnn.graphs.graph import Graph

log = logging.getLogger(__name__)

_LOOKED_AT = 1000  # edges
_FEW = 0.05  # share of the edges


def note_doubts(graph: Graph) -> None:
    """Log a note on a missing test set, edges of one direction, one-hot labels, and a class without a node."""
    if not graph.test.any():
        log.info(f"{graph.name} has no test nodes: there are no test scores")
    share = reversed_share(graph.edges)
    if share is not None and share < _FEW:
        log.info(
            f"{share:.0%} of the edges of {graph.name} have a reverse edge: messages go from source to target alone; "
            "if the graph is undirected, give both directions (gistgnn convert --undirected, or "
            "torch_geometric.transforms.ToUndirected)"
        )
    if graph.multi_label and graph.num_classes > 1 and bool((graph.y.sum(dim=1) == 1).all()):
        log.info("y has one 1 in every row, and counts as several labels per node: for classes, give y.argmax(1)")
    if graph.multi_label or graph.regression:
        return
    there = torch.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes) > 0
    if missing := (~there).nonzero().flatten().tolist():
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        log.info(f"no node has class {shown}: the model has {graph.num_classes} outputs; number the classes from 0 on")


def reversed_share(edges: CSR) -> float | None:
    """Return which share of about 1,000 edges between two nodes has a reverse edge; None: there is no such edge."""
    chosen = torch.linspace(0, len(edges.col) - 1, min(len(edges.col), _LOOKED_AT), dtype=torch.double).long()
    sources, targets = edges.col[chosen].long(), torch.searchsorted(edges.rowptr, chosen, right=True) - 1
    check_sources(sources, len(edges.rowptr) - 1)  # those of a folder are not checked when it is opened
    pairs = [pair for pair in zip(sources.tolist(), targets.tolist(), strict=True) if pair[0] != pair[1]]
    found = [bool((edges.rows(slice(one, one + 1))[0].col == other).any()) for one, other in pairs]
    return sum(found) / len(found) if found else None
