"""Several models as one, whose outputs are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class EnsembleModel(nn.Module):
    """The mean of several models' outputs.

    Args:
        members: models that are called alike.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *given: Any) -> Tensor:
        """The mean output: [N, C]; what is given is what a member takes."""
        return torch.stack([member(*given) for member in self.members]).mean(dim=0)


def members_of(model: nn.Module) -> list[nn.Module]:
    """The members of an ensemble; of another model, itself."""
    return list(model.members) if isinstance(model, EnsembleModel) else [model]
