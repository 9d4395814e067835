"""What a model is trained on in one step."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.graphs import Graph
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.ensemble_model import EnsembleModel, members_of
from gistgnn.nn.gnn import as_gnn
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sampled import SampledAdjacency

Make = Callable[[], dict[str, Tensor]]
Share = Callable[[Make], dict[str, Tensor]]  # gives what is made, which others may have in their memory, too

SPARSE_BELOW = 0.1  # share of non-zero features under which the sparse product is several times faster


@dataclass(frozen=True, eq=False)
class Batch:
    """A graph, or a part of one, with its labels.

    Args:
        x: node features, [N, F]; a CSR tensor where a sampler has gathered rows of sparse ones.
        edges: source -> target, as an edge_index [2, E], as a Pattern [N, N] of entries (target, source), or sampled.
        y: labels, [N] class indices or [N, K] multi-label targets; of the output nodes, the first ones, where a
            batch is sampled by layers.
        loss_nodes: indices of the nodes whose loss counts.
        product: the product of an operator with x where these edges give another (`Adjacency.cache_products`).
        sparse: whether `features` is a sparse matrix; None: as x itself says. A part does as the whole graph does.
        splits: the nodes whose predictions are scored, masks [N] by the names of the splits; None: not known.
        loss_weights: of every loss node's loss in the batch's, which is then their sum; None: their mean.
    """

    x: Tensor
    edges: Tensor | Pattern | SampledAdjacency
    y: Tensor
    loss_nodes: Tensor
    product: Callable[[Operator], Tensor] | None = None
    sparse: bool | None = None
    splits: dict[str, Tensor] | None = None
    loss_weights: Tensor | None = None

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges as PyG's layers take them: [2, E] int64, sources over targets."""
        if isinstance(self.edges, Tensor):
            return self.edges
        if isinstance(self.edges, SampledAdjacency):
            return self.edges.edge_index
        return torch.stack([self.edges.col, self.edges.row]).long()

    @cached_property
    def adj(self) -> Adjacency:
        """The structure, with its normalised operators, and their products with x, once for all who use the batch."""
        if isinstance(self.edges, SampledAdjacency):
            adj: Adjacency = self.edges
        elif isinstance(self.edges, Tensor):
            adj = Adjacency(self.edges, self.x.shape[0], self.x.dtype)
        else:
            adj = Adjacency.from_pattern(self.edges, self.x.dtype)
        return adj if self._is_csr else adj.with_cached_products(self.x, self.product)

    @cached_property
    def features(self) -> Tensor | SparseMatrix:
        """`x`, as a sparse matrix where so few entries are non-zero that this is faster (bags of words)."""
        if self._is_csr:
            return SparseMatrix.from_csr(self.x)
        return SparseMatrix.from_dense(self.x) if self.is_sparse else self.x

    @cached_property
    def dense(self) -> Tensor:
        """`x`, as other models than those of `gistgnn.nn` take it."""
        return self.x.to_dense() if self._is_csr else self.x

    @cached_property
    def is_sparse(self) -> bool:
        """Whether `features` is a sparse matrix."""
        if self.sparse is not None:
            return self.sparse
        if self._is_csr:
            return True
        return int(torch.count_nonzero(self.x)) < SPARSE_BELOW * self.x.numel()

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
    """Return the whole graph as one batch, the loss on its training nodes, with its splits."""
    splits = {"train": graph.train, "validation": graph.val, "test": graph.test}
    return Batch(graph.x, graph.edge_index, graph.y, graph.train.nonzero().squeeze(1), splits=splits)


def alone(make: Make) -> dict[str, Tensor]:
    """What is made is for this process alone; see `gistgnn.distributed.Machine.share`."""
    return make()


def training_subgraph(graph: Graph, share: Share = alone) -> Batch:
    """Return the training nodes and the edges between them as one batch: what inductive training sees."""

    def make() -> dict[str, Tensor]:
        nodes = graph.train.nonzero().squeeze(1)
        inside = graph.train[graph.edge_index].all(dim=0)
        number = graph.train.cumsum(0) - 1  # of a training node in the subgraph
        return {"x": graph.x[nodes], "edges": number[graph.edge_index[:, inside]], "y": graph.y[nodes]}

    found = share(make)
    everyone = torch.arange(len(found["x"]), device=graph.x.device)
    return Batch(found["x"], found["edges"], found["y"], everyone)


_WANTED: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()  # asked at every step, and slow to find out


def _wants(model: nn.Module) -> list[str]:
    """The names of the arguments that `model.forward` takes by position."""
    if model not in _WANTED:
        compiled = members_of(getattr(model, "_orig_mod", model))[0]  # torch.compile hides the arguments
        parameters = inspect.signature(compiled.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        varying = any(p.kind is p.VAR_POSITIONAL for p in parameters)  # forward(*args) is called as PyG's models are
        _WANTED[model] = ["x", "edge_index"] if varying and len(names) < 2 else names
    return _WANTED[model]


def arguments(model: nn.Module, batch: Batch) -> tuple[Any, ...]:
    """Return what the model is called with for a batch, by the names of its forward's arguments.

    `forward(x, adj)` gets the prepared `Adjacency`, and features that may be a `SparseMatrix` (the models of
    `gistgnn.nn`); any other second argument gets PyG's `edge_index` [2, E]; `forward(x)` gets the features alone.
    """
    wants = _wants(model)
    if len(wants) > 1 and wants[1] == "adj":
        return batch.features, batch.adj
    return (batch.dense, batch.edge_index) if len(wants) > 1 else (batch.dense,)


def forward(model: nn.Module, batch: Batch) -> Tensor:
    """Return the model's output for every node of the batch, [N, C]; see `arguments` for how it is called.

    Where a batch is sampled by layers, a model that takes its structure gives an output for the first nodes alone.

    Raises:
        InputError: the output is not one tensor with a row for each node.
    """
    given = arguments(model, batch)
    out, nodes = model(*given), batch.x.shape[0]
    if isinstance(given[-1], SampledAdjacency):
        nodes = given[-1].num_outputs
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != nodes:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"the model returned {got}, expected one tensor [{nodes} nodes, classes]")
    return out


def check_fits(model: nn.Module, batch: Batch, classes: int) -> None:
    """Refuse a model that cannot take the graph's features or give its classes; another's than ours is run once.

    Raises:
        InputError: the model's input or output size, or that of a member of an ensemble, does not fit the graph.
    """
    if isinstance(model, EnsembleModel):
        for member in model.members:
            check_fits(member, batch, classes)
        return
    if gnn := as_gnn(model):
        gnn.check_input(batch.x)
        gnn.check_structure(batch.adj)
        given = gnn.out_features
    else:
        given = _run_once(model, batch)
    if given != classes:
        raise InputError(f"the model gives {given} classes, the graph has {classes}: build it with {classes} outputs")


def _run_once(model: nn.Module, batch: Batch) -> int:
    """The columns of a model's output."""
    try:
        with torch.no_grad():
            return forward(model, batch).shape[1]
    except InputError:
        raise
    except Exception as error:  # a user's model may raise anything
        raise InputError(f"the model cannot take this graph's x {list(batch.x.shape)}: {reason(error)}") from error
