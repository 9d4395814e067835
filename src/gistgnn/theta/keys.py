"""What the tensors of Θ are called in checkpoints and in the files of a round."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.storage.checkpoints import Checkpoint
from gistgnn.theta.trained import Moments

THETA, BEST, MOMENTS = "theta/", "best/", "moments/"


def keyed(theta: Mapping[str, Tensor], moments: Moments, best: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Put tensors under one set of keys: theta/NAME, moments/NAME/KEY and best/NAME."""
    tensors = {f"{THETA}{name}": tensor for name, tensor in theta.items()}
    tensors |= {f"{BEST}{name}": tensor for name, tensor in (best or {}).items()}
    for name, own in moments.items():
        tensors |= {f"{MOMENTS}{name}/{key}": tensor for key, tensor in own.items()}
    return tensors


def name_of(key: str) -> str:
    """The parameter or buffer that a key belongs to."""
    name = key.split("/", 1)[1]
    return name.rsplit("/", 1)[0] if key.startswith(MOMENTS) else name


def moment_of(key: str) -> str:
    """The optimiser's own key of a moment."""
    return key.rsplit("/", 1)[1]


def check_held(saved: Checkpoint, shapes: Mapping[str, torch.Size]) -> None:
    """Raise InputError unless a checkpoint holds a Θ of these shapes."""
    for name, shape in shapes.items():
        if f"{THETA}{name}" not in saved.shapes:
            raise InputError(
                f"the checkpoint holds no '{name}': the run keeps its parameters in its own files; resume with --store "
                "disk, or start again"
            )
        if (found := saved.shapes[f"{THETA}{name}"]) != shape:
            raise InputError(f"'{name}' is {list(found)} in the checkpoint, {list(shape)} in this model: start again")
