"""An ensemble: several models as one module with averaged outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class EnsembleModel(nn.Module):
    """The mean of the outputs of several models, which take the same arguments."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *arguments: Any, **edge_data: Tensor) -> Tensor:
        """Call every member with the arguments and return the mean output: [N, C]."""
        return torch.stack([member(*arguments, **edge_data) for member in self.members]).mean(dim=0)


def members_of(model: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble, or ``[model]`` for any other model."""
    return list(model.members) if isinstance(model, EnsembleModel) else [model]
