"""The model whose parameters are Θ: how it is built, at which widths, from which seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gistgnn.layout.axes import Build, Layout, Widths, construct, named_tensors
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
