"""The initial values of Θ that the caller gives: those of a trained model."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.utils.checksums import checksum


def values_of(given: nn.Module | Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Return the parameters and buffers of a trained model, for a Θ of this model.

    Args:
        given: the model, or its `state_dict()`.
        spec: the model that `build` returns at the full widths.

    Raises:
        InputError: it is something else, or the names or shapes differ from those of the full model.
    """
    if not isinstance(given, (nn.Module, Mapping)):
        raise InputError(f"init is a {type(given).__name__}, expected a trained model, or its state_dict()")
    tensors = named_tensors(given) if isinstance(given, nn.Module) else given
    own = spec.tensor_specs()
    for name, (shape, dtype) in own.items():
        found = tensors.get(name)
        if not isinstance(found, Tensor):
            raise InputError(f"init has no '{name}', which the model of the full widths has: give a model of `build`")
        if found.shape != shape:
            raise InputError(
                f"'{name}' is {list(found.shape)} in init, {list(shape)} in the model of the full widths: give a model "
                f"of the widths {spec.widths}"
            )
        if dtype.is_floating_point and not bool(torch.isfinite(found).all()):
            raise InputError(f"'{name}' of init is not finite: give a model that has not diverged")
    if isinstance(given, nn.Module) and (more := sorted(tensors.keys() - own.keys())):
        raise InputError(f"init has '{more[0]}', which the model of the full widths lacks: give a model of `build`")
    return {name: tensors[name].detach() for name in own}


def checksum_of(tensors: Mapping[str, Tensor]) -> int:
    """Return a checksum of tensors, by which a resumed run knows that it is the same one."""
    found = 0
    for tensor in tensors.values():
        found = checksum(tensor, found)
    return found
