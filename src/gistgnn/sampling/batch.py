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

Compute = Callable[[], dict[str, Tensor]]
Share = Callable[[Compute], dict[str, Tensor]]
"""Computes tensors once for all processes on a machine (see `gistgnn.distributed.Machine.share`)."""

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
        """The structure with its normalised operators and their products with x, computed once for all models."""
        if isinstance(self.edges, SampledAdjacency):
            adj: Adjacency = self.edges
        elif isinstance(self.edges, Tensor):
            adj = Adjacency(self.edges, self.x.shape[0], self.x.dtype)
        else:
            adj = Adjacency.from_pattern(self.edges, self.x.dtype)
        return adj if self._is_csr else adj.with_cached_products(self.x, self.product)

    @cached_property
    def features(self) -> Tensor | SparseMatrix:
        """`x`, as a sparse matrix where few entries are non-zero and this is faster (bags of words)."""
        if self._is_csr:
            return SparseMatrix.from_csr(self.x)
        return SparseMatrix.from_dense(self.x) if self.is_sparse else self.x

    @cached_property
    def dense(self) -> Tensor:
        """`x` as a dense tensor, for models that are not of `gistgnn.nn`."""
        return self.x.to_dense() if self._is_csr else self.x

    @cached_property
    def is_sparse(self) -> bool:
        """Whether `features` is a sparse matrix."""
        if self.sparse is not None:
            return self.sparse
        return self._is_csr or int(torch.count_nonzero(self.x)) < SPARSE_BELOW * self.x.numel()

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
    return Batch(graph.x, graph.edge_index, graph.y, graph.train.nonzero().squeeze(1), splits=splits)


def unshared(compute: Compute) -> dict[str, Tensor]:
    """Compute tensors for this process alone."""
    return compute()


def training_subgraph(graph: Graph, share: Share = unshared) -> Batch:
    """Return the training nodes and the edges between them as one batch: what inductive training sees."""

    def compute() -> dict[str, Tensor]:
        nodes = graph.train.nonzero().squeeze(1)
        inside = graph.train[graph.edge_index].all(dim=0)
        number = graph.train.cumsum(0) - 1  # of a training node in the subgraph
        return {"x": graph.x[nodes], "edges": number[graph.edge_index[:, inside]], "y": graph.y[nodes]}

    part = share(compute)
    everyone = torch.arange(len(part["x"]), device=graph.x.device)
    return Batch(part["x"], part["edges"], part["y"], everyone)


_ARGUMENTS: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()  # needed at every step, slow to inspect


def _argument_names(model: nn.Module) -> list[str]:
    """Return the names of the arguments that `model.forward` takes by position."""
    if model not in _ARGUMENTS:
        compiled = members_of(getattr(model, "_orig_mod", model))[0]  # torch.compile hides the arguments
        parameters = inspect.signature(compiled.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        varying = any(p.kind is p.VAR_POSITIONAL for p in parameters)  # forward(*args) is called as PyG's models are
        _ARGUMENTS[model] = ["x", "edge_index"] if varying and len(names) < 2 else names
    return _ARGUMENTS[model]


def arguments(model: nn.Module, batch: Batch) -> tuple[Any, ...]:
    """Return the arguments of a model's forward for a batch, chosen by their names.

    `forward(x, adj)`, as in `gistgnn.nn`, gets the prepared `Adjacency`, and features that may be a `SparseMatrix`. Any
    other second argument gets PyG's `edge_index` [2, E]. `forward(x)` gets the features alone.
    """
    names = _argument_names(model)
    if len(names) > 1 and names[1] == "adj":
        return batch.features, batch.adj
    return (batch.dense, batch.edge_index) if len(names) > 1 else (batch.dense,)


def forward(model: nn.Module, batch: Batch) -> Tensor:
    """Return the model's output for every node of the batch, [N, C]; `arguments` says how it is called.

    Where a batch is sampled by layers, a model that takes an `Adjacency` has an output for the first nodes only.

    Raises:
        InputError: the output is not one tensor with a row for each node.
    """
    inputs = arguments(model, batch)
    out, nodes = model(*inputs), batch.x.shape[0]
    if isinstance(inputs[-1], SampledAdjacency):
        nodes = inputs[-1].num_outputs
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != nodes:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"the model returned {got}, expected one tensor [{nodes} nodes, classes]")
    return out


def check_fits(model: nn.Module, batch: Batch, classes: int | None) -> None:
    """Refuse a model that cannot take the graph's features or predict its classes.

    It runs a model that is not of `gistgnn.nn` once. It checks every member of an ensemble. `classes` is None where any
    number of outputs is fine.

    Raises:
        InputError: the model's input or output size does not fit the graph.
    """
    if isinstance(model, EnsembleModel):
        for member in model.members:
            check_fits(member, batch, classes)
        return
    if gnn := as_gnn(model):
        gnn.check_input(batch.x)
        gnn.check_structure(batch.adj)
        outputs = gnn.out_features
    else:
        try:
            with torch.no_grad():
                outputs = forward(model, batch).shape[1]
        except InputError:
            raise
        except Exception as error:  # a user's model may raise anything
            raise InputError(f"the model cannot take this graph's x {list(batch.x.shape)}: {reason(error)}") from error
    if classes is not None and outputs != classes:
        raise InputError(f"the model gives {outputs} classes, the graph has {classes}: build it with {classes} outputs")
