"""Compute the new Θ from the sub-GCNs in the journal of a round."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from gistgnn.partition import Blocks
from gistgnn.theta.disk.journal import BLOCKS
from gistgnn.theta.disk.tensor_file import EditableFile, Rows
from gistgnn.theta.keys import MOMENTS, moment_of, name_of
from gistgnn.theta.slices import Cut, Slices, gather, merge_shared
from gistgnn.theta.trained import is_counter


class Merge:
    """Reads the sub-GCNs of one round, each from its file and with its blocks, a few rows at a time."""

    def __init__(self, slices: Slices, subs: Sequence[tuple[EditableFile, Blocks]]) -> None:
        self._slices, self._subs = slices, subs
        self._blocks = [blocks for _, blocks in subs]
        self._keys = list(dict.fromkeys(key for file, _ in subs for key in file.specs if not key.startswith(BLOCKS)))

    def counters(self, shapes: dict[str, torch.Size]) -> dict[str, float]:
        """The largest step count of each parameter, by key."""
        return {
            key: max(float(file.slice(key)) for file, _ in self._subs if key in file.specs)
            for key in self._keys
            if self._counts(key, shapes)
        }

    def keys(self, shapes: dict[str, torch.Size]) -> list[str]:
        """The keys of the tensors that are written into Θ; counters are not."""
        return [key for key in self._keys if not self._counts(key, shapes)]

    def is_shared(self, key: str, dtype: torch.dtype) -> bool:
        """Whether several sub-GCNs hold the same entry, or the tensor is boolean."""
        return dtype == torch.bool or not self._slices.disjoint(name_of(key), self._blocks)

    def mean(self, key: str, before: Tensor) -> Tensor:
        """Return the new value of a tensor of which several sub-GCNs hold the same entries, from that before."""
        wide = before.float() if before.dtype == torch.bfloat16 else before
        cuts = [self._slices.cut(name_of(key), blocks) for blocks in self._blocks]
        values = [
            file.slice(key) if key in file.specs else torch.zeros_like(gather(wide, cut))
            for (file, _), cut in zip(self._subs, cuts, strict=True)
        ]
        merge_shared(wide, cuts, values)
        return wide

    def parts(self, key: str, shape: torch.Size) -> list[tuple[Cut, Rows]]:
        """Return the cut of a tensor that each sub-GCN holds, and a function that reads its rows.

        An optimiser without a state counts as one whose moments are zero.
        """
        found: list[tuple[Cut, Rows]] = []
        for file, blocks in self._subs:
            cut = self._slices.cut(name_of(key), blocks)
            rows = partial(file.rows, key) if key in file.specs else _zeros(shape, cut)
            found.append((cut, rows))
        return found

    def _counts(self, key: str, shapes: dict[str, torch.Size]) -> bool:
        if not key.startswith(MOMENTS):
            return False
        shape = next(file.specs[key].shape for file, _ in self._subs if key in file.specs)
        return is_counter(moment_of(key), shape, shapes[name_of(key)])


def _zeros(shape: torch.Size, cut: Cut) -> Callable[[int, int], Tensor]:
    columns = [size if p is None else len(p) for size, p in zip(shape[1:], cut[1:], strict=True)]
    return lambda start, stop: torch.zeros(stop - start, *columns)
