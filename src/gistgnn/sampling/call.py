"""How a model is called for a batch: its forward gets what its arguments name."""

import inspect
import logging
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.nn.gnn import as_gnn, members_of
from gistgnn.nn.pyg_layers import Products, multiplies, sparse_layers
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.nn.scaled_input import scales_input
from gistgnn.sampling.batch import Batch

_STRUCTURES = ("edge_index", "adj", "adj_t", "edges")  # arguments that get the structure, also where they are optional
_GRAPHS = ("data", "graph", "batch")  # a first argument of this name is a whole graph
_KEPT = 2  # batches of a user's own loop whose matrices are kept: those to train on and, perhaps, to score

log = logging.getLogger(__name__)


class Arguments(NamedTuple):
    """The arguments of a model's forward."""

    positional: tuple[Any, ...]
    by_name: dict[str, Tensor]


class Signature(NamedTuple):
    """What a model's forward takes beside x."""

    structure: str | None  # "adj", "edge_index", or None
    edge_data: dict[str, bool]  # that it takes and uses, by name: whether it has no default


_SIGNATURES: WeakKeyDictionary[nn.Module, Signature] = WeakKeyDictionary()  # needed at every step, slow to inspect
_CALLED: "WeakKeyDictionary[nn.Module, _Calls]" = WeakKeyDictionary()


def signature(model: nn.Module) -> Signature:
    """Return what a model's forward takes, by the names of its arguments; see `arguments` for errors."""
    if model not in _SIGNATURES:
        _SIGNATURES[model] = _inspect(members_of(getattr(model, "_orig_mod", model))[0])  # out of torch.compile
    return _SIGNATURES[model]


def _inspect(model: nn.Module) -> Signature:
    parameters, second = inspect.signature(model.forward).parameters, ""
    structure, edge_data = None, dict[str, bool]()
    for place, (name, p) in enumerate(parameters.items()):
        needed, by_name = p.default is p.empty, p.kind is p.KEYWORD_ONLY
        if name.endswith("_dict"):
            raise _refusal(
                model,
                "takes dictionaries of types of nodes and edges, and gistgnn joins the types of a HeteroData to one "
                "graph: use a model with edge_type in its forward, such as RGCNConv's",
            )
        if place == 0 and (name in _GRAPHS or getattr(p.annotation, "__name__", "") in ("Data", "Batch")):
            raise _refusal(
                model,
                f"takes a whole graph as '{name}', and gistgnn calls forward(x, edge_index): write "
                "forward(self, x, edge_index), with edge_weight, edge_attr or edge_type after them if it needs them",
            )
        if p.kind is p.VAR_POSITIONAL:
            structure = "edge_index" if place < 2 else structure  # forward(*args) is called as PyG's models are
        elif place == 1 and not by_name and (needed or name in _STRUCTURES):
            second, structure = name, "adj" if name == "adj" else "edge_index"
        elif p.kind is p.VAR_KEYWORD or (place == 0 and not by_name):
            continue
        elif name in EDGE_DATA:
            if needed or getattr(model, f"supports_{name}", True) is not False:  # PyG's models say that
                edge_data[name] = needed
        elif needed or (structure and name == "edge_index"):
            raise _refusal(
                model,
                f"takes '{second if name == 'edge_index' else name}', which gistgnn does not give: it calls "
                f"forward(x, edge_index) or forward(x, adj), with {', '.join(EDGE_DATA)} where forward has them; write "
                "a module with such a forward around it",
            )
    return Signature(structure, edge_data)


def _refusal(model: nn.Module, why: str) -> InputError:
    return InputError(f"{type(model).__name__}.forward({', '.join(inspect.signature(model.forward).parameters)}) {why}")


def arguments(model: nn.Module, batch: Batch) -> Arguments:
    """Return the arguments of a model's forward for a batch, chosen by their names.

    `forward(x, adj)`, as in `gistgnn.nn`, gets the prepared `Adjacency`, and features that may be a `SparseMatrix`. Any
    other required second argument gets PyG's `edge_index` [2, E]. `forward(x)` gets the features alone. Arguments
    `edge_weight`, `edge_attr` and `edge_type` get the batch's edge data. Any other argument is an InputError.
    """
    takes, given = signature(model), dict[str, Tensor]()
    for name, needed in takes.edge_data.items():
        if name in batch.edge_data:
            given[name] = batch.edge_data[name]
        elif needed:
            raise InputError(
                f"{type(model).__name__}.forward needs {name}, and the graph has none: set {name} on the Data, give it "
                f"to Graph.build, or write {name}=None in the forward"
            )
    if takes.structure == "adj":
        x = batch.dense if scales_input(model) else batch.features
        return Arguments((x, batch.adj), given)
    return Arguments((batch.dense, batch.edge_index) if takes.structure else (batch.dense,), given)


def multiplying(model: nn.Module, batch: Batch, inputs: Arguments) -> AbstractContextManager[None]:
    """Return a context in which PyG's layers in the model multiply by matrices of the batch: see `sparse_layers`."""
    if signature(model).structure != "edge_index":
        return nullcontext()
    return sparse_layers(model, batch.products, *inputs)


def forward(model: nn.Module, batch: Batch) -> Tensor:
    """Return the model's output for every node of the batch, [N, C]; in a batch by layers, for its first nodes."""
    # `arguments` says how it is called. Anything but one tensor with a row for each node is an InputError.
    inputs = arguments(model, batch)
    with multiplying(model, batch, inputs):
        out = model(*inputs.positional, **inputs.by_name)
    structure, nodes = inputs.positional[-1], batch.x.shape[0]
    if isinstance(structure, SampledAdjacency):
        nodes = structure.num_outputs
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != nodes:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"the model returned {got}, expected one tensor [{nodes} nodes, classes]")
    return out


