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
from gistgnn.nn.pyg_layers import sparse_layers
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch

_STRUCTURES = ("edge_index", "adj", "adj_t", "edges")  # arguments that get the structure, also where they are optional
_GRAPHS = ("data", "graph", "batch")  # a first argument of this name is a whole graph

log = logging.getLogger(__name__)


class Arguments(NamedTuple):
    """The arguments of a model's forward."""

    positional: tuple[Any, ...]
    by_name: dict[str, Tensor]


class Signature(NamedTuple):
    """What a model's forward takes beside x."""

    structure: str | None  # "adj", "edge_index", or None
    edge_data: tuple[str, ...]  # that it takes and uses, by name
    required: frozenset[str]  # edge data without a default


_SIGNATURES: WeakKeyDictionary[nn.Module, Signature] = WeakKeyDictionary()  # needed at every step, slow to inspect


def signature(model: nn.Module) -> Signature:
    """Return what a model's forward takes, by the names of its arguments; see `arguments` for errors."""
    if model not in _SIGNATURES:
        called = members_of(getattr(model, "_orig_mod", model))[0]  # torch.compile hides the arguments
        _SIGNATURES[model] = _inspect(called)
    return _SIGNATURES[model]


def _inspect(model: nn.Module) -> Signature:
    parameters = list(inspect.signature(model.forward).parameters.values())
    _refuse_other_graphs(model, parameters)
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    names = [name for name, p in named.items() if p.kind is not p.KEYWORD_ONLY]
    structure = None
    if len(names) < 2 and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        structure = "edge_index"  # forward(*args) is called as PyG's models are
    elif len(names) > 1 and (named[names[1]].default is inspect.Parameter.empty or names[1] in _STRUCTURES):
        structure = "adj" if names[1] == "adj" else "edge_index"
    rest = [name for name in named if name not in names[: 2 if structure else 1]]
    required = [name for name in rest if named[name].default is inspect.Parameter.empty]
    unknown = [name for name in required if name not in EDGE_DATA]
    if structure and "edge_index" in rest:
        unknown.insert(0, names[1])  # forward(x, other, edge_index)
    if unknown:
        raise InputError(
            f"{type(model).__name__}.forward({', '.join(named)}) takes '{unknown[0]}', which gistgnn does not give: "
            f"it calls forward(x, edge_index) or forward(x, adj), with {', '.join(EDGE_DATA)} where forward has them; "
            "write a module with such a forward around it"
        )
    ignored = {name for name in EDGE_DATA if getattr(model, f"supports_{name}", True) is False} - {
        *required
    }  # by PyG's
    taken = tuple(name for name in EDGE_DATA if name in rest and name not in ignored)
    return Signature(structure, taken, frozenset(required))


def _refuse_other_graphs(model: nn.Module, parameters: list[inspect.Parameter]) -> None:
    """Refuse a forward that takes dictionaries of types, or one object with the whole graph."""
    shown = f"{type(model).__name__}.forward({', '.join(p.name for p in parameters)})"
    if any(p.name.endswith("_dict") for p in parameters):
        raise InputError(
            f"{shown} takes dictionaries of types of nodes and edges, and gistgnn trains on graphs with one type of "
            "node: call .to_homogeneous() on the HeteroData, and use a model with edge_type in its forward, such as "
            "RGCNConv's"
        )
    first = parameters[0] if parameters else None
    if first and (first.name in _GRAPHS or getattr(first.annotation, "__name__", "") in ("Data", "Batch")):
        raise InputError(
            f"{shown} takes a whole graph as '{first.name}', and gistgnn calls forward(x, edge_index): write "
            "forward(self, x, edge_index), with edge_weight, edge_attr or edge_type after them if it needs them"
        )


def arguments(model: nn.Module, batch: Batch) -> Arguments:
    """Return the arguments of a model's forward for a batch, chosen by their names.

    `forward(x, adj)`, as in `gistgnn.nn`, gets the prepared `Adjacency`, and features that may be a `SparseMatrix`. Any
    other required second argument gets PyG's `edge_index` [2, E]. `forward(x)` gets the features alone. Arguments
    `edge_weight`, `edge_attr` and `edge_type` get the batch's edge data where it has them.

    Raises:
        InputError: the forward takes a whole graph, dictionaries of types, an argument that gistgnn does not have, or
            edge data that the batch does not have.
    """
    takes, data = signature(model), batch.edge_data
    if lacking := takes.required - data.keys():
        name = min(lacking)
        raise InputError(
            f"{type(model).__name__}.forward needs {name}, and the graph has none: set {name} on the Data, give it to "
            f"Graph.build, or write {name}=None in the forward"
        )
    given = {name: data[name] for name in takes.edge_data if name in data}
    if takes.structure == "adj":
        return Arguments((batch.features, batch.adj), given)
    return Arguments((batch.dense, batch.edge_index) if takes.structure else (batch.dense,), given)


def multiplying(model: nn.Module, batch: Batch, inputs: Arguments) -> AbstractContextManager[None]:
    """Return a context in which PyG's layers in the model multiply by matrices of the batch: see `sparse_layers`."""
    if signature(model).structure != "edge_index":
        return nullcontext()
    return sparse_layers(model, batch.products, *inputs)


def forward(model: nn.Module, batch: Batch) -> Tensor:
    """Return the model's output for every node of the batch, [N, C]; `arguments` says how it is called.

    Where a batch is sampled by layers, a model that takes an `Adjacency` has an output for the first nodes only.

    Raises:
        InputError: the output is not one tensor with a row for each node.
    """
    inputs = arguments(model, batch)
    with multiplying(model, batch, inputs):
        out = model(*inputs.positional, **inputs.by_name)
    nodes = batch.x.shape[0]
    if isinstance(inputs.positional[-1], SampledAdjacency):
        nodes = inputs.positional[-1].num_outputs
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != nodes:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"the model returned {got}, expected one tensor [{nodes} nodes, classes]")
    return out


def check_fits(model: nn.Module, batch: Batch, classes: int | None, edge_data: Collection[str] | None = None) -> None:
    """Refuse a model that cannot take the graph's features or predict its classes; warn of edge data it does not use.

    A model from outside `gistgnn.nn`, or an ensemble, runs once, or a few times if there is edge data. ``batch`` is the
    graph or a part of it. ``classes`` None: any number of outputs is fine. ``edge_data`` has the names of the graph's
    edge data; None: those of the batch.
    """
    members = members_of(model)
    for member in members:
        outputs = _try(member, batch)
        if classes is not None and outputs != classes:
            raise InputError(
                f"the model gives {outputs} classes, the graph has {classes}: build it with {classes} outputs"
            )
    for name in batch.edge_data if edge_data is None else edge_data:
        _warn_if_unused(members[0], batch, name)


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


def _warn_if_unused(model: nn.Module, batch: Batch, name: str) -> None:
    """Warn if the model's output does not depend on the graph's edge data of a name."""
    gnn, kind = as_gnn(model), type(getattr(model, "_orig_mod", model)).__name__
    if gnn is not None:
        uses = name in gnn.edge_data
    else:
        uses = name in signature(model).edge_data and (name not in batch.edge_data or _depends_on(model, batch, name))
    if not uses:
        log.warning(
            f"the graph has {name}, and {kind} makes no use of it: take a model with {name} in its forward (in PyG it "
            f"often has to be built for it, by edge_dim), or drop it: data.{name} = None"
        )


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
