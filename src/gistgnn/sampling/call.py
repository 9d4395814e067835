"""How a model is called for a batch: its forward gets what its arguments name."""

import inspect
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.functional import select_rows
from gistgnn.nn.gnn import as_gnn, members_of, only_reads
from gistgnn.nn.pyg_layers import Products, multiplying_layers, sparse_layers
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.nn.scaling import STRUCTURES, features_argument, plain_model, scales_input
from gistgnn.nn.sparse import AtVersion
from gistgnn.sampling.batch import Batch
from gistgnn.utils.formats import plural

_GRAPHS = ("data", "graph", "batch")  # a first argument of this name is a whole graph

log = logging.getLogger(__name__)


class Arguments(NamedTuple):
    """The arguments of a model's forward."""

    positional: tuple[Any, ...]
    by_name: dict[str, Any]
    structure: Any  # the edge_index or the `Adjacency` among them, or None if the model takes none
    # The tensors among them, by the names "x", "edge_index" and those of edge data.
    tensors: dict[str, AtVersion]
    copies: frozenset[str]  # the names of the tensors that are the model's own
    # The nodes to take out of the model's output, if it returns more than what was asked for.
    nodes: Tensor | None = None

    def chosen(self, out: Tensor) -> Tensor:
        """Return the output of the nodes that were asked for: [..., k, C].

        ``out`` is what the model has returned.
        """
        return out if self.nodes is None else select_rows(out, self.nodes)


class Signature(NamedTuple):
    """What a model's forward takes."""

    structure: str | None  # "adj", "edge_index", or None
    edge_data: dict[str, bool]  # what it takes and uses, by name: whether it has no default
    x_name: str | None = None  # the features' name, where they are not the first argument
    structure_name: str | None = None  # the structure's name, where it is not the second argument


# Signatures are needed at every step, and slow to inspect.
_SIGNATURES: WeakKeyDictionary[nn.Module, Signature] = WeakKeyDictionary()
_CALLED: WeakSet[nn.Module] = WeakSet()

# The arguments that models of a class were seen to write into, in evaluation (False) and in
# training (True). They get copies of these. The first call of a class gets copies of all of them,
# and shows which ones it needs.
_WRITTEN: WeakKeyDictionary[type[nn.Module], dict[bool, set[str]]] = WeakKeyDictionary()


def signature(model: nn.Module) -> Signature:
    """Return what a model's forward takes, by the names of its arguments.

    For errors see `arguments`.
    """
    if model not in _SIGNATURES:
        _SIGNATURES[model] = _inspect_forward(plain_model(members_of(model)[0]))
    return _SIGNATURES[model]


def _inspect_forward(model: nn.Module) -> Signature:
    parameters = inspect.signature(model.forward).parameters
    _refuse_whole_graphs(model, parameters)
    x_name = features_argument(parameters)
    if x_name is None:
        raise _refusal(
            model, "has no argument for the features: write forward(self, x, edge_index)"
        )
    x = parameters[x_name]
    structure = _structure_argument(parameters, x)
    edge_data = dict[str, bool]()
    for name, p in parameters.items():
        if p in (x, structure) or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        needed = p.default is p.empty
        if name in EDGE_DATA:
            # PyG's models say which edge data they support.
            if needed or getattr(model, f"supports_{name}", True) is not False:
                edge_data[name] = needed
        elif needed:
            raise _refusal(
                model,
                f"takes '{name}', which gistgnn does not give: it calls forward(x, edge_index) or "
                "forward(x, adj), "
                f"with {', '.join(EDGE_DATA)} where forward has them; write a module with such a "
                "forward around it",
            )
    if structure is None:
        return Signature(None, edge_data, _name_unless_at(0, x, parameters))
    kind = "adj" if structure.name == "adj" else "edge_index"
    structure_name = _name_unless_at(1, structure, parameters)
    if structure.kind is structure.VAR_KEYWORD:
        structure_name = "edge_index"
    return Signature(kind, edge_data, _name_unless_at(0, x, parameters), structure_name)


