"""PyG's layers multiply by CSR matrices of a batch, where that gives the same as passing messages
along its edges.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from inspect import signature
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from gistgnn.graphs.csr import CSR
from gistgnn.nn.sparse import AtVersion, SparseMatrix

_SUMS = ("add", "sum", "mean")  # what a layer may do with the messages that a node gets
_HALF = (torch.bfloat16, torch.float16)
_STEPS = ("propagate", "message", "aggregate")
_HOOKS = tuple(f"_{step}_forward_{kind}" for step in _STEPS for kind in ("pre_hooks", "hooks"))
# Matrices of a batch: a model that makes other edges at every step gets no more.
_MOST_MATRICES = 8
# Classes of PyG in which nothing but their own linear layer reads the sum.
_SUMS_THEN_MULTIPLIES = ("SAGEConv", "GraphConv", "SGConv")

# By model, the layers that may multiply.
_LAYERS: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()


class _Matrix(NamedTuple):
    """A matrix, and what it was made of."""

    edges: AtVersion
    weight: AtVersion | None
    mean: bool  # it averages; otherwise it sums
    matrix: SparseMatrix

    @property
    def is_current(self) -> bool:
        """Whether nothing has been written into the edges and the weights since."""
        return _is_unchanged(self.edges) and _is_unchanged(self.weight)


class Products:
    """The matrices of a batch by the values of edges, which PyG's layers make anew.

    ``x``: [N, F] are its features.
    """

    # A model's code may write into every tensor that it gets. So a tensor is known by its version
    # as well, and what is kept here is handed out as a copy, unless only PyG's own code reads it.
    def __init__(self, x: Tensor) -> None:
        self.x = x
        self._features = AtVersion(x)
        self._matrices: list[_Matrix] = []
        self._products_of_x: dict[SparseMatrix, AtVersion] = {}
        # See `keep_normalised`.
        self._normalised: dict[tuple[Any, ...], tuple[AtVersion | None, ...]] = {}

    def matrix(
        self, edges: Tensor, weight: Tensor | None, dtype: torch.dtype, *, mean: bool
    ) -> SparseMatrix | None:
        """Return the matrix that sums, or averages, what comes along ``edges``: [2, E].

        Returns None if there are too many matrices.
        """
        self._matrices = [entry for entry in self._matrices if entry.is_current]
        for entry in self._matrices:
            same_values = entry.mean == mean and entry.matrix.dtype == dtype
            same_edges = same_values and _equal(edges, entry.edges.tensor)
            if same_edges and _equal(weight, _tensor_of(entry.weight)):
                return entry.matrix
        if len(self._matrices) == _MOST_MATRICES:
            return None
        pattern, order = CSR.from_entries(edges[1], edges[0], (len(self.x), len(self.x)))
        if weight is None:
            value = torch.ones(pattern.num_edges, device=edges.device)
        else:
            value = weight.detach()
        value = (value if order is None else value.index_select(0, order)).to(dtype)
        if mean:
            value = value / pattern.rowptr.diff().to(value.dtype).index_select(0, pattern.row)
        matrix = SparseMatrix.from_pattern(pattern, value)
        weight_at_version = None if weight is None else AtVersion(weight)
        self._matrices.append(_Matrix(AtVersion(edges), weight_at_version, mean, matrix))
        return matrix

    def normalised(self, made_of: tuple[Any, ...]) -> tuple[Tensor | None, ...] | None:
        """Return the edges and weights that `keep_normalised` got for the same ``made_of``.

        Returns None if there are none, or if they have been written into.
        """
        tensors = self._normalised.get(made_of)
        if tensors is None or not all(map(_is_unchanged, tensors)):
            return None
        return tuple(map(_tensor_of, tensors))

    def keep_normalised(self, made_of: tuple[Any, ...], made: tuple[Tensor | None, ...]) -> None:
        """Keep edges and weights that a layer has made of the batch's.

        ``made_of`` is all else that they depend on.
        """
        self._normalised[made_of] = tuple(
            None if value is None else AtVersion(value) for value in made
        )

    def multiply(self, matrix: SparseMatrix, h: Tensor, *, read_only: bool = False) -> Tensor:
        """Return the product; that with the batch's own features is computed once.

        The caller may write into the result, unless it says that it is ``read_only``: then the
        result may be the tensor that stays here.
        """
        if not self._features.is_same(h):
            return matrix @ h
        product = self._products_of_x.get(matrix)
        if product is None or not product.is_unchanged:
            product = AtVersion(matrix @ h)
            self._products_of_x[matrix] = product
        return product.tensor if read_only else product.tensor.clone()


def _tensor_of(tensor: AtVersion | None) -> Tensor | None:
    return None if tensor is None else tensor.tensor


def _is_unchanged(tensor: AtVersion | None) -> bool:
    return tensor is None or tensor.is_unchanged


def sparse_layers(
    model: nn.Module, products: Products, edge_index: Tensor, weight: Tensor | None = None
) -> AbstractContextManager[None]:
    """Let PyG's layers in a model multiply by CSR matrices of a batch, within the block."""
    edges_at_version = AtVersion(edge_index)
    weight_at_version = None if weight is None else AtVersion(weight)
    changes = []
    for layer in multiplying_layers(model):
        attributes = {"propagate": partial(_propagate, layer, products)}
        # A forward of the user's own may change the edges.
        has_own_forward = "forward" in vars(layer) or not _is_of_pyg(type(layer).forward)
        may_cache = "_cached_edge_index" in vars(layer) and not getattr(layer, "cached", True)
        if may_cache and not has_own_forward:
            attributes["forward"] = partial(
                _forward, layer, products, edges_at_version, weight_at_version
            )
        changes.append((layer, attributes))
    return _changed(changes)


