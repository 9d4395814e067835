"""Our models as modules of PyG and torch alone.

A new model is a function that converts one of its layers, and a line in `_LAYERS`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.nn.convolutions import GCN, GIN, GCNLayer, GINLayer, GraphSAGE, SAGELayer
from gistgnn.nn.functional import WholeNorm
from gistgnn.nn.gat import GAT, GATLayer, GATv2, GATv2Layer
from gistgnn.nn.gnn import GNN, EnsembleModel, make_norm
from gistgnn.nn.scaling import FeatureScaling, ScaledModel, plain_model, uncompiled

_PYG = "torch_geometric."  # begins the names of its modules
_GISTGNN = "gistgnn."
_ALONG_EDGES = "x, edge_index -> x"
_ALONG_WEIGHTED_EDGES = "x, edge_index, edge_weight -> x"


class MeanWeight(nn.Module):
    """Divides the weights of edges by their sum over the edges into a node.

    So a sum becomes a mean.
    """

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Return the weights: [E]; 0 where all weights of a node are 0."""
        target = edge_index[1]
        total = torch.zeros_like(x[:, 0]).index_add(0, target, edge_weight)
        total = torch.where(total > 0, total, torch.inf)
        return edge_weight / total.index_select(0, target)


@dataclass(frozen=True)
class Call:
    """The call of a class that makes a module; its ``repr`` is the call as Python has it."""

    kind: type[nn.Module]
    arguments: tuple[Any, ...]  # a `Call` among them makes a module of its own
    options: dict[str, Any]

    def make(self) -> nn.Module:
        """Return the module. One of gistgnn's becomes a `torch.fx.GraphModule`."""
        arguments = [value.make() if isinstance(value, Call) else value for value in self.arguments]
        module = self.kind(*arguments, **self.options)
        is_ours = self.kind.__module__.startswith(_GISTGNN)
        return torch.fx.symbolic_trace(module) if is_ours else module

    @property
    def calls(self) -> "list[Call]":
        """This call, and those among its arguments."""
        inner = [value.calls for value in self.arguments if isinstance(value, Call)]
        return [self, *(call for calls in inner for call in calls)]

    def __repr__(self) -> str:
        words = [*map(_literal, self.arguments)]
        words += [f"{name}={_literal(value)}" for name, value in self.options.items()]
        module = "nn." if self.kind.__module__.startswith("torch.nn.") else ""
        return f"{module}{self.kind.__name__}({', '.join(words)})"


def _call(kind: type[nn.Module], *arguments: Any, **options: Any) -> Call:
    return Call(kind, arguments, options)


class Step(NamedTuple):
    """A module of the converted model.

    Attributes:
        name: of the module in the model.
        call: makes the module.
        signature: what the module takes and returns, as `torch_geometric.nn.Sequential` reads it.
        tensors: the parameters and buffers of the module, by its names.
    """

    name: str
    call: Call
    signature: str
    tensors: Mapping[str, Tensor] = {}


