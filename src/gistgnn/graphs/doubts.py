"""Notes on a graph whose data may not be what its user meant. Nothing is refused."""

import logging

import torch
from torch import Tensor

from gistgnn.graphs.csr import CSR, check_sources
from gistgnn.graphs.features import sample_of
from gistgnn.graphs.graph import Graph

log = logging.getLogger(__name__)

_LOOKED_AT = 1000  # edges whose reverse edges are looked for
_FEW = 0.05  # a share of these edges so small that the graph may be meant to be undirected
MANY_LABELS = 100  # training nodes for each class
# Homophily is judged by so many edges between training nodes at least, of so many at most.
_FEWEST_EDGES = 500
_MOST_EDGES = 100_000
_LOW = 0.1  # homophily


def note_doubts(graph: Graph) -> None:
    """Log a note on what may be a mistake in a graph.

    These are a missing test set, edges of one direction, labels that are one-hot, and odd classes
    or targets.
    """
    if not graph.test.any():
        log.info(f"{graph.name} has no test nodes: there are no test scores")
    share = _reversed_share(graph.edges)
    if share is not None and share < _FEW:  # a warning, which Python shows without a set-up
        log.warning(
            f"{share:.0%} of the edges of {graph.name} have a reverse edge: messages go from "
            "source to target alone; if the graph is undirected, give both directions (gistgnn "
            "convert --undirected, or torch_geometric.transforms.ToUndirected)"
        )
    if graph.edge_weight is not None and (low := float(sample_of(graph.edge_weight).min())) < 0:
        log.warning(
            f"edge_weight has negative values, such as {low:.4g}: a GCNConv takes roots of their "
            "sums"
        )
    if graph.regression:
        _note_far_targets(graph.y[graph.train].double())
    elif not graph.multi_label:
        _note_missing_classes(graph.y, graph.num_classes)
    elif graph.num_classes > 1:
        _note_one_hot(graph.y)


def _note_far_targets(y: Tensor) -> None:
    """Log a note if targets of a regression, [n, K], are far from 0 for how much they vary."""
    if not len(y):
        return
    means = y.mean(dim=0)
    deviations = y.std(dim=0, correction=0)
    far_columns = (means.abs() > 10 * deviations).nonzero().flatten()
    if len(far_columns):
        column = int(far_columns[0])
        name = "y" if y.shape[1] == 1 else f"y[:, {column}]"
        numbers = f"a mean of {means[column]:.4g} and a deviation of {deviations[column]:.4g}"
        log.warning(f"{name} has {numbers}, which takes long to learn: give (y - mean) / deviation")


def _note_missing_classes(y: Tensor, classes: int) -> None:
    """Log a note if some classes have no nodes; ``y`` is [N], −1 for an unlabelled node."""
    has_nodes = torch.bincount(y[y >= 0], minlength=classes) > 0
    if missing := (~has_nodes).nonzero().flatten().tolist():
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        log.warning(
            f"no node has class {shown}: the model has {classes} outputs; number the classes from "
            "0 on"
        )


def _note_one_hot(y: Tensor) -> None:
    """Log a note if no node has two labels [N, K].

    Then these are classes, and a row of zeros is an unlabelled node.
    """
    counts = y.sum(dim=1)
    with_one = int((counts == 1).sum())
    empty = int((counts == 0).sum())
    if int((counts > 1).sum()) or not with_one:
        return
    if not empty:
        log.warning(
            "y has one 1 in every row, and counts as several labels per node: for classes, give "
            "y.argmax(1)"
        )
        return
    log.warning(
        f"y has one 1 in {with_one} rows, none in {empty} and nowhere two, and counts as several "
        f"labels per node: for classes, of which {empty} nodes have none, give "
        "torch.where(y.sum(1) > 0, y.argmax(1), -1), and take nodes with -1 out of the splits"
    )


def note_homophily(graph: Graph) -> None:
    """Log a note if edges join training nodes of one class about as often as by chance.

    The measure is the adjusted homophily of Platonov et al., "Characterizing graph datasets for
    node classification" (2023): 0 by chance, 1 if all edges join nodes of one class.
    """
    if graph.multi_label or graph.regression:
        return
    sources, targets = _some_edges(graph.edges, _MOST_EDGES)
    in_training = graph.train[sources] & graph.train[targets]
    one = graph.y[sources[in_training]]
    other = graph.y[targets[in_training]]
    if len(one) < _FEWEST_EDGES:
        return
    shares = [
        torch.bincount(ends, minlength=graph.num_classes) / len(ends) for ends in (one, other)
    ]
    chance = float(shares[0] @ shares[1])
    adjusted = (float((one == other).float().mean()) - chance) / max(1 - chance, 1e-9)
    if adjusted < _LOW:
        log.warning(
            "edges join nodes of one class about as often as by chance (adjusted homophily "
            f"{adjusted:.2f}), and this model takes the mean of a node and its neighbours: try "
            "GraphSAGE too, which keeps them apart"
        )


def suits_graphsage(graph: Graph) -> bool:
    """Tell whether a GraphSAGE is likely to score higher on a graph than a GCN.

    With some hundreds of training nodes of each class GraphSAGE scored up to a point higher, or
    about the same; with tens of them it scored up to three points lower (see
    benchmarks/RESULTS.md, "GCN and GraphSAGE").
    """
    if graph.multi_label or graph.regression:
        return False
    return int(graph.train.sum()) > MANY_LABELS * graph.num_classes


def _some_edges(edges: CSR, count: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets of at most ``count`` edges between two nodes.

    They are spread evenly over all edges.
    """
    total = edges.num_edges
    places = torch.linspace(
        0, total - 1, min(total, count), dtype=torch.double, device=edges.col.device
    ).long()
    sources = edges.col[places].long()
    targets = torch.searchsorted(edges.rowptr, places, right=True) - 1
    # The edges of a folder are not checked when it is opened.
    check_sources(sources, edges.num_nodes)
    between = sources != targets
    return sources[between], targets[between]


def _reversed_share(edges: CSR) -> float | None:
    """Return which share of about 1,000 edges between two nodes has a reverse edge.

    Returns None if there is no such edge.
    """
    sources, targets = _some_edges(edges, _LOOKED_AT)
    into_sources, _ = edges.rows(sources)  # row i has the edges into the source of edge i
    is_reverse = into_sources.col == into_sources.repeated(targets)
    with_reverse = into_sources.row[is_reverse].unique()
    return len(with_reverse) / len(sources) if len(sources) else None