def layers_on_rows(
    model: nn.Module, x: Tensor, normalised: tuple[Tensor, Tensor] | None
) -> AbstractContextManager[None]:
    """Let PyG's layers in a model run on a few nodes, ``x``: [n, F].

    Some of these have all edges of the whole graph.

    Layers multiply where they may, and those that normalise as `GCNConv` take the edges and weights
    ``normalised``.
    """
    products = Products(x)
    changes: list[tuple[nn.Module, dict[str, Any]]]
    changes = [
        (layer, {"propagate": partial(_propagate, layer, products)})
        for layer in multiplying_layers(model)
    ]
    attributes = {"_cached_edge_index": normalised, "cached": True}
    return _changed(
        [*changes, *((layer, attributes) for layer in model.modules() if _normalises(layer))]
    )


@contextmanager
def _changed(changes: Sequence[tuple[nn.Module, dict[str, Any]]]) -> Iterator[None]:
    """Let layers have other attributes within the block."""
    # In their dictionaries: a module's own way to set attributes takes longer than a small product.
    values_before = [
        {name: vars(layer)[name] for name in attributes if name in vars(layer)}
        for layer, attributes in changes
    ]
    try:
        for layer, attributes in changes:
            vars(layer).update(attributes)
        yield
    finally:
        for (layer, attributes), values in zip(changes, values_before, strict=True):
            for name in attributes:
                vars(layer).pop(name, None)
            vars(layer).update(values)


def normalises(model: nn.Module) -> bool:
    """Tell whether layers of PyG in a model normalise the edges as `GCNConv` does.

    It divides by the degrees of both ends.
    """
    return any(_normalises(layer) for layer in model.modules())


def _normalises(layer: nn.Module) -> bool:
    attributes = vars(layer)
    default = attributes.get("add_self_loops") and not attributes.get("improved")
    return bool("_cached_edge_index" in attributes and attributes.get("normalize") and default)


def multiplying_layers(model: nn.Module) -> list[Any]:
    """Return the layers of PyG in a model that may multiply: PyG says so.

    They are those that the model has at its first call.
    """
    if model not in _LAYERS:
        # Compiled code stays as it is.
        compiled = any(hasattr(part, "_orig_mod") for part in model.modules())
        is_used = "torch_geometric.nn" in sys.modules and not compiled
        _LAYERS[model] = (
            [layer for layer in model.modules() if _may_multiply(layer)] if is_used else []
        )
    return _LAYERS[model]


def _may_multiply(layer: nn.Module) -> bool:
    from torch_geometric.nn import MessagePassing

    if not isinstance(layer, MessagePassing) or "propagate" in vars(layer):
        return False
    kind = type(layer)
    return (
        layer.fuse
        and layer.aggr in _SUMS
        and (layer.flow, layer.node_dim, layer.decomposed_layers) == ("source_to_target", -2, 1)
        and not _is_watched(layer)
        and _is_of_pyg(kind.message)  # features times weights; a user's may be anything
        and _is_of_pyg(kind.propagate)
        and signature(layer.message).parameters.keys() <= {"x_j", "edge_weight"}
        and kind.aggregate is MessagePassing.aggregate
        and kind.update is MessagePassing.update
    )