def check_fits(model: nn.Module, batch: Batch, classes: int | None, edge_data: Collection[str] | None = None) -> None:
    """Refuse a model that cannot take the graph's features or predict its classes; warn of unused edge data."""
    # `batch` is the graph or a part of it. A model from outside `gistgnn.nn`, or an ensemble, runs once, or a few times
    # if there is edge data, whose names are `edge_data` (None: the batch's). `classes` None: any number of outputs.
    members = members_of(model)
    for member in members:
        outputs = _try(member, batch)
        if classes is not None and outputs != classes:
            differ = f"the model gives {outputs} classes, the graph has {classes}"
            raise InputError(f"{differ}: build it with {classes} outputs")
    model = members[0]
    gnn, kind = as_gnn(model), type(getattr(model, "_orig_mod", model)).__name__
    for name in batch.edge_data if edge_data is None else edge_data:
        taken = name in (gnn.edge_data if gnn else signature(model).edge_data)
        if not taken or (gnn is None and name in batch.edge_data and not _depends_on(model, batch, name)):
            log.warning(
                f"the graph has {name}, and {kind} makes no use of it: take a model with {name} in its forward (in PyG "
                f"it often has to be built for it, by edge_dim), or drop it: data.{name} = None"
            )


def _try(model: nn.Module, batch: Batch) -> int:
    """Return the number of the model's outputs."""
    if gnn := as_gnn(model):
        gnn.check_input(batch.x)
        gnn.check_structure(batch.adj)
        return gnn.out_features
    try:
        with torch.no_grad():
            return forward(model, batch).shape[1]
    except InputError:
        raise
    except Exception as error:  # a user's model may raise anything
        shapes = [f"{name} {list(value.shape)}" for name, value in arguments(model, batch).by_name.items()]
        data = ", ".join([f"x {list(batch.x.shape)}", *shapes])
        raise InputError(f"the model cannot take this graph's {data}: {reason(error)}") from error


def _depends_on(model: nn.Module, batch: Batch, name: str) -> bool:
    """Tell whether the output changes with the edge data of a name; True if that cannot be tried."""
    value = batch.edge_data[name]
    factors = 0.5 + torch.rand(value.shape, generator=torch.Generator().manual_seed(0))
    other = value * factors.to(value) if value.is_floating_point() else value.roll(1, dims=0)
    if torch.equal(value, other):
        return True
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            positional, by_name = arguments(model, batch)
            return not torch.equal(model(*positional, **by_name), model(*positional, **{**by_name, name: other}))
    finally:
        model.train(training)


# Sub-GCNs that a training loop of the user's own calls: PyG's layers in them multiply by matrices, as in `fit`.


class Recent:
    """The matrices of the latest batches. Batches are told apart by their tensors, and by changes to these in place."""

    def __init__(self) -> None:
        self._known: list[tuple[list[Tensor], list[int], Products]] = []

    def products(self, tensors: list[Tensor]) -> Products:
        """Return the matrices of a batch; ``tensors``: its features, edges and edge data."""
        versions = [tensor._version for tensor in tensors]
        for others, known, products in self._known:
            if known == versions and list(map(id, others)) == list(map(id, tensors)):
                return products
        self._known = [*self._known[1 - _KEPT :], (tensors, versions, Products(tensors[0]))]
        return self._known[-1][-1]


def multiply_when_called(model: nn.Module, recent: Recent) -> None:
    """Let PyG's layers in a model multiply as in `fit` whenever it is called; copies pass messages."""
    if model not in _CALLED and signature(model).structure == "edge_index" and multiplies(model):
        calls = _CALLED[model] = _Calls(recent)
        model.register_forward_pre_hook(calls.begin, with_kwargs=True)
        model.register_forward_hook(calls.end, always_call=True)


class _Calls:
    """The calls of one model."""

    def __init__(self, recent: Recent | None = None) -> None:
        self._recent, self._open = recent, list[AbstractContextManager[None] | None]()

    def __reduce__(self) -> "tuple[type[_Calls], tuple[()]]":
        """Copies do nothing."""
        return _Calls, ()

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Replace what passes messages, unless `fit` has done so, or the model is called in another way."""
        context = None
        if self._recent is not None and not any("propagate" in vars(layer) for layer in multiplies(model)):
            given = dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs
            given = {name: value for name, value in given.items() if value is not None}
            if _is_batch(given):
                x, edge_index, *_ = tensors = list(given.values())
                data = {name: value for name, value in given.items() if name in EDGE_DATA}
                context = sparse_layers(model, self._recent.products(tensors), (x, edge_index), data)
                context.__enter__()
        self._open.append(context)

    def end(self, *_: object) -> None:
        if self._open and (context := self._open.pop()):
            context.__exit__(None, None, None)


def _is_batch(given: dict[str, Any]) -> bool:
    """Tell whether arguments are features, edges and edge data without gradients, and known by their identity."""
    values = list(given.values())
    return (
        len(values) > 1
        and all(name in EDGE_DATA for name in list(given)[2:])
        and not torch._C._are_functorch_transforms_active()
        and all(isinstance(value, Tensor) and not value.requires_grad and not value.is_inference() for value in values)
        and (values[0].layout, values[0].is_floating_point()) == (torch.strided, True)
        and not values[1].is_floating_point()
    )