@dataclass(frozen=True)
class Conversion:
    """One of our models, as calls that make it of PyG's and torch's modules.

    Attributes:
        inputs: the arguments of the model: "x", "edge_index" and perhaps "edge_weight".
        steps: its modules, in order; a single one is the model.
    """

    inputs: tuple[str, ...]
    steps: list[Step]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers of the model, by the names in its ``state_dict()``."""
        prefixes = [f"{step.name}." if len(self.steps) > 1 else "" for step in self.steps]
        return {
            f"{prefix}{name}": tensor.detach()
            for prefix, step in zip(prefixes, self.steps, strict=True)
            for name, tensor in step.tensors.items()
        }

    def make(self) -> nn.Module:
        """Return the model in evaluation mode, with copies of the tensors."""
        # On the device "meta" nothing is initialised: it would take time, and random numbers.
        with torch.device("meta"):
            modules = [step.call.make() for step in self.steps]
        model = modules[0]
        if len(modules) > 1:
            described = {
                step.name: (module, step.signature)
                for step, module in zip(self.steps, modules, strict=True)
            }
            model = pyg.Sequential(", ".join(self.inputs), described)
        copies = {name: tensor.clone() for name, tensor in self.tensors.items()}
        model.load_state_dict(copies, assign=True)
        return model.eval()

    @property
    def imports(self) -> list[str]:
        """The import statements that `definitions` need."""
        ours = self._gistgnn_classes
        of_pyg = {kind.__name__ for kind in self._classes if kind.__module__.startswith(_PYG)}
        if len(self.steps) > 1:
            of_pyg.add("Sequential")
        lines = ["from torch import Tensor, nn" if ours else "from torch import nn"]
        lines.append(f"from torch_geometric.nn import {', '.join(sorted(of_pyg))}")
        if ours:
            lines.append("import torch")
        if WholeNorm in ours:
            lines.append("from torch.nn import functional as F")
        return lines

    @property
    def definitions(self) -> list[str]:
        """The Python of the function ``build``, which makes the model, and of classes before it."""
        lines = ["def build() -> nn.Module:"]
        lines += ['    """Return the model, before its weights are loaded."""']
        if len(self.steps) == 1:
            lines += [f"    return {self.steps[0].call}"]
        else:
            lines += [f'    return Sequential("{", ".join(self.inputs)}", {{']
            for step in self.steps:
                lines += [f'        "{step.name}": (']
                lines += [f"            {step.call},"]
                lines += [f'            "{step.signature}",']
                lines += ["        ),"]
            lines += ["    })"]
        return [*map(inspect.getsource, self._gistgnn_classes), "\n".join([*lines, ""])]

    @property
    def _classes(self) -> set[type[nn.Module]]:
        return {call.kind for step in self.steps for call in step.call.calls}

    @property
    def _gistgnn_classes(self) -> list[type[nn.Module]]:
        ours = [kind for kind in self._classes if kind.__module__.startswith(_GISTGNN)]
        return sorted(ours, key=lambda kind: kind.__name__)


def to_pyg(model: nn.Module, *, edge_weight: bool = False) -> nn.Module:
    """Return a trained model as a module that needs no gistgnn, but only PyG and torch.

    A GCN, GraphSAGE, GAT or GATv2 whose layers have one width becomes PyG's model of the same name;
    any other model of `gistgnn.nn`, and one that scales its features, a
    `torch_geometric.nn.Sequential`. On the same edges it computes the same, up to rounding. A model
    of your own class stays what it is; where training scaled the features, it stands behind this
    scaling in a `Sequential`.

    Args:
        model: of `gistgnn.nn`, or a result's.
        edge_weight: whether the module takes the weights of edges, if the model reads them.

    Returns:
        A module in evaluation mode. It is called with x: [N, F], edge_index: [2, E], and perhaps
        the weights: [E], and returns the logits: [N, C]. Its parameters are copies, unless the
        model's class is your own.

    Raises:
        InputError: the model is an ensemble; it has a norm that you have put into it; or it is of
            your own class, scales its features, and its forward does not begin with (x,
            edge_index).
    """
    plain = plain_model(model)
    if type(plain) in _LAYERS or isinstance(plain, EnsembleModel):
        return convert(model, edge_weight=edge_weight).make()
    scaling = _convert_scaling(model)
    if scaling is None:
        return plain
    inputs = input_names(model, edge_weight=edge_weight)
    if [*inspect.signature(plain.forward).parameters][1:2] != ["edge_index"]:
        raise InputError(
            f"the model is a {type(plain).__name__} of your own, behind a scaling of the features, "
            "and its forward does not begin with (x, edge_index): use model.model, and give it "
            "model.scaling(x) in place of x"
        )
    scaling_module = scaling.call.make()
    scaling_module.load_state_dict(dict(scaling.tensors), assign=True)
    described = {
        scaling.name: (scaling_module, scaling.signature),
        "model": (plain, f"{', '.join(inputs)} -> x"),
    }
    return pyg.Sequential(", ".join(inputs), described).eval()


def input_names(model: nn.Module, *, edge_weight: bool = False) -> tuple[str, ...]:
    """Return the names of what the module takes that `to_pyg` returns, in order."""
    plain = plain_model(model)
    if type(plain) in _LAYERS:
        reads_weight = "edge_weight" in cast(GNN, plain).edge_data
    else:
        third = [*inspect.signature(plain.forward).parameters][2:3]
        supported = getattr(plain, "supports_edge_weight", True)  # PyG's models say it
        reads_weight = third == ["edge_weight"] and supported is not False
    edge_data = ("edge_weight",) if edge_weight and reads_weight else ()
    return ("x", "edge_index", *edge_data)


def convert(model: nn.Module, *, edge_weight: bool = False) -> Conversion:
    """Return how a model of `gistgnn.nn` is made of PyG's modules; for the arguments see `to_pyg`.

    Raises:
        InputError: the model is an ensemble, or a class of the user's own, or it has a norm of the
            user's.
    """
    plain = plain_model(model)
    if isinstance(plain, EnsembleModel):
        raise InputError(
            f"the model is an ensemble of {len(plain.members)} models, which PyG has no class for: "
            "convert each of gistgnn.nn.members_of(model), and take the mean of their outputs"
        )
    if type(plain) not in _LAYERS:
        names = ", ".join(kind.__name__ for kind in _LAYERS)
        raise InputError(
            f"the model is a {type(plain).__name__} of your own, expected one of {names}: "
            "use your class, with the model's state_dict()"
        )
    assert isinstance(plain, GNN)
    built_with = type(make_norm(plain.norm, 1))
    for norm in plain.norms:
        if type(norm) is not built_with:
            raise InputError(
                f"the model has a {type(norm).__name__} in place of norm='{plain.norm}', which it "
                "was built with: use your code that makes it, with the model's state_dict()"
            )
    inputs = input_names(model, edge_weight=edge_weight)
    is_weighted = "edge_weight" in inputs
    scaling = _convert_scaling(model)
    one_class = _convert_to_class(plain, is_weighted=is_weighted)
    layers = [one_class] if one_class else _convert_by_layers(plain, is_weighted=is_weighted)
    return Conversion(inputs, [scaling, *layers] if scaling else layers)


def _convert_scaling(model: nn.Module) -> Step | None:
    """Return how a model scales its features; None if it does not."""
    model = uncompiled(model)
    if not isinstance(model, ScaledModel):
        return None
    call = _call(FeatureScaling, len(model.scaling.mean))
    return Step("scaling", call, "x -> x", dict(model.scaling.named_buffers()))


def _convert_to_class(model: GNN, *, is_weighted: bool) -> Step | None:
    """Return a model as one of PyG's models; None if it has no class that computes the same."""
    pyg_class, options = _CLASSES.get(type(model), (None, {}))
    widths = {layer.out_features for layer in model.convs[:-1]}
    if pyg_class is None or len(widths) > 1 or model.norm == "whole":
        return None
    if is_weighted and not pyg_class.supports_edge_weight:
        return None
    options = dict(options)
    if isinstance(model, GAT):
        # PyG's class has one dropout for features and attention.
        if model.attention_dropout != model.dropout:
            return None
        options["heads"] = model.heads
    if model.dropout:
        options["dropout"] = model.dropout
    if model.activation != "relu":
        options["act"] = model.activation
    if model.norm == "layer":
        options |= {"norm": "LayerNorm", "norm_kwargs": {"affine": False, "mode": "node"}}
    elif model.norm == "batch":
        options["norm"] = "BatchNorm"
    sizes = (model.in_features, *widths, model.num_layers, model.out_features)
    tensors: dict[str, Tensor] = {}
    for number, layer in enumerate(model.convs):
        (step,) = _LAYERS[type(model)](layer, is_weighted)
        tensors |= _prefixed(f"convs.{number}", step.tensors)
    for number, norm in enumerate(model.norms):
        tensors |= _prefixed(f"norms.{number}.module", norm.state_dict())
    signature = _ALONG_WEIGHTED_EDGES if is_weighted else _ALONG_EDGES
    return Step("model", _call(pyg_class, *sizes, **options), signature, tensors)


