"""What a model is trained on in one step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import CSR, Graph
from gistgnn.graphs.archive import check_room
from gistgnn.graphs.on_disk.clustered import ClusteredGraph
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.graphs.standardise import sample_of
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.entries import MappedEntries
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.pyg_layers import Products
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.nn.stored_adjacency import StoredAdjacency, StoredPattern
from gistgnn.sampling.product_in_folder import product_in_folder

Compute = Callable[[], dict[str, Tensor]]
Share = Callable[[Compute], dict[str, Tensor]]
"""Computes tensors once for all processes on a machine (see `gistgnn.distributed.Machine.share`)."""

_PIECE = 2**22  # edges

SPARSE_BELOW = 0.1  # share of non-zero features under which the sparse product is several times faster


@dataclass(frozen=True, eq=False)
class Batch:
    """A graph or a part of one, with its labels.

    Args:
        x: node features, [N, F]; a CSR tensor where a sampler has gathered rows of a sparse matrix.
        edges: source -> target, as an edge_index [2, E], as a Pattern [N, N] of entries (target, source), or sampled.
        y: labels, [N] class indices or [N, K] multi-label targets; only of the output nodes, which come first, where a
            batch is sampled by layers.
        loss_nodes: indices of the nodes whose loss counts.
        product: returns the product of an operator with x; None: it is computed with these edges (see
            `Adjacency.cache_products`).
        sparse: whether `features` is a sparse matrix; None: x decides. Parts follow the whole graph.
        splits: the nodes whose predictions are scored, as masks [N] by the names of the splits; None: not known.
        loss_weights: a weight for every loss node's loss; the batch's loss is then the weighted sum. None: the mean.
        edge_data: the edges' weights, features and types, by name (see `Graph`), in the order of `edge_index`.
        cluster_ptr: [c + 1], where nodes are in the order of their clusters: where each begins; None: they are not.
    """

    x: Tensor
    edges: Tensor | Pattern | SampledAdjacency
    y: Tensor
    loss_nodes: Tensor
    product: Callable[[Operator], Tensor] | None = None
    sparse: bool | None = None
    splits: dict[str, Tensor] | None = None
    loss_weights: Tensor | None = None
    edge_data: Mapping[str, Tensor] = field(default_factory=dict)
    cluster_ptr: Tensor | None = None

    @property
    def is_stored(self) -> bool:
        """Whether features and edges stay in the files of a graph folder."""
        return isinstance(self.edges, StoredPattern)

    def in_memory(self) -> "Batch":
        """Return the batch with features and edges that many operations may read.

        Raises:
            InputError: the features do not fit in memory.
        """
        if not isinstance(self.edges, StoredPattern):
            return self
        x = self.x.load() if isinstance(self.x, StoredFeatures) else self.x
        return replace(self, x=x, edges=self.pattern_in_memory(), product=None, sparse=self.is_sparse)

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges as PyG's layers take them: [2, E] int64, sources over targets."""
        if isinstance(self.edges, Tensor):
            return self.edges
        if isinstance(self.edges, SampledAdjacency):
            return self.edges.edge_index
        return torch.stack([self.edges.col, self.edges.row]).long()

    @property
    def csr(self) -> CSR:
        """The edges by target, on the host."""
        pattern = self.edges if isinstance(self.edges, StoredPattern) else self.adj.pattern.to(torch.device("cpu"))
        return CSR(pattern.rowptr, pattern.col)

    def pattern_in_memory(self) -> Pattern:
        """Return the entries (target, source) on the host, in one array or mapped as one.

        Raises:
            InputError: the graph is stored, and its edges would have to be copied into memory and do not fit.
        """
        if not isinstance(self.edges, StoredPattern):
            return self.adj.pattern.to(torch.device("cpu"))
        csr = self.csr
        if csr.num_edges >= 2**31:  # torch wants int64 for the sources then
            check_room(8 * csr.num_edges, f"the sources of {csr.num_edges:,} edges")
        return _pattern(csr)

    @cached_property
    def adj(self) -> Adjacency:
        """The structure with its normalised operators and their products with x, computed once for all models."""
        if isinstance(self.edges, SampledAdjacency):
            adj: Adjacency = self.edges
        elif isinstance(self.edges, StoredPattern):
            adj = self._stored_adjacency
        elif isinstance(self.edges, Tensor):
            adj = Adjacency(self.edges, self.x.shape[0], self.x.dtype, self.edge_data.get("edge_weight"))
        else:
            adj = Adjacency.from_pattern(self.edges, self.x.dtype, self.edge_data.get("edge_weight"))
        return adj if self._is_csr else adj.with_cached_products(self.x, self.product)

    @property
    def _stored_adjacency(self) -> StoredAdjacency:
        assert isinstance(self.edges, StoredPattern)
        weight = self.edge_data.get("edge_weight")
        return StoredAdjacency(self.edges, self.x.dtype, None if weight is None else MappedEntries(weight))

    @cached_property
    def products(self) -> Products:
        """The matrices that PyG's layers multiply by."""
        return Products(self.dense)

    @cached_property
    def entry_data(self) -> Mapping[str, Tensor]:
        """`edge_data` in the order of the entries of `adj`, which are sorted by target."""
        if not self.edge_data or not isinstance(self.edges, Tensor) or bool((self.edges[1].diff() >= 0).all()):
            return self.edge_data
        order = torch.argsort(self.edges[1], stable=True)
        return {name: value.index_select(0, order) for name, value in self.edge_data.items()}

    @cached_property
    def features(self) -> Tensor | SparseMatrix:
        """`x`, as a sparse matrix where few entries are non-zero and this is faster (bags of words)."""
        if self._is_csr:
            return SparseMatrix.from_csr(self.x)
        return SparseMatrix.from_dense(self.x) if self.is_sparse and not self.is_stored else self.x

    @cached_property
    def dense(self) -> Tensor:
        """`x` as a dense tensor, for models that are not of `gistgnn.nn`."""
        return self.x.to_dense() if self._is_csr else self.x

    @cached_property
    def is_sparse(self) -> bool:
        """Whether `features` is a sparse matrix."""
        if self.sparse is not None:
            return self.sparse
        if self._is_csr:
            return True
        sample = sample_of(self.x)
        return int(torch.count_nonzero(sample)) < SPARSE_BELOW * sample.numel()

    @property
    def _is_csr(self) -> bool:
        return self.x.layout is torch.sparse_csr

    def select_columns(self, columns: Tensor) -> "Batch":
        """Return the batch with the input features `columns` alone; the prepared structure is shared."""
        if self._is_csr:
            return replace(self, x=SparseMatrix.from_csr(self.x).select_columns(columns).csr)
        columns = columns.to(self.x.device)
        x = self.x.index_select(1, columns)
        selected = replace(self, x=x, product=lambda operator: self.adj.aggregate(operator, self.x)[:, columns])
        selected.__dict__["adj"] = self.adj.with_cached_products(x, selected.product)
        if isinstance(self.features, SparseMatrix):
            selected.__dict__["features"] = self.features.select_columns(columns)
        return selected


