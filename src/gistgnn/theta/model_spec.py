"""The model whose parameters are Θ: how it is built, at which widths, from which seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gistgnn.layout.axes import Build, Layout, Widths, named_tensors
from gistgnn.theta.initial import (
    UnknownInitialisationError,
    Write,
    build_from_seed,
    build_on_meta,
    initialise,
    tensors_from_seed,
)


@dataclass(frozen=True)
class TensorSpec:
    """The shape and type of a tensor."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.shape.numel() * self.dtype.itemsize


@dataclass(frozen=True)
class ModelSpec:
    """The model whose parameters are Θ.

    Args:
        build: returns the model at given widths.
        layout: how its tensors lie along the hidden axes.
        widths: the full widths.
        shared: `build` takes a single width.
        seed: the initial parameters follow from it.
        device: where the model trains.
    """

    build: Build
    layout: Layout
    widths: Widths
    shared: bool
    seed: int
    device: torch.device

    def from_seed(self) -> nn.Module:
        """Build the model with its initial parameters, on the host."""
        return build_from_seed(self.build, self.widths, self.seed, shared=self.shared)

    def initial_tensors(self) -> dict[str, Tensor]:
        """The initial parameters and buffers, by name, on the host."""
        return tensors_from_seed(self.build, self.widths, self.seed, shared=self.shared)

    def on_meta(self) -> nn.Module:
        """Build the model without values, on the meta device."""
        return build_on_meta(self.build, self.widths, shared=self.shared)

    def tensors_on_meta(self) -> dict[str, Tensor]:
        """The parameters and buffers without values, by name."""
        return named_tensors(self.on_meta())

    def tensor_specs(self, *, half: bool = False) -> dict[str, TensorSpec]:
        """The shape and type of every parameter and buffer; `half` turns floating-point types into bfloat16."""
        return {
            name: TensorSpec(tensor.shape, torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
            for name, tensor in self.tensors_on_meta().items()
        }

    def write_initial(self, write: Write) -> None:
        """Write the initial values, some entries at a time where that can be done.

        Args:
            write: called with a tensor's name, the place of the first entry in the flat tensor, and the values.
        """
        try:
            initialise(self.build, self.layout, self.widths, self.seed, write, shared=self.shared)
        except UnknownInitialisationError:  # the whole model is in memory once
            for name, tensor in self.initial_tensors().items():
                write(name, 0, tensor.reshape(-1))