def _convert_by_layers(model: GNN, *, is_weighted: bool) -> list[Step]:
    """Return a model as layers of PyG, one after another."""
    steps = []
    if is_weighted and isinstance(model, GraphSAGE):
        signature = "x, edge_index, edge_weight -> mean_weight"
        steps.append(Step("mean_weight", _call(MeanWeight), signature))
    for number, layer in enumerate(model.convs, 1):
        steps += _numbered(number, _LAYERS[type(model)](layer, is_weighted))
        if number == model.num_layers:
            break
        activation = _call(nn.ReLU if model.activation == "relu" else nn.ELU)
        follow = [Step("activation", activation, "x -> x")]
        norm = model.norms[number - 1]
        norms = [Step("norm", call, "x -> x", norm.state_dict()) for call in _calls_of_norm(norm)]
        follow = [*follow, *norms] if model.norm == "whole" else [*norms, *follow]
        if model.dropout:
            follow.append(Step("dropout", _call(nn.Dropout, model.dropout), "x -> x"))
        steps += _numbered(number, follow)
    return steps


def _convert_gcn_layer(layer: GCNLayer, is_weighted: bool) -> list[Step]:
    outputs, inputs = layer.weight.shape
    tensors = {"lin.weight": layer.weight, "bias": layer.bias}
    signature = _ALONG_WEIGHTED_EDGES if is_weighted else _ALONG_EDGES
    return [Step("conv", _call(pyg.GCNConv, inputs, outputs), signature, tensors)]


