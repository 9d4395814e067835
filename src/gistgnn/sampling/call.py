"""How a model is called for a batch: its forward gets what its arguments name."""

import inspect
import logging
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.nn.gnn import as_gnn, members_of, scales_input
from gistgnn.nn.pyg_layers import Products, multiplies, sparse_layers
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
    edge_data: dict[str, bool]  # that it takes and uses, by name: whether it has no default


_SIGNATURES: WeakKeyDictionary[nn.Module, Signature] = WeakKeyDictionary()  # needed at every step, slow to inspect
_CALLED: WeakSet[nn.Module] = WeakSet()


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
    return sparse_layers(model, batch.products, inputs.positional[1], inputs.by_name.get("edge_weight"))


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
    # `batch` is the graph or a part of it; a model from outside `gistgnn.nn` runs once. `edge_data`: the names of the
    # graph's edge data (None: the batch's). `classes` None: any number of outputs.
    members = members_of(model)
    for member in members:
        outputs = _try(member, batch, logits=classes is not None)
        if classes is not None and outputs != classes:
            differ = f"the model gives {outputs} classes, the graph has {classes}"
            raise InputError(f"{differ}: build it with {classes} outputs")
    model = members[0]
    gnn, kind = as_gnn(model), type(getattr(model, "_orig_mod", model)).__name__
    for name in batch.edge_data if edge_data is None else edge_data:
        if name not in (gnn.edge_data if gnn else signature(model).edge_data):
            log.warning(
                f"the graph has {name}, and {kind} makes no use of it: take a model with {name} in its forward, or "
                f"drop it: data.{name} = None"
            )


def _try(model: nn.Module, batch: Batch, *, logits: bool) -> int:
    """Return the number of the model's outputs; warn if they do not look like logits."""
    if gnn := as_gnn(model):
        gnn.check_input(batch.x)
        gnn.check_structure(batch.adj)
        return gnn.out_features
    try:
        with torch.no_grad():
            out = forward(model, batch)
        if logits and out.numel() > 9 and bool(((out >= 0) & (out <= 1)).all()) and bool(out.any()):
            said = "the model's outputs lie between 0 and 1, and losses and scores take logits"
            log.warning(f"{said}: leave a sigmoid or softmax at its end out")
        return out.shape[1]
    except InputError:
        raise
    except Exception as error:  # a user's model may raise anything
        shapes = [f"{name} {list(value.shape)}" for name, value in arguments(model, batch).by_name.items()]
        data = ", ".join([f"x {list(batch.x.shape)}", *shapes])
        raise InputError(f"the model cannot take this graph's {data}: {reason(error)}") from error


def multiply_when_called(model: nn.Module, recent: "Recent") -> None:
    """Let PyG's layers in a sub-GCN that a user's own loop calls multiply as in `fit`; copies pass messages."""
    if model not in _CALLED and signature(model).structure == "edge_index" and multiplies(model):
        _CALLED.add(model)
        model.register_forward_pre_hook(recent.begin, with_kwargs=True)
        model.register_forward_hook(recent.end, always_call=True)


class Recent:
    """The matrices of the latest batch, which is known by its tensors, and by changes to these in place."""

    def __init__(self, active: bool = True) -> None:
        self._active, self._open = active, dict[nn.Module, AbstractContextManager[None]]()
        self._tensors, self._versions = list[Tensor](), list[int]()
        self._products: Products | None = None

    def __reduce__(self) -> "tuple[type[Recent], tuple[bool]]":
        """Copies, also in files, do nothing."""
        return Recent, (False,)

    def products(self, tensors: list[Tensor]) -> Products:
        """Return the matrices of a batch; ``tensors``: its features, edges and edge data."""
        versions = [tensor._version for tensor in tensors]
        same = self._versions == versions and list(map(id, self._tensors)) == list(map(id, tensors))
        if self._products is None or not same:
            self._tensors, self._versions, self._products = tensors, versions, Products(tensors[0])
        return self._products

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Replace what passes messages, unless `fit` has done so, or the model is called in another way."""
        if not self._active or any("propagate" in vars(layer) for layer in multiplies(model)):
            return
        given = dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs
        tensors = [value for value in given.values() if value is not None]
        if len(tensors) > 1 and all(map(_is_constant, tensors)) and not torch._C._are_functorch_transforms_active():
            context = sparse_layers(model, self.products(tensors), tensors[1], given.get("edge_weight"))
            context.__enter__()
            self._open[model] = context

    def end(self, model: nn.Module, *_: object) -> None:
        """Let the model's layers pass messages again."""
        if context := self._open.pop(model, None):
            context.__exit__(None, None, None)


def _is_constant(value: Any) -> bool:
    """Whether a value is a tensor without a gradient, whose changes can be told."""
    plain = isinstance(value, Tensor) and value.layout is torch.strided
    return plain and not value.requires_grad and not value.is_inference()