def whole_graph(graph: Graph) -> Batch:
    """Return the whole graph as one batch with its splits; the loss is on its training nodes."""
    splits = {"train": graph.train, "validation": graph.val, "test": graph.test}
    nodes = graph.train.nonzero().squeeze(1)
    if isinstance(graph, ClusteredGraph):
        return _stored(graph, nodes, splits)
    edges = _pattern(graph.edges) if isinstance(graph.edges, CSR) else graph.edges
    return Batch(graph.x, edges, graph.y, nodes, splits=splits, edge_data=graph.edge_data)


def _stored(graph: ClusteredGraph, nodes: Tensor, splits: dict[str, Tensor]) -> Batch:
    """Return the whole graph as a batch whose features and edges are read from their files."""
    files, shape = graph.files, (graph.num_nodes, graph.num_nodes)
    edges = StoredPattern(graph.edges.rowptr, files.col, shape)
    given: dict[str, Any] = {"edge_data": graph.edge_data, "cluster_ptr": files.cluster_ptr}
    batch = Batch(graph.x, edges, graph.y, nodes, splits=splits, **given)
    assert isinstance(graph.x, StoredFeatures)
    return replace(batch, product=partial(product_in_folder, files, graph.x, batch._stored_adjacency))


def unshared(compute: Compute) -> dict[str, Tensor]:
    """Compute tensors for this process alone."""
    return compute()


def training_subgraph(graph: Graph, share: Share = unshared) -> Batch:
    """Return the training nodes and the edges between them as one batch: what inductive training sees."""

    def compute() -> dict[str, Tensor]:
        nodes = graph.train.nonzero().squeeze(1)
        number = graph.train.cumsum(0) - 1  # of a training node in the subgraph
        if isinstance(graph.edges, CSR):
            edges, inside = _induced(_pattern(graph.edges), graph.train, number)
        else:
            inside = graph.train[graph.edges].all(dim=0)
            edges = {"edges": number[graph.edges[:, inside]]}
        part = {"x": graph.x[nodes], "y": graph.y[nodes], **edges}
        return part | {name: value[inside] for name, value in graph.edge_data.items()}

    part = share(compute)
    nodes = len(part["x"])
    edges = part["edges"] if "edges" in part else Pattern(part["rowptr"], part["col"], (nodes, nodes))
    everyone = torch.arange(nodes, device=graph.x.device)
    return Batch(part["x"], edges, part["y"], everyone, edge_data={name: part[name] for name in graph.edge_data})


def _induced(edges: Pattern, kept: Tensor, number: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return ``rowptr`` and ``col`` of the edges between some nodes, and the mask [E] of these edges.

    The edges are looked at in pieces: all of them at once would take several times the memory of the result.

    Args:
        edges: all edges.
        kept: [N] bool, the nodes.
        number: [N], the nodes' new numbers.
    """
    col, inside, degrees = [], [], number.new_zeros(len(kept))
    for piece, _ in edges.pieces(_PIECE):
        inside.append(kept[piece.col] & kept[piece.row])
        col.append(number[piece.col[inside[-1]]].to(edges.col.dtype))
        degrees += torch.bincount(piece.row[inside[-1]], minlength=len(kept))
    rowptr = torch.cat([degrees.new_zeros(1), degrees[kept].cumsum(0)]).to(edges.rowptr.dtype)
    return {"rowptr": rowptr, "col": torch.cat(col)}, torch.cat(inside)


def _pattern(csr: CSR) -> Pattern:
    """Return the edges as the entries (target, source) of a matrix; `col` is not copied where its type fits.

    Raises:
        InputError: a file that they are mapped from is damaged: the products would read memory that is not theirs.
    """
    low, high = csr.col.aminmax() if csr.num_edges else (0, 0)
    if low < 0 or high >= csr.num_nodes:
        raise InputError(
            f"an edge begins at node {int(low if low < 0 else high)}, expected 0 to {csr.num_nodes - 1}: the graph's "
            "folder is damaged; convert the graph again"
        )
    dtype = index_dtype(csr.num_nodes, csr.num_edges)
    return Pattern(csr.rowptr.to(dtype), csr.col.to(dtype), (csr.num_nodes, csr.num_nodes))
