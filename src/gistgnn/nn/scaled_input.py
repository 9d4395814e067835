"""Models that scale the features that they are called with, by a mean and a deviation that are saved with them."""

import inspect
from typing import Any

from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.graphs.standardise import MEAN, STD
from gistgnn.nn.gnn import members_of


def scale_input(model: nn.Module, mean: Tensor, std: Tensor) -> nn.Module:
    """Let a model scale its features from now on, and return it: it is called with x, and computes on (x - mean) / std.

    Mean and deviation, [F] both, are buffers of the model, ``feature_mean`` and ``feature_std``; an ensemble's members
    have them.
    """
    for member in members_of(model):
        member.register_buffer(MEAN, mean)
        member.register_buffer(STD, std)
        member.register_forward_pre_hook(_scale, with_kwargs=True)
    return model


def scales_input(model: nn.Module) -> bool:
    """Whether `scale_input` was called for the model."""
    return MEAN in model._buffers


def scaled(model: nn.Module, x: Tensor, columns: slice = slice(None)) -> Tensor:
    """Scale features, or the given columns of them, as the model does; a model that does not scale leaves them."""
    if not scales_input(model):
        return x
    if columns == slice(None) and x.shape[1] != (known := len(model.get_buffer(MEAN))):
        raise InputError(f"x has {x.shape[1]} features; the model was trained on {known}")
    mean, std = (model.get_buffer(name)[columns].to(x.device) for name in (MEAN, STD))
    return ((x - mean) / std).contiguous()


def _scale(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args:
        return (scaled(model, args[0]), *args[1:]), kwargs
    first = next(iter(inspect.signature(model.forward).parameters))
    return args, {**kwargs, first: scaled(model, kwargs[first])}
