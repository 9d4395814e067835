"""Random disjoint blocks of every hidden axis (the feature partitions of section 2.1)."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.storage.record import AxisBlocks
from gistgnn.utils.checks import check_choice, check_count, check_name, shown
from gistgnn.utils.random_streams import check_seed, generator

Blocks = tuple[Tensor, ...]
"""The features of one sub-GCN along every axis, ascending."""

KINDS = ("balanced", "categorical")


class Partition:
    """Draws the blocks D_l^(i) of each axis l and sub-GCN i, in GIST anew for every round t.

    Args:
        features: d_l of each axis.
        sub_gcns: m, how many blocks each axis is split into.
        whole: the axes of which every sub-GCN has all features (Table 1's empty cells).
        kind: "balanced" blocks are random, and differ in size by at most one feature. For
            "categorical" ones each feature goes to a sub-GCN independently and uniformly, given
            that no block is empty (Assumption 1).
        seed: of the run. The blocks follow from it and the number of the draw alone.
        names: what messages call the axes. Defaults to axis 0, axis 1, ...
        refusal: why no axis of the model can be split. Defaults to none, as they can be.

    Attributes:
        split: the axes that are split if m > 1.

    Raises:
        InputError: a value is out of range, or blocks would be empty.
    """

    def __init__(
        self,
        features: Sequence[int],
        sub_gcns: int,
        *,
        whole: Collection[int] = (),
        kind: str = "balanced",
        seed: int = 0,
        names: Sequence[str] | None = None,
        refusal: str | None = None,
    ) -> None:
        if names is None:
            names = [f"axis {axis}" for axis in range(len(features))]
        elif not isinstance(names, (list, tuple)) or len(names) != len(features):
            raise InputError(
                f"axis_names is {shown(names)}, expected a list of {len(features)}, one for each "
                "axis"
            )
        for name in names:
            check_name("a name of axis_names", name)
        self.names = list(names)
        sub_gcns = check_count("sub_gcns", sub_gcns)
        self.split = [axis for axis in range(len(features)) if axis not in whole]
        if refusal is not None and sub_gcns > 1 and self.split:
            raise InputError(refusal)
        self._refusal = refusal
        check_choice("partition", kind, KINDS)
        if unknown := sorted(set(whole) - set(range(len(features)))):
            raise InputError(
                f"axis {unknown[0]} is to be left whole, but the axes are 0 to {len(features) - 1}"
            )
        for axis, (name, d) in enumerate(zip(self.names, features, strict=True)):
            if axis not in whole and sub_gcns > d:
                raise InputError(
                    f"sub_gcns is {sub_gcns}, more than the {d} features of {name}: use at most {d}"
                )
            expected_empty_blocks = sub_gcns * (1 - 1 / sub_gcns) ** d
            if kind == "categorical" and axis not in whole and expected_empty_blocks > 1:
                raise InputError(
                    f"{d} features of {name}, sent to {sub_gcns} sub-GCNs at random, leave some "
                    "without any: use fewer sub-GCNs, or the balanced partition"
                )
        self.features = tuple(features)
        self.sub_gcns = sub_gcns
        self.kind = kind
        self.seed = check_seed(seed)
        self._chosen_whole = frozenset(whole)
        self.whole = frozenset(range(len(features))) if sub_gcns == 1 else self._chosen_whole

    def split_into(self, sub_gcns: int) -> "Partition":
        """Return the partition into another number of blocks."""
        # The balanced partition is nested: if m' divides m, each block of m' is a union of blocks
        # of the same draw.
        return Partition(
            self.features,
            sub_gcns,
            whole=self._chosen_whole,
            kind=self.kind,
            seed=self.seed,
            names=self.names,
            refusal=self._refusal,
        )

    def blocks(self, draw: int) -> list[Blocks]:
        """Return the blocks of one draw.

        Returns:
            For each of the m sub-GCNs one ascending index tensor per axis.
        """
        m = self.sub_gcns
        axes = list[list[Tensor]]()
        for axis, d in enumerate(self.features):
            if axis in self.whole:
                axes.append([torch.arange(d)] * m)
                continue
            owners = self._draw_owners(generator(self.seed, "blocks", draw, axis), d)
            axes.append([torch.from_numpy(np.flatnonzero(owners == i)) for i in range(m)])
        return list(zip(*axes, strict=True))

    def _draw_owners(self, rng: np.random.Generator, features: int) -> npt.NDArray[np.int64]:
        """Return for each of the features of an axis the sub-GCN that gets it."""
        m = self.sub_gcns
        if self.kind == "balanced":
            return rng.permutation(np.arange(features) % m)
        while True:
            owners = rng.integers(m, size=features)
            if len(np.unique(owners)) == m:
                return owners

    def sizes(self, draw: int) -> list[tuple[int, ...]]:
        """Return the sizes of the blocks of one draw, for each sub-GCN one per axis.

        Those of balanced blocks are known without a draw.
        """
        if self.kind != "balanced":
            return [tuple(len(block) for block in blocks) for blocks in self.blocks(draw)]
        m = self.sub_gcns
        axes = list[list[int]]()
        for axis, d in enumerate(self.features):
            larger = d % m  # This many blocks have one feature more than the others.
            if axis in self.whole:
                axes.append([d] * m)
            else:
                axes.append([d // m + 1] * larger + [d // m] * (m - larger))
        return list(zip(*axes, strict=True))

    def describe(self, draw: int) -> list[AxisBlocks]:
        """Return the entry "partition" of result.json for one draw: the sizes of all blocks."""
        axes = []
        for axis, sizes in enumerate(zip(*self.sizes(draw), strict=True)):
            features = self.features[axis]
            blocks = [features] if axis in self.whole else [*sizes]
            axes.append(AxisBlocks(name=self.names[axis], features=features, blocks=blocks))
        return axes
