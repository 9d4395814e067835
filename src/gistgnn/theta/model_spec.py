"""The model whose parameters are Θ: how it is built, at which widths, and with which initial values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, Widths, construct, named_tensors
from gistgnn.utils.checksums import checksum
from gistgnn.utils.random_streams import torch_stream


class TensorSpec(NamedTuple):
    """The shape and type of a tensor."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.shape.numel() * self.dtype.itemsize


@dataclass(frozen=True)
class ModelSpec:
    """The model whose parameters are Θ. Its methods raise an InputError if `build` fails.

    Args:
        build: returns the model at given widths.
        layout: how its tensors lie along the hidden axes.
        widths: the full widths.
        shared: `build` takes a single width.
        seed: the initial parameters follow from it.
        device: where the model trains.
        gains: by name, what the initial values of a tensor in Θ are multiplied by; 1 for others.
        stream: a further key of the initial parameters' random stream.
        init: the initial parameters and buffers by name, in place of those of the seed; None: there are none.
    """

    build: Build
    layout: Layout
    widths: Widths
    shared: bool
    seed: int
    device: torch.device
    gains: Mapping[str, float] = field(default_factory=dict)
    stream: tuple[int, ...] = ()
    init: Mapping[str, Tensor] | None = None

    def from_seed(self) -> nn.Module:
        """Build the model with its initial parameters, on the host; torch's own random stream does not move."""
        with torch_stream(self.seed, "parameters", *self.stream):
            return construct(self.build, self.widths, shared=self.shared)

    def initial_tensors(self) -> dict[str, Tensor]:
        """The initial parameters and buffers of Θ, by name, on the host; those of `init` are not copied."""
        if self.init is not None:
            return {name: tensor.detach().cpu() for name, tensor in self.init.items()}
        tensors = {name: tensor.detach() for name, tensor in named_tensors(self.from_seed()).items()}
        for name, gain in self.gains.items():
            tensors[name] *= gain
        return tensors

    def on_meta(self) -> nn.Module:
        """Build the model without values, on the meta device, where its tensors take no memory."""
        with torch.device("meta"):
            return construct(self.build, self.widths, shared=self.shared)

    def tensor_specs(self, *, half: bool = False) -> dict[str, TensorSpec]:
        """The shape and type of every parameter and buffer; `half` turns floating-point types into bfloat16."""
        return {
            name: TensorSpec(tensor.shape, torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
            for name, tensor in named_tensors(self.on_meta()).items()
        }


def values_of(given: nn.Module | Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Return the parameters and buffers of a trained model, or of its `state_dict()`, for the Θ of `spec`."""
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
