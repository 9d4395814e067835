"""What a model is trained on in one step."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.graphs import CSR, Graph
from gistgnn.graphs.cache import derived
from gistgnn.graphs.checks import check_room, dense
from gistgnn.graphs.csr import check_sources
from gistgnn.graphs.features import SPARSE_BELOW, nonzero_share, rows_of
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pyg_layers import Products
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.tensors import column_blocks, copied, tensor_digest

_PIECE = 2**22  # edges

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Batch:
    """A graph or a part of one, with its labels.

    Args:
        x: node features, [N, F]; a CSR tensor where they are a sparse matrix.
        edges: a CSR [N, N] of entries (target, source), or sampled edges. An edge_index [2, E]
            becomes a CSR.
        y: labels, [N] class indices or [N, K] multi-label targets; only of the output nodes, which
            come first, where a batch is sampled by layers.
        loss_nodes: indices of the nodes whose loss counts.
        product: returns the product of an operator with x. Defaults to computing it with these
            edges (see `Adjacency.cache_products`).
        sparse: whether `features` is a sparse matrix. Defaults to what suits x. Parts of a graph
            do as the whole graph does.
        splits: the nodes whose predictions are scored, as masks [N] by the names of the splits, if
            they are known.
        loss_weights: a weight for every loss node's loss; the batch's loss is then the weighted
            sum. Defaults to the mean.
        edge_data: the edges' weights, features and types, by name (see `Graph`), in the order of
            the edges.
        cluster_ptr: [c + 1], where each cluster begins, if the nodes are in the order of clusters.
        folder: of a graph in a folder of clusters. Then x and edges are mapped from files on the
            host, wherever y is, and may be larger than memory. Without a folder they are in memory.

    Attributes:
        adj: the structure with its normalised operators and their products with x, computed once
            for all models.
    """

    x: Tensor
    edges: Tensor | CSR | SampledAdjacency
    y: Tensor
    loss_nodes: Tensor
    product: Callable[[Operator], Tensor] | None = None
    sparse: bool | None = None
    splits: dict[str, Tensor] | None = None
    loss_weights: Tensor | None = None
    edge_data: Mapping[str, Tensor] = field(default_factory=dict)
    cluster_ptr: Tensor | None = None
    folder: Path | None = None
    adj: Adjacency = field(init=False)

    def __post_init__(self) -> None:
        edges = self.edges
        data = self.edge_data
        if isinstance(edges, Tensor):
            edges, order = CSR.from_entries(
                edges[1], edges[0], (len(self.x), len(self.x)), ("target", "source")
            )
            if order is not None:
                data = {name: value.index_select(0, order) for name, value in data.items()}
        weight = data.get("edge_weight")
        adj = Adjacency.from_csr(edges, self.dtype, weight) if isinstance(edges, CSR) else edges
        if self.x.layout is not torch.sparse_csr:
            adj = adj.with_cached_products(self.x, self.product)
        self.__dict__.update(edges=edges, edge_data=data, adj=adj)

    @property
    def is_stored(self) -> bool:
        """Whether features and edges are mapped from a folder of clusters.

        Then they may be larger than memory.
        """
        return self.folder is not None

    @property
    def device(self) -> torch.device:
        return self.y.device if self.is_stored else self.x.device

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def in_memory(self) -> "Batch":
        """Return the batch with features and edges in memory, on the models' device.

        Raises:
            InputError: they have to be copied, and do not fit in memory.
        """
        if not self.is_stored:
            return self
        x = self.x.to(self.device)
        data = {name: value.to(self.device) for name, value in self.edge_data.items()}
        edges = self.csr.to(self.device)
        return replace(
            self, x=x, edges=edges, edge_data=data, product=None, sparse=self.is_sparse, folder=None
        )

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges as PyG's layers take them: [2, E] int64, sources over targets."""
        if isinstance(self.edges, SampledAdjacency):
            return self.edges.edge_index
        return self.adj.pattern.edge_index()

    @property
    def csr(self) -> CSR:
        """The entries (target, source) on the host, in memory or mapped.

        For errors see `in_memory`.
        """
        if not self.is_stored:
            return self.adj.pattern.to("cpu")
        if (count := self.adj.num_edges) >= 2**31:  # torch wants int64 for the sources then
            check_room(8 * count, f"the sources of {count:,} edges")
        return _checked(self.adj.pattern)

    @cached_property
    def products(self) -> Products:
        return Products(self.dense)

    @cached_property
    def features(self) -> Tensor | SparseMatrix:
        """`x`, as a sparse matrix where few entries are not zero, as of words: this is faster."""
        if self.is_csr:
            return SparseMatrix.from_csr(self.x)
        if self.is_sparse and not self.is_stored:
            return SparseMatrix.from_dense(self.x)
        return self.x

    @cached_property
    def dense(self) -> Tensor:
        """`x` as a dense tensor, for models that are not of `gistgnn.nn`."""
        return dense(self.x)

    @cached_property
    def is_sparse(self) -> bool:
        if self.sparse is not None or self.is_csr:
            return self.sparse is not False
        return nonzero_share(self.x) < SPARSE_BELOW

    @property
    def is_csr(self) -> bool:
        """Whether `x` is a CSR tensor."""
        return self.x.layout is torch.sparse_csr

    def x_of(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes, by number: [k, F], a CSR tensor where `x` is one."""
        return rows_of(self.x, nodes)

    def select_columns(self, columns: Tensor) -> "Batch":
        """Return the batch with the input features `columns` alone.

        The prepared structure is shared.
        """
        if self.is_csr:
            x = SparseMatrix.from_csr(self.x).select_columns(columns).csr
            selected = replace(self, x=x)
            selected.__dict__["adj"] = self.adj
            return selected
        columns = columns.to(self.x.device)
        x = self.x.index_select(1, columns)

        def select_product(operator: Operator) -> Tensor:
            product = self.adj.cached_product(operator, self.x)
            assert product is not None
            return product[:, columns]

        selected = replace(self, x=x, product=select_product)
        selected.__dict__["adj"] = self.adj.with_cached_products(x, selected.product)
        if isinstance(self.features, SparseMatrix):
            selected.__dict__["features"] = self.features.select_columns(columns)
        return selected


def whole_graph(graph: Graph) -> Batch:
    """Return the whole graph as one batch with its splits; the loss is on its training nodes."""
    splits = {"train": graph.train, "validation": graph.val, "test": graph.test}
    edges = _checked(graph.edges) if graph.folder is None else graph.edges
    batch = Batch(
        graph.x,
        edges,
        graph.y,
        graph.train.nonzero().squeeze(1),
        splits=splits,
        edge_data=graph.edge_data,
        cluster_ptr=graph.cluster_ptr,
        folder=graph.folder,
    )
    if graph.folder is None or graph.cluster_ptr is None:
        return batch.in_memory()
    adj = batch.adj.with_cached_products(None)
    return replace(batch, product=partial(product_in_folder, graph.folder, graph, adj))


def product_in_folder(folder: Path, graph: Graph, adj: Adjacency, operator: Operator) -> Tensor:
    """Return Ā x: [N, F] float32, mapped from the graph's folder.

    It is computed if the folder does not have it. What is in the folder has a name with the digests
    of all that the product depends on: the features, the edges and their weights.

    Args:
        folder: of the graph.
        graph: its features and edges are mapped from the folder.
        adj: the edges of the graph, as they are multiplied.
        operator: Ā.
    """
    x = graph.x
    nodes, features = x.shape

    def fill(out: npt.NDArray[np.float32]) -> None:
        blocks = column_blocks(
            features, max(available_bytes(torch.device("cpu")) // 2 // (4 * nodes), 1)
        )
        product = f"{size(out.nbytes)} in {folder}"
        log.info(f"the product of the edges with the features is computed once and kept: {product}")
        times = "once" if len(blocks) == 1 else f"{len(blocks)} times"
        log.info(f"for it the features are read {times}")
        # Blocks are in files of their own, as a page of the product has all columns.
        parts: list[npt.NDArray[np.float32]] = []
        for columns in blocks:
            block = copied(x[:, columns], torch.device("cpu"), torch.float32)
            width = block.shape[1]
            specs = {"block": (torch.Size([nodes, width]), torch.float32)}
            part = out if width == features else temporary_tensors(specs)["block"].numpy()
            for rows in adj.chunks():
                part[rows] = (adj.rows(operator, rows) @ block).numpy()
            parts.append(part)
            del block  # before the next one is read
        if len(parts) > 1:
            for rows in adj.chunks():
                out[rows] = np.concatenate([part[rows] for part in parts], axis=1)

    weights = None if graph.edge_weight is None else tensor_digest(graph.edge_weight)
    facts = [operator, tensor_digest(x), graph.edges.digest(), weights]
    return derived(folder, f"product-{operator}", facts, (nodes, features), fill)


def training_subgraph(graph: Graph) -> Batch:
    """Return the training nodes and the edges between them as one batch.

    Inductive training sees nothing else.
    """
    edges = _checked(graph.edges)
    train = graph.train.to(graph.x.device)
    device = graph.y.device
    # The nodes of a folder stay on the host.
    number_in_subgraph = train.cumsum(0) - 1  # of a training node
    cols = []
    insides = []
    degrees = number_in_subgraph.new_zeros(len(train))
    # All edges at once would take several times the memory of the result.
    for piece, _ in edges.pieces(_PIECE):
        inside = train[piece.col] & train[piece.row]
        insides.append(inside)
        cols.append(number_in_subgraph[piece.col[inside]].to(edges.col.dtype))
        degrees += torch.bincount(piece.row[inside], minlength=len(train))
    rowptr = torch.cat([degrees.new_zeros(1), degrees[train].cumsum(0)]).to(edges.rowptr.dtype)
    x = rows_of(graph.x, train.nonzero().squeeze(1)).to(device)
    is_inside = torch.cat(insides)
    data = {name: value[is_inside].to(device) for name, value in graph.edge_data.items()}
    inner = CSR(rowptr.to(device), torch.cat(cols).to(device))
    return Batch(
        x, inner, graph.y[graph.train], torch.arange(len(x), device=device), edge_data=data
    )


def _checked(edges: CSR) -> CSR:
    """Return edges for products, whose `col` is not copied where its type fits.

    A damaged file of edges is refused.
    """
    check_sources(edges.col, edges.num_nodes)
    return edges.for_products()
