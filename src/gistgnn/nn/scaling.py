"""`ScaledModel`: a trained model behind a layer that scales the features as training did."""

import inspect
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.graphs.standardise import MEAN, STD, Standardisation

STRUCTURES = ("edge_index", "adj", "adj_t", "edges")
"""The names of arguments that get the edges, wherever they stand."""


# The code of this class is written into the files of an exported model, which is loaded where there
# is nothing but torch and PyG. So it uses nothing else.
class FeatureScaling(nn.Module):
    """Scales the features as training did: (x - mean) / std."""

    mean: Tensor
    std: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled features: [N, F]."""
        return (x - self.mean) / self.std

    def extra_repr(self) -> str:
        return f"{len(self.mean)} features"


class ScaledModel(nn.Module):
    """A model that scales its features first, and is called with those of the graph.

    Args:
        scaling: the first layer.
        model: the model that was trained on scaled features. Its own methods, such as an
            ``encode``, take these: ``model.model.encode(model.scaling(x), edge_index)``.
    """

    scaling: FeatureScaling
    model: nn.Module

    def __init__(self, scaling: FeatureScaling, model: nn.Module) -> None:
        super().__init__()
        self.scaling = scaling
        self.model = model
        self.training = model.training  # `train` would change the modes within the model as well.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output, for its arguments with features that are not scaled.

        Raises:
            InputError: x has another number of features.
        """
        name = features_argument(inspect.signature(plain_model(self).forward).parameters)
        if name is None or not (args or name in kwargs):
            name = "x"  # An ensemble's forward(*args, **kwargs) has no name for the features.
        if name in kwargs:
            return self.model(*args, **{**kwargs, name: self.scale(kwargs[name])})
        return self.model(self.scale(args[0]), *args[1:], **kwargs)

    def scale(self, x: Tensor) -> Tensor:
        """Return the scaled features: [N, F].

        Raises:
            InputError: there is another number of features.
        """
        return Standardisation(self.scaling.mean, self.scaling.std).features(x)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            inner = self.__dict__.get("_modules", {}).get("model")
            if name.startswith("_") or inner is None or not hasattr(inner, name):
                raise
            raise AttributeError(
                f"'{name}' belongs to the model behind the scaling of the features: use "
                f"model.model.{name}, "
                "and give it model.scaling(x) in place of x"
            ) from error


def features_argument(parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """Return the name of the argument for the features, or None if there is none.

    It is the first one that needs a value and is not for edges; or else the first that is not for
    edges.
    """
    names = [name for name in parameters if name not in (*STRUCTURES, *EDGE_DATA)]
    names = [name for name in names if parameters[name].kind is not inspect.Parameter.VAR_KEYWORD]
    needed = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    return next(iter([*needed, *names]), None)


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the model that was given to torch.compile, or the model itself."""
    return getattr(model, "_orig_mod", model)


def plain_model(model: nn.Module) -> nn.Module:
    """Return the model as it was written: out of a `ScaledModel` and out of torch.compile."""
    inner = uncompiled(model)
    if isinstance(inner, ScaledModel):
        inner = inner.model
    return model if inner is model else plain_model(inner)


def scales_input(model: nn.Module) -> bool:
    """Tell whether a model scales the features that it is called with."""
    return isinstance(uncompiled(model), ScaledModel)


def scaled_model(model: nn.Module, scaling: Standardisation | None) -> nn.Module:
    """Return a model that scales its features; the model itself if there is nothing to scale."""
    if scaling is None:
        return model
    tensors = chain(model.parameters(), model.buffers())
    device = next(tensors, scaling.mean).device
    layer = FeatureScaling(len(scaling.mean))
    # Copies: a state that is loaded into one model changes no other one.
    layer.mean = scaling.mean.to(device, copy=True)
    layer.std = scaling.std.to(device, copy=True)
    return ScaledModel(layer, model)


_PARTS = {"scaling.mean": MEAN, "scaling.std": STD}


def saved_state(model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a model, or of its `state_dict()`, by the names in model.safetensors.

    They are the names of the model behind the scaling, and ``feature_mean`` and ``feature_std``.
    """
    if isinstance(model, nn.Module) and not isinstance(model, ScaledModel):
        return model.state_dict()
    state: Mapping[str, Tensor] = model.state_dict() if isinstance(model, nn.Module) else model
    if (
        not all(name in _PARTS or name.startswith("model.") for name in state)
        or not _PARTS.keys() <= state.keys()
    ):
        return dict(state)
    return {_PARTS.get(name) or name.removeprefix("model."): value for name, value in state.items()}


def split_scaling(
    tensors: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], Standardisation | None]:
    """Return a model's tensors without those of the scaling, and the scaling if there is one."""
    state = {name: value for name, value in tensors.items() if name not in (MEAN, STD)}
    if MEAN not in tensors:
        return state, None
    return state, Standardisation(tensors[MEAN], tensors[STD])
