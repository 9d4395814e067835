"""The model whose parameters are Θ: how it is built, at which widths, from which seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gistgnn.layout.axes import Build, Layout, Widths, named_tensors
from gistgnn.theta.initial import build_from_seed, build_on_meta, tensors_from_seed


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