def _convert_sage_layer(layer: SAGELayer, is_weighted: bool) -> list[Step]:
    inputs = layer.in_features
    outputs = layer.out_features
    if is_weighted:  # PyG's SAGEConv takes no weights
        neighbours = _call(pyg.SimpleConv, "sum", combine_root="cat")
        linear = _call(nn.Linear, 2 * inputs, outputs)
        weights = {"weight": layer.weight, "bias": layer.bias}
        return [
            Step("mean", neighbours, "x, edge_index, mean_weight -> x"),
            Step("linear", linear, "x -> x", weights),
        ]
    tensors = {
        "lin_l.weight": layer.neighbour_weight,
        "lin_l.bias": layer.bias,
        "lin_r.weight": layer.weight[:, :inputs],
    }
    return [Step("conv", _call(pyg.SAGEConv, inputs, outputs), _ALONG_EDGES, tensors)]


def _convert_gin_layer(layer: GINLayer, is_weighted: bool) -> list[Step]:
    inside, inputs = layer.weight.shape
    calls = [_call(nn.Linear, inputs, inside), *_calls_of_norm(layer.norm), _call(nn.ReLU)]
    last = len(calls)
    calls.append(_call(nn.Linear, inside, layer.out_features))
    tensors = {
        "0.weight": layer.weight,
        "0.bias": layer.bias,
        **_prefixed("1", layer.norm.state_dict()),
        f"{last}.weight": layer.second_weight,
        f"{last}.bias": layer.second_bias,
    }
    mlp = _call(nn.Sequential, *calls)
    if is_weighted:  # PyG's GINConv takes no weights
        neighbours = _call(pyg.SimpleConv, "sum", combine_root="sum")
        return [
            Step("sum", neighbours, _ALONG_WEIGHTED_EDGES),
            Step("mlp", mlp, "x -> x", tensors),
        ]
    tensors = {"eps": layer.bias.new_zeros(1), **_prefixed("nn", tensors)}
    return [Step("conv", _call(pyg.GINConv, mlp), _ALONG_EDGES, tensors)]


def _convert_gat_layer(layer: GATLayer, is_weighted: bool) -> list[Step]:
    tensors: dict[str, Tensor] = {
        "lin.weight": layer.weight,
        "att_src": layer.source.unsqueeze(0),
        "att_dst": layer.target.unsqueeze(0),
        "bias": layer.bias,
    }
    return [Step("conv", _call_with_heads(pyg.GATConv, layer), _ALONG_EDGES, tensors)]


def _convert_gatv2_layer(layer: GATv2Layer, is_weighted: bool) -> list[Step]:
    source, target = layer.weight.chunk(2)
    tensors: dict[str, Tensor] = {
        "lin_l.weight": source,
        "lin_l.bias": torch.zeros_like(layer.score_bias),
        "lin_r.weight": target,
        "lin_r.bias": layer.score_bias,
        "att": layer.attention.unsqueeze(0),
        "bias": layer.bias,
    }
    return [Step("conv", _call_with_heads(pyg.GATv2Conv, layer), _ALONG_EDGES, tensors)]


def _call_with_heads(kind: type[nn.Module], layer: GATLayer | GATv2Layer) -> Call:
    options: dict[str, Any] = {"heads": layer.heads}
    if not layer.concat:
        options["concat"] = False
    if layer.dropout:
        options["dropout"] = layer.dropout
    return _call(kind, layer.weight.shape[1], layer.width, **options)


def _calls_of_norm(norm: nn.Module) -> list[Call]:
    """Return the call that makes a norm; none for ``nn.Identity``."""
    if isinstance(norm, nn.LayerNorm):
        return [_call(nn.LayerNorm, *norm.normalized_shape, elementwise_affine=False)]
    if isinstance(norm, nn.BatchNorm1d):
        return [_call(nn.BatchNorm1d, norm.num_features)]
    return [_call(WholeNorm)] if isinstance(norm, WholeNorm) else []


def _numbered(number: int, steps: Iterable[Step]) -> list[Step]:
    return [step._replace(name=f"{step.name}{number}") for step in steps]


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _literal(value: Any) -> str:
    """Return a value as Python has it, its texts in double quotes."""
    return repr(value).replace("'", '"')


# How a layer of each of our models is converted, given whether edges have weights.
_LAYERS: dict[type[nn.Module], Callable[[Any, bool], list[Step]]] = {
    GCN: _convert_gcn_layer,
    GraphSAGE: _convert_sage_layer,
    GIN: _convert_gin_layer,
    GAT: _convert_gat_layer,
    GATv2: _convert_gatv2_layer,
}

# PyG's model of the same layers, and its options. There is none for GIN: the MLP of PyG's last
# layer is as wide as its output.
_CLASSES: dict[type[nn.Module], tuple[Any, dict[str, Any]]] = {
    GCN: (pyg.GCN, {}),
    GraphSAGE: (pyg.GraphSAGE, {}),
    GAT: (pyg.GAT, {}),
    GATv2: (pyg.GAT, {"v2": True}),
}
