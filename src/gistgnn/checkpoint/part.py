"""What a process holds of the tensors of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Some rows of a tensor: [rows, ...]; of a single number, all of it.

    Args:
        tensor: the rows that this process has, or is to have.
        shape: of the whole tensor.
        first: which of its rows is the first of these.
    """

    tensor: Tensor
    shape: torch.Size
    first: int = 0

    @classmethod
    def whole(cls, tensor: Tensor) -> Part:
        """All of a tensor."""
        return cls(tensor, tensor.shape)
