"""A sub-GCN after its training, how a module is filled with its slice of Θ, and the keys of tensors in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.errors import GistError, InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.storage.checkpoints import Checkpoint

Moments = dict[str, dict[str, Tensor]]  # parameter -> the optimiser's key -> state


@dataclass
class Trained:
    """A sub-GCN after its local steps.

    Args:
        tensors: its parameters and buffers, by name.
        moments: its optimiser's state of every parameter; empty where moments are not carried.
    """

    tensors: dict[str, Tensor]
    moments: Moments = field(default_factory=dict)

    @classmethod
    def of(cls, sub: nn.Module, optimizer: Optimizer | None = None) -> Trained:
        """The tensors of a module and the states of its optimiser, not copied."""
        trained = cls({name: tensor.detach() for name, tensor in named_tensors(sub).items()})
        if optimizer is not None:
            trained.moments = {
                name: {key: value for key, value in optimizer.state.get(p, {}).items() if isinstance(value, Tensor)}
                for name, p in sub.named_parameters()
            }
        return trained

    def copy_to(self, devices: Mapping[str, torch.device]) -> Trained:
        """Copy everything to the device that each tensor of Θ is on."""
        return Trained(
            {name: tensor.to(devices[name], copy=True) for name, tensor in self.tensors.items()},
            {n: {k: v.to(devices[n], copy=True) for k, v in m.items()} for n, m in self.moments.items()},
        )


@dataclass
class RoundReport:
    """The outcome of a round's training, on one process or on all of them.

    Args:
        losses: the mean loss of every sub-GCN that took a step.
        error: the reason why the round cannot be written into Θ, or None.
    """

    losses: dict[int, float]
    error: GistError | None = None


def fill(module: nn.Module, slices: Mapping[str, Tensor]) -> None:
    """Copy tensors into a module's parameters and buffers of the same names."""
    check_fits(module, {name: tensor.shape for name, tensor in slices.items()})
    with torch.no_grad():
        for name, target in named_tensors(module).items():
            target.copy_(slices[name], non_blocking=True)


def check_fits(module: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
    """Raise InputError, naming the first that differs, unless a module's parameters and buffers have these shapes."""
    own = named_tensors(module)
    if differing := sorted(own.keys() ^ shapes.keys()):
        raise InputError(f"parameter '{differing[0]}' is not in both the sub-GCN and the global model")
    for name, target in own.items():
        if shapes[name] != target.shape:
            raise InputError(
                f"parameter '{name}' of a sub-GCN is {tuple(target.shape)}, its slice {tuple(shapes[name])}: "
                "build the same layers at every width"
            )


def give_moments(sub: nn.Module, optimizer: Optimizer, moments: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Set an optimiser's state of every parameter that has moments, on the devices that torch expects."""
    fused = any(group.get("fused") for group in optimizer.param_groups)  # counts steps on the GPU too
    for name, parameter in sub.named_parameters():
        if not (states := moments.get(name)):
            continue
        counter_device = parameter.device if fused else torch.device("cpu")
        optimizer.state[parameter] = {
            key: value.to(counter_device) if is_counter(key, value.shape, parameter.shape) else value.to(parameter)
            for key, value in states.items()
        }


def is_counter(key: str, state: torch.Size, parameter: torch.Size) -> bool:
    """Whether an optimiser's state is one number for a whole parameter, such as its step count."""
    return key == "step" or (len(state) == 0 and len(parameter) > 0)


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
