"""`Layer`, one graph layer; `Propagation`, a layer with one operator; `GNN`, a stack of layers;
`EnsembleModel`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeGuard, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.functional import WholeNorm, activate, select_rows
from gistgnn.nn.scaling import ScaledModel, plain_model, uncompiled
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.utils.checks import check_choice

Norm = Literal["none", "layer", "batch", "whole"]
Activation = Literal["relu", "elu"]

# Columns of a product with a weight that take, for one node, as long as something else; measured,
# on one thread.
COPIED = 16  # as to copy a node's features, and their gradients
SUMMED = 5  # as to add a node's features to a sum, along one edge


class Layer(nn.Module, ABC):
    """One graph layer, in three steps: message, aggregate, update.

    It leads from [N, in_features] to [N, out_features].

    ``message`` and ``update`` treat every node alone; only ``aggregate`` looks along the edges.
    Evaluation layer by layer calls them in turn: ``message`` for all nodes, then ``aggregate`` and
    ``update`` for a block of nodes after another. Then ``adj`` leads from a block's nodes and their
    sources to the block's nodes, which come first. For an ``aggregate`` that sums over several hops
    it leads to all of these, of which the last have no edges.
    """

    out_features: int  # columns of the output
    # the edge data that `aggregate` reads from the `Adjacency`
    edge_data: ClassVar[tuple[str, ...]] = ()
    heads: int = 0  # attention heads; 0: it does not attend

    @abstractmethod
    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return what every node sends along its edges: [N, k].

        ``adj`` may decide which equivalent form is cheaper.
        """

    @abstractmethod
    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Return what every node receives of the messages ``z``: [N, k]."""

    @abstractmethod
    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the output of nodes with features ``x`` that received ``a``.

        It is a new tensor, [N, out_features].
        """

    def forward(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return the layer's output before norm and activation: [N, out_features]."""
        return self.update(x, self.aggregate(self.message(x, adj), adj))


# The projection costs the same in both orders, so the sparse product decides: nnz·d_in or nnz·d_out
# multiply-adds. Sparse features are projected first, as Ā H would be dense. Constant features are
# aggregated once, and reused.
class Propagation(Layer):
    """A layer that computes Ā H Wᵀ as (Ā H) Wᵀ or Ā (H Wᵀ), whichever is cheaper."""

    edge_data = ("edge_weight",)
    operator: Operator  # the name of Ā among the graph's operators
    weight: nn.Parameter

    @property
    def neighbour_weight(self) -> Tensor:
        """W: [d_out, d_in]."""
        return self.weight

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return H or H Wᵀ: [N, d_in or d_out]."""
        d_out, d_in = self.neighbour_weight.shape
        if isinstance(x, Tensor) and (d_in <= d_out or adj.is_constant(x)):
            return x
        return project(x, self.neighbour_weight)

    def forward(
        self, x: Tensor | SparseMatrix, adj: Adjacency, nodes: Tensor | None = None
    ) -> Tensor:
        """Return the layer's output: [N, d_out].

        For dense ``x`` it may be that of some ``nodes``: [k], which is [k, d_out]. For these it
        sums over the edges of all nodes, and multiplies by W what these nodes receive.
        """
        if nodes is None:
            return super().forward(x, adj)
        assert isinstance(x, Tensor)
        a = self.aggregate(x, adj).index_select(0, nodes)
        return self.update(x.index_select(0, nodes), a)

    def saves_time(self, count: int, x: Tensor | SparseMatrix, adj: Adjacency) -> bool:
        """Tell whether the output of ``count`` nodes alone takes less time than that of all."""
        if not isinstance(x, Tensor) or not is_ours(self):
            return False
        d_out, d_in = self.neighbour_weight.shape
        nodes = adj.pattern.shape[0]
        saved = (nodes - count) * self.columns_of_update
        more_to_sum = adj.num_edges * max(1 - d_out / d_in, 0)  # than if it multiplied first
        return saved > COPIED * nodes + SUMMED * more_to_sum

    @property
    def columns_of_update(self) -> int:
        """How many columns `update` computes by products with weights, given Ā H."""
        return len(self.neighbour_weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        product = adj.cached_product(self.operator, z) if is_ours(self) else None
        return adj.aggregate(self.operator, z) if product is None else product

    def is_projected(self, x: Tensor | SparseMatrix, a: Tensor) -> bool:
        """Tell whether ``a`` is Ā (H Wᵀ); otherwise it is Ā H."""
        return isinstance(x, SparseMatrix) or a.shape[1] != self.neighbour_weight.shape[1]


def propagates_features(layer: nn.Module) -> TypeGuard[Propagation]:
    """Tell whether a layer multiplies its operator by its input, and by nothing else.

    A projection of the input counts as the input.
    """
    if not isinstance(layer, Propagation):
        return False
    kind = type(layer)
    return kind.message is Propagation.message and kind.aggregate is Propagation.aggregate


def is_ours(layer: nn.Module) -> bool:
    """Tell whether a layer is of `gistgnn.nn`, with all of its steps.

    None of them is replaced by a subclass of the user's.

    Our own steps only read what they get, and return new tensors. A user's may write into what they
    get, and may return a tensor that something else still needs.
    """
    steps = ("forward", "message", "aggregate", "update")
    return all(getattr(type(layer), step).__module__.startswith("gistgnn.") for step in steps)


class GNN(nn.Module):
    """A stack of layers.

    Norm, activation and dropout follow every hidden layer; nothing follows the last one (eq. 1).

    A subclass sets ``layer``, or defines ``make_layer``.

    Args:
        in_features: d_0, features of a node.
        widths: d_1, d_2, ..., the width of every hidden layer; at least one.
        out_features: number of classes.
        dropout: probability of zeroing a hidden feature in training, in [0, 1).
        norm: "none", "layer" (without parameters, as in the authors' code), "batch"
            (``nn.BatchNorm1d``), or "whole", which follows the activation: one mean and deviation
            over all nodes and features, as the authors' GCN has.
        activation: "relu" or "elu".
    """

    layer: ClassVar[type[Any]]  # the class of the layers, called with in_features and width

    def __init__(
        self,
        in_features: int,
        widths: Sequence[int],
        out_features: int,
        *,
        dropout: float = 0.0,
        norm: Norm = "none",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if not widths:
            raise InputError("no hidden layer: give at least one width, such as widths=(256, 256)")
        if min(in_features, *widths, out_features) < 1:
            sizes = f"{in_features} -> {tuple(widths)} -> {out_features}"
            raise InputError(f"sizes {sizes}: every layer needs at least one feature")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout {dropout}: give a probability in [0, 1)")
        check_choice("norm", norm, get_args(Norm))
        check_choice("activation", activation, get_args(Activation))
        self.in_features = in_features
        self.out_features = out_features
        self.dropout = dropout
        self.norm: Norm = norm  # a subclass may use it within its layers, too
        self.activation: Activation = activation
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        features = in_features
        for width in widths:
            layer = self.make_layer(features, width, last=False)
            features = layer.out_features
            self.convs.append(layer)
            self.norms.append(make_norm(norm, features))
        self.convs.append(self.make_layer(features, out_features, last=True))

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return the layer from ``in_features`` to ``width``. ``last`` marks the output layer."""
        return type(self).layer(in_features, width)

    def forward(
        self, x: Tensor | SparseMatrix, adj: Adjacency | Tensor, nodes: Tensor | None = None
    ) -> Tensor:
        """Return the scores of every node: [N, out_features].

        For a batch sampled by layers, they are those of its output nodes.

        Args:
            x: [N, in_features], dense, a CSR tensor or a `SparseMatrix`.
            adj: the graph of N nodes, or its edge_index: [2, E]. An Adjacency keeps its operators
                between calls.
            nodes: [k], whose scores are returned, [k, out_features], at less cost than all.
                Defaults to all nodes.
        """
        self.check_input(x)
        if isinstance(x, Tensor) and x.layout is torch.sparse_csr:
            x = SparseMatrix.from_csr(x)
        if isinstance(adj, Tensor):
            adj = Adjacency(adj, x.shape[0], x.dtype)
        if adj.num_nodes != x.shape[0]:
            raise InputError(
                f"the graph has {adj.num_nodes} nodes and x {x.shape[0]} rows: give one row per "
                "node"
            )
        if adj.dtype != x.dtype:
            raise InputError(
                f"the graph's operators are {adj.dtype} and x is {x.dtype}: use adj.to({x.dtype})"
            )
        self.check_structure(adj)
        *hidden, last = self.convs
        for number, (layer, norm) in enumerate(zip(hidden, self.norms, strict=True)):
            h = layer(x, adj.layer(number))
            x = activate(
                norm, h, self.dropout, self.training, self.activation, overwrite=is_ours(layer)
            )
        adj = adj.layer(len(hidden))
        if nodes is None:
            return last(x, adj)
        if isinstance(last, Propagation) and last.saves_time(len(nodes), x, adj):
            return last(x, adj, nodes)
        return select_rows(last(x, adj), nodes)

    @property
    def num_layers(self) -> int:
        """Graph layers, the output layer included: L + 1 for L hidden layers."""
        return len(self.convs)

    @property
    def edge_data(self) -> tuple[str, ...]:
        """The names of the edge data that the layers read."""
        return tuple(
            dict.fromkeys(name for layer in self.convs for name in cast(Layer, layer).edge_data)
        )

    def check_input(self, x: Tensor | SparseMatrix) -> None:
        if len(x.shape) != 2 or x.shape[1] != self.in_features:
            raise InputError(
                f"x has shape {list(x.shape)}: the model expects [N, {self.in_features}]"
            )

    def check_structure(self, adj: Adjacency) -> None:
        """Refuse a graph that the model cannot run on.

        Raises InputError if ``adj`` is for another number of layers, or does not support a layer
        that attends.
        """
        if adj.layers not in (None, self.num_layers):
            raise InputError(
                f"the batch is sampled for {adj.layers} layers, the model has {self.num_layers}"
            )
        for number, layer in enumerate(self.convs):
            if cast(Layer, layer).heads:
                _ = adj.layer(number).attention  # Structures without attention raise here.


class EnsembleModel(nn.Module):
    """The mean of the outputs of several models, which take the same arguments."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *arguments: Any, **by_name: Any) -> Tensor:
        """Call every member with the arguments and return the mean output: [N, C]."""
        outputs = []
        for member in self.members:
            if only_reads(member):
                outputs.append(member(*arguments, **by_name))
                continue
            # The member may write into the tensors that it gets, and the next one needs them.
            copies = map(_copy_of_tensor, arguments)
            copies_by_name = {name: _copy_of_tensor(value) for name, value in by_name.items()}
            outputs.append(member(*copies, **copies_by_name))
        return torch.stack(outputs).mean(dim=0)


def _copy_of_tensor(value: Any) -> Any:
    """Return a copy of a tensor; another value is returned as it is."""
    return value.clone() if isinstance(value, Tensor) else value


def members_of(model: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble, or ``[model]`` for any other model.

    The members of a compiled ensemble are not compiled.
    """
    ensemble = plain_model(model)
    if not isinstance(ensemble, EnsembleModel):
        return [model]
    outer = uncompiled(model)
    if isinstance(outer, ScaledModel):
        return [ScaledModel(outer.scaling, member) for member in ensemble.members]
    return list(ensemble.members)


def as_gnn(model: nn.Module) -> GNN | None:
    """Return the model as a `GNN`, also out of a `ScaledModel`.

    Returns None if it is another model, or overrides ``GNN.forward``.
    """
    model = plain_model(model)
    return model if isinstance(model, GNN) and type(model).forward is GNN.forward else None


def only_reads(model: nn.Module) -> bool:
    """Tell whether a model is known to write into nothing that it gets.

    Such a model is one of ours, with layers and norms of ours.
    """
    gnn = as_gnn(model)
    return (
        gnn is not None
        and all(map(is_ours, gnn.convs))
        and all(type(norm) in _NORMS for norm in gnn.norms)
    )


def row_wise(model: nn.Module) -> GNN | None:
    """Return the model as a `GNN` that may run for some nodes after others.

    Returns None if its norm is over all nodes.
    """
    gnn = as_gnn(model)
    return None if gnn is None or gnn.norm == "whole" else gnn


def project(h: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return H Wᵀ + b: [N, d_out].

    ``h`` is [N, d_in], dense or sparse, and ``weight`` is [d_out, d_in].
    """
    if isinstance(h, Tensor):
        return F.linear(h, weight, bias)
    return h @ weight.t() if bias is None else h @ weight.t() + bias


_NORMS = (nn.Identity, nn.LayerNorm, nn.BatchNorm1d, WholeNorm)  # what `make_norm` returns


def make_norm(norm: Norm, features: int) -> nn.Module:
    """Return the norm of a kind for ``features`` columns."""
    if norm == "layer":
        return nn.LayerNorm(features, elementwise_affine=False)
    if norm == "whole":
        return WholeNorm()
    return nn.BatchNorm1d(features) if norm == "batch" else nn.Identity()