def _refuse_whole_graphs(model: nn.Module, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Refuse a forward that takes one object for a whole graph, or dictionaries of types."""
    for place, (name, p) in enumerate(parameters.items()):
        if name.endswith("_dict"):
            raise _refusal(
                model,
                "takes dictionaries of types of nodes and edges, and gistgnn joins the types of a "
                "HeteroData to one "
                "graph: use a model with edge_type in its forward, such as RGCNConv's",
            )
        if place == 0 and (
            name in _GRAPHS or getattr(p.annotation, "__name__", "") in ("Data", "Batch")
        ):
            raise _refusal(
                model,
                f"takes a whole graph as '{name}', and gistgnn calls forward(x, edge_index): write "
                "forward(self, x, edge_index), with edge_weight, edge_attr or edge_type after them "
                "if it needs them",
            )


def _structure_argument(
    parameters: Mapping[str, inspect.Parameter], x: inspect.Parameter
) -> inspect.Parameter | None:
    """Return the argument that gets the edges.

    It is known by its name, or is the second one that needs a value.
    """
    by_name = next((parameters[name] for name in STRUCTURES if name in parameters), None)
    if by_name is not None:
        return by_name
    for place, (name, p) in enumerate(parameters.items()):
        if p.kind is p.VAR_POSITIONAL and place < 2:  # forward(*args) is called as PyG's models are
            return p
        if p.kind is p.VAR_KEYWORD:  # forward(x, **kwargs) hands them on to another model
            return p
        needed = p.default is p.empty and p.kind is not p.KEYWORD_ONLY
        if place == 1 and p is not x and needed and name not in EDGE_DATA:
            return p
    return None


def _name_unless_at(
    place: int, p: inspect.Parameter, parameters: Mapping[str, inspect.Parameter]
) -> str | None:
    """Return the name by which an argument is given.

    Returns None if it stands at a place where it is given without a name.
    """
    if p.kind is p.VAR_POSITIONAL:
        return None
    return (
        None if p.kind is not p.KEYWORD_ONLY and list(parameters).index(p.name) == place else p.name
    )


def _refusal(model: nn.Module, why: str) -> InputError:
    return InputError(
        f"{type(model).__name__}.forward({', '.join(inspect.signature(model.forward).parameters)}) "
        f"{why}"
    )


def arguments(
    model: nn.Module, batch: Batch, *, private: bool = False, nodes: Tensor | None = None
) -> Arguments:
    """Return the arguments of a model's forward for a batch, chosen by their names.

    The first argument gets the features. An argument `edge_index`, `adj`, `adj_t` or `edges` gets
    the structure, wherever it stands; without one of these names, a second argument that needs a
    value does. `adj`, as in `gistgnn.nn`, is the prepared `Adjacency`, with features that may be a
    `SparseMatrix`; any other is PyG's `edge_index` [2, E]. Arguments `edge_weight`, `edge_attr` and
    `edge_type` get the batch's edge data. Any other argument that needs a value is an InputError.

    A model may write into what it gets: then it gets copies. With ``private`` it gets copies of all
    tensors.

    ``nodes``: [k] are those whose output is wanted. They default to all nodes. Models of
    `gistgnn.nn` compute no other, and `Arguments.chosen` takes it out of what other models return.
    """
    takes = signature(model)
    values = dict[str, Any]()
    values["x"] = (
        batch.features if takes.structure == "adj" and not scales_input(model) else batch.dense
    )
    if takes.structure is not None:
        values["edge_index"] = batch.adj if takes.structure == "adj" else batch.edge_index
    for name, needed in takes.edge_data.items():
        if name in batch.edge_data:
            values[name] = batch.edge_data[name]
        elif needed:
            raise InputError(
                f"{type(model).__name__}.forward needs {name}, and the graph has none: set {name} "
                "on the Data, give it "
                f"to Graph.build, or write {name}=None in the forward"
            )
    tensors = [name for name, value in values.items() if isinstance(value, Tensor)]
    written = None if private else _written_arguments(model)
    copies = frozenset(name for name in tensors if written is None or name in written)
    values |= {name: values[name].clone() for name in copies}
    if "x" in copies and takes.structure == "adj" and batch.adj.is_constant(batch.x):
        # What is kept of Ā x may be that of a larger graph.
        values["edge_index"] = batch.adj.with_cached_products(
            values["x"], partial(_product_of, batch)
        )
    # The name by which an argument is given; None: by its position. Edge data always have theirs.
    argument_names = {"x": takes.x_name, "edge_index": takes.structure_name}
    positional = list[Any]()
    by_name = dict[str, Any]()
    for name, value in values.items():
        argument_name = argument_names.get(name, name)
        if argument_name is None:
            positional.append(value)
        else:
            by_name[argument_name] = value
    versions = {name: AtVersion(values[name]) for name in tensors}
    if nodes is not None and as_gnn(model) is not None:
        by_name["nodes"] = nodes
        nodes = None
    return Arguments(tuple(positional), by_name, values.get("edge_index"), versions, copies, nodes)


def _product_of(batch: Batch, operator: Operator) -> Tensor:
    product = batch.adj.cached_product(operator, batch.x)
    assert product is not None
    return product


def _written_arguments(model: nn.Module) -> set[str] | None:
    """Return the arguments that models of this class write into.

    Returns None if no such model was called in this mode yet.
    """
    if only_reads(model):
        return set()
    model = plain_model(model)
    return _WRITTEN.get(type(model), {}).get(model.training)


@contextmanager
def calling(model: nn.Module, batch: Batch, inputs: Arguments) -> Iterator[None]:
    """Call a model within the block, where PyG's layers multiply by matrices of the batch.

    See `sparse_layers`.

    Raises:
        InputError: the model has written into the batch's own tensors, although earlier models of
            its class, in the same mode, did not write into theirs.
    """
    multiplying: AbstractContextManager[None] = nullcontext()
    if signature(model).structure == "edge_index":
        multiplying = sparse_layers(
            model, batch.products, inputs.structure, inputs.by_name.get("edge_weight")
        )
    with multiplying:
        yield
    changed = {name for name, tensor in inputs.tensors.items() if not tensor.is_unchanged}
    model = plain_model(model)
    _WRITTEN.setdefault(type(model), {}).setdefault(model.training, set()).update(changed)
    if lost := sorted(changed - inputs.copies):
        raise InputError(
            f"{type(model).__name__}.forward changes {lost[0]} in place, which holds the graph's "
            "own values: make a "
            f"new tensor: {lost[0]} = {lost[0]} * 2 instead of {lost[0]} *= 2, and F.dropout "
            "without inplace=True"
        )


def forward(
    model: nn.Module, batch: Batch, *, private: bool = False, nodes: Tensor | None = None
) -> Tensor:
    """Return the model's output for every node of the batch, [N, C].

    In a batch by layers these are its first nodes. With ``nodes``: [k] it is the output of these,
    [k, C]; see `arguments`, which says how the model is called. Anything but one tensor with a row
    for each node is an InputError.
    """
    inputs = arguments(model, batch, private=private, nodes=nodes)
    with calling(model, batch, inputs):
        out = model(*inputs.positional, **inputs.by_name)
    expected = batch.x.shape[0]
    if isinstance(inputs.structure, SampledAdjacency):
        expected = inputs.structure.num_outputs
    if nodes is not None and inputs.nodes is None:
        expected = len(nodes)
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != expected:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"the model returned {got}, expected one tensor [{expected} nodes, classes]"
        )
    return inputs.chosen(out)


def check_fits(
    model: nn.Module,
    batch: Batch,
    classes: int | None,
    edge_data: Collection[str] | None = None,
    unused: Collection[str] = (),
) -> None:
    """Refuse a model that cannot take the graph's features or predict its classes.

    Edge data that it does not use get a warning.

    Args:
        model: one from outside `gistgnn.nn` runs once.
        batch: the graph or a part of it.
        classes: how many outputs the model has to have, or None for any number.
        edge_data: the names of the graph's edge data. Defaults to those of the batch.
        unused: the names of edge data that the forward takes but does not use.
    """
    members = members_of(model)
    for member in members:
        outputs = _count_outputs(member, batch, logits=classes is not None)
        if classes is not None and outputs != classes:
            raise InputError(
                f"the model gives {plural(outputs, 'output')}, and the graph needs {classes}, one "
                f"for each class or target: build it with {classes}"
            )
    model = members[0]
    gnn = as_gnn(model)
    kind = type(plain_model(model)).__name__
    takes = gnn.edge_data if gnn else signature(model).edge_data
    for name in batch.edge_data if edge_data is None else edge_data:
        if name in unused or name not in takes:
            advice = f"take a model that uses {name}, or drop it: data.{name} = None"
            values = batch.edge_data.get(name)
            if (
                name == "edge_attr"
                and values is not None
                and values.numel() == len(values)
                and "edge_weight" in takes
            ):
                one_column = ".squeeze(1)" if values.dim() == 2 else ""
                advice = (
                    f"if these are weights: data.edge_weight = data.edge_attr{one_column}; "
                    f"otherwise {advice}"
                )
            log.warning(f"the graph has {name}, and {kind} makes no use of it: {advice}")


def _count_outputs(model: nn.Module, batch: Batch, *, logits: bool) -> int:
    """Return how many outputs a model has for each node, by a trial.

    With ``logits`` outputs that do not look like logits get a warning.
    """
    if gnn := as_gnn(model):
        gnn.check_input(batch.x)
        gnn.check_structure(batch.adj)
        return gnn.out_features
    try:
        with torch.no_grad():
            out = forward(model, batch)
        if logits and out.numel() > 9 and bool(((out >= 0) & (out <= 1)).all()) and bool(out.any()):
            doubt = "the model's outputs lie between 0 and 1, and losses and scores take logits"
            log.warning(f"{doubt}: leave a sigmoid or softmax at its end out")
        return out.shape[1]
    except InputError:
        raise
    except Exception as error:  # a user's model may raise anything
        edge_data = [name for name in signature(model).edge_data if name in batch.edge_data]
        shapes = [f"{name} {list(batch.edge_data[name].shape)}" for name in edge_data]
        data = ", ".join([f"x {list(batch.x.shape)}", *shapes])
        raise InputError(f"the model cannot take this graph's {data}: {reason(error)}") from error


def multiply_when_called(model: nn.Module, recent: "Recent") -> None:
    """Let PyG's layers in a sub-GCN that a user's own loop calls multiply as in `fit`.

    Layers of copies pass messages.
    """
    if (
        model not in _CALLED
        and signature(model).structure == "edge_index"
        and multiplying_layers(model)
    ):
        _CALLED.add(model)
        model.register_forward_pre_hook(recent.begin, with_kwargs=True)
        model.register_forward_hook(recent.end, always_call=True)


class Recent:
    """The matrices of the latest batch.

    A batch is known by its tensors, and by changes to these in place.
    """

    def __init__(self, active: bool = True) -> None:
        self._active = active
        self._open = dict[nn.Module, AbstractContextManager[None]]()
        self._tensors = list[AtVersion]()
        self._products: Products | None = None

    def __reduce__(self) -> "tuple[type[Recent], tuple[bool]]":
        """Copies, also in files, do nothing."""
        return Recent, (False,)

    def products(self, tensors: list[Tensor]) -> Products:
        """Return the matrices of a batch; ``tensors``: its features, edges and edge data."""
        is_latest = len(tensors) == len(self._tensors) and all(
            latest.is_same(tensor) for latest, tensor in zip(self._tensors, tensors, strict=True)
        )
        if self._products is None or not is_latest:
            self._tensors = [AtVersion(tensor) for tensor in tensors]
            self._products = Products(tensors[0])
        return self._products

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let layers multiply instead of passing messages.

        Nothing is replaced if `fit` has done so, or if the model is called in another way.
        """
        if not self._active or any(
            "propagate" in vars(layer) for layer in multiplying_layers(model)
        ):
            return
        names = list(inspect.signature(model.forward).parameters)
        takes = signature(model)
        values = dict(zip(names, args, strict=False)) | kwargs
        x = values.pop(takes.x_name or names[0], None)
        edges = values.pop(takes.structure_name or next(iter(values), ""), None)
        tensors = [value for value in (x, edges, *values.values()) if value is not None]
        can_multiply = x is not None and edges is not None and all(map(_is_constant, tensors))
        if can_multiply and not torch._C._are_functorch_transforms_active():
            context = sparse_layers(model, self.products(tensors), edges, values.get("edge_weight"))
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
