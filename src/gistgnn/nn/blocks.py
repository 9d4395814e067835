"""`Blocks`: several copies of a pattern along a diagonal, so that one product serves all heads."""

from __future__ import annotations

import torch
from torch import Tensor

from gistgnn.nn.pattern import Pattern, index_dtype


class Blocks(Pattern):
    """The block diagonal pattern of ``count`` copies of a pattern [R, C]: [count·R, count·C], copy by copy."""

    def __init__(self, base: Pattern, count: int) -> None:
        self._count, shape = count, (count * base.shape[0], count * base.shape[1])
        self._dtype = index_dtype(*shape, count * base.nnz)
        rowptr = torch.cat([base.rowptr.new_zeros(1, dtype=self._dtype), self._repeated(base.rowptr[1:], base.nnz)])
        super().__init__(rowptr, self._repeated(base.col, base.shape[1]), shape)

    def _repeated(self, index: Tensor, step: int) -> Tensor:
        """Return ``count`` copies of an index: [n], each larger by ``step`` than the one before: [count·n]."""
        starts = torch.arange(self._count, dtype=self._dtype, device=index.device).mul_(step)
        return (index.to(self._dtype) + starts.unsqueeze(1)).view(-1)


def blocks(pattern: Pattern, count: int) -> Pattern:
    """Return the block diagonal pattern of ``count`` copies of ``pattern``, computed once; for one copy, itself."""
    if count == 1:
        return pattern
    kept: dict[int, Blocks] = pattern.__dict__.setdefault("_blocks", {})
    if count not in kept:
        kept[count] = Blocks(pattern, count)
    return kept[count]