def _is_of_pyg(method: Any) -> bool:
    """Tell whether a method is PyG's.

    PyG has written it, or has generated a `propagate` for a class of the user's.
    """
    return method.__module__.startswith("torch_geometric.") or method.__module__.endswith(
        "_propagate"
    )


def _is_watched(layer: Any) -> bool:
    """Tell whether something looks at the layer's messages."""
    return bool(layer.explain) or any(getattr(layer, hooks) for hooks in _HOOKS)


def _forward(
    layer: Any,
    products: Products,
    edge_index: AtVersion,
    weight: AtVersion | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call a layer with the normalised edges that it would make of the batch's.

    It makes them itself if no layer like it has made them before.
    """
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    features = [value for value in tensors if _are_features(value)]
    edges_and_weights = [value for value in tensors if not _are_features(value)]
    is_of_batch = (
        bool(edges_and_weights)
        and edge_index.is_same(edges_and_weights[0])
        and all(weight is not None and weight.is_same(value) for value in edges_and_weights[1:])
    )
    if not is_of_batch:
        return type(layer).forward(layer, *args, **kwargs)  # the model has changed the edges
    options = (
        getattr(layer, name, None) for name in ("improved", "add_self_loops", "normalize", "flow")
    )
    # Self-loops are of all nodes: a model may have added some.
    nodes_and_types = tuple((x.shape[:-1], x.dtype) for x in features)
    made_of = (type(layer), *options, nodes_and_types, len(edges_and_weights))
    attributes = vars(layer)
    attributes.update(_cached_edge_index=products.normalised(made_of), cached=True)
    try:
        return type(layer).forward(layer, *args, **kwargs)
    finally:
        made = attributes["_cached_edge_index"]
        attributes.update(_cached_edge_index=None, cached=False)
        if made is not None and all(value is None or _is_constant(value) for value in made):
            products.keep_normalised(made_of, made)


def _are_features(argument: Tensor) -> bool:
    """Tell whether an argument of a layer is features, and not edges or their weights."""
    return argument.dim() > 1 and argument.is_floating_point()


def _propagate(
    layer: Any, products: Products, edge_index: Tensor, size: Any = None, **arguments: Any
) -> Tensor:
    """Do what `layer.propagate` does, by a product where edges and weights are constants."""
    x = arguments.get("x")
    weight = arguments.get("edge_weight")
    sources, targets = x if isinstance(x, (tuple, list)) else (x, None)
    message_dtype = sources.dtype
    if weight is not None:
        message_dtype = torch.promote_types(sources.dtype, weight.dtype)
    # The CPU has no sparse product in bfloat16.
    dtype = torch.float32 if message_dtype in _HALF else message_dtype
    nodes = len(products.x)
    constant = (
        _is_constant(edge_index)
        and (weight is None or _is_constant(weight))
        and not _is_watched(layer)
    )
    if (
        constant
        and sources.dim() == 2
        and len(sources) == nodes
        and (targets is None or len(targets) == nodes)
    ):
        matrix = products.matrix(edge_index, weight, dtype, mean=layer.aggr == "mean")
        if matrix is not None:
            read_only = _only_reads_sum(layer)
            product = products.multiply(matrix, sources.to(dtype), read_only=read_only)
            return product.to(message_dtype)
    return type(layer).propagate(layer, edge_index, size=size, **arguments)


def _only_reads_sum(layer: Any) -> bool:
    """Tell whether no code but PyG's gets the sum that a layer makes.

    PyG's code must not write into it either.
    """
    kind = type(layer)
    return (
        kind.__name__ in _SUMS_THEN_MULTIPLIES
        and _is_of_pyg(kind.forward)
        and all(
            _is_of_pyg(type(child).forward) and not child._forward_pre_hooks
            for child in layer.children()
        )
    )


def _is_constant(tensor: Any) -> bool:
    """Tell whether a tensor of edges or of weights is the same for all sub-GCNs.

    It must have no gradient either.
    """
    plain = (
        isinstance(tensor, Tensor)
        and tensor.layout is torch.strided
        and not is_batchedtensor(tensor)
    )
    return (
        plain
        and not tensor.requires_grad
        and tensor.dim() == (1 if tensor.is_floating_point() else 2)
    )


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two tensors of edges or of weights have the same values."""
    if one is None or other is None:
        return one is other
    return one is other or torch.equal(one, other)
