"""Find the parameters that must be divided by m where m sub-GCNs stand side by side.

Put m copies of a narrow model side by side, with zeros between them. A weight that sums over all
features of a hidden layer, such as the output layer's, then sums over m times as many: the model's
output is the sum of the copies' outputs, not their mean. The full model is the mean if exactly
these tensors, the readout, are divided by m. `find_readout` finds them by trying small random
instances, so that it needs no knowledge of the model's layers.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError, users_code
from gistgnn.layout.axes import Build, Layout, Widths
from gistgnn.layout.derived import compute_derived
from gistgnn.layout.instance import (
    DRAWS,
    Instance,
    check_sizes,
    construct_on_host,
    same,
    small_instance,
)
from gistgnn.utils.random_streams import Stream

COPIES = 2
EQUAL = (1.0, 1.0)  # The factors of a tensor's values in the two copies.
# These have the same sum. The negative one tells a sum from what ReLU only passes through.
UNEQUAL = (3.5, -1.5)
MOST_TRIED = 1000  # At most so many choices of tensors are tried.
# Derived buffers are computed to the last digits, as outputs are compared to the last digits.
CONVERGED: Any = {"change": 1e-13, "most_passes": 2000}


def find_readout(
    build: Build,
    widths: Widths,
    layout: Layout,
    split: Collection[int],
    *,
    by_entries: bool = False,
) -> frozenset[str]:
    """Return the parameters that sum over an axis in `split` into something that is not split.

    For the arguments see `find_readouts`.
    """
    (readout,) = find_readouts(build, widths, layout, [split], by_entries=by_entries)
    return readout


def find_readouts(
    build: Build,
    widths: Widths,
    layout: Layout,
    splits: Sequence[Collection[int]],
    *,
    by_entries: bool = False,
) -> list[frozenset[str]]:
    """Return the results of `find_readout` for several choices of split axes.

    Args:
        build, widths, layout: of the full model.
        splits: the choices.
        by_entries: whether only the entries of a tensor that lie along a split axis are divided,
            not all of it. Without it, a weight that takes split and other features in one dimension
            is refused.
    """
    with Stream(0, "readout"):  # The user's random stream does not move.
        narrow_models = [_narrow(build, layout, draw) for draw in range(DRAWS)]
        return [
            _readout(build, widths, layout, frozenset(split), narrow_models, by_entries=by_entries)
            for split in splits
        ]


def _readout(
    build: Build,
    widths: Widths,
    layout: Layout,
    split: frozenset[int],
    narrow_models: Sequence[Instance],
    *,
    by_entries: bool,
) -> frozenset[str]:
    pairs = [_pair(build, layout, split, narrow) for narrow in narrow_models]
    model = narrow_models[0].module
    candidates = [
        name for name, _ in model.named_parameters() if len(layout.dims_along(name, split)) == 1
    ]
    summing = [name for name in candidates if all(pair.is_sum(name) for pair in pairs)]
    usual = [name for name in summing if _sums_as_usual(layout, name, split)]
    for chosen in itertools.islice(_choices(summing, usual), MOST_TRIED):
        if all(pair.is_mean(chosen, by_entries) for pair in pairs):
            return chosen
    raise InputError(
        f"{type(model).__name__}, the model of build({widths[0] if layout.shared else widths}), "
        "cannot be merged as the mean of its sub-GCNs: no choice of parameters to divide by m "
        "gives m copies of a narrow model side by side the output of one; train it with sub_gcns=1"
    )


def _sums_as_usual(layout: Layout, name: str, split: Collection[int]) -> bool:
    """Whether a tensor sums over a split axis in torch's order of dimensions, [out, in].

    The last of at least two dimensions is then the one that lies along the axis.
    """
    last = len(layout.dims[name]) - 1
    return last > 0 and layout.dims_along(name, split) == [last]


def cross_tensors(layout: Layout, split: Collection[int]) -> frozenset[str]:
    """The names of the weights between two split layers.

    They have at least two dimensions along split axes.
    """
    return frozenset(name for name in layout.dims if len(layout.dims_along(name, split)) >= 2)


@dataclass(frozen=True)
class _Pair:
    """A small narrow model, and the full model in which two copies of it stand side by side."""

    narrow: Instance
    full: Instance
    layout: Layout
    split: frozenset[int]

    @cached_property
    def x(self) -> Tensor:
        """The full model's input features: where their axis is split, every copy has its own."""
        return self.narrow.batch.x.repeat(1, COPIES if self.layout.input_axis in self.split else 1)

    @cached_property
    def copies(self) -> dict[str, Tensor]:
        """Every tensor of the full model, undivided."""
        return {name: self.side_by_side(name, EQUAL) for name in self.narrow.values}

    @cached_property
    def output_of_copies(self) -> Tensor:
        """The full model's output before anything is divided."""
        return self.output(self.copies)

    def side_by_side(self, name: str, factors: Sequence[float]) -> Tensor:
        """Return a tensor of the full model, which is zero outside the blocks of the copies.

        Args:
            name: of the tensor.
            factors: of its values in the blocks of the copies, in order.
        """
        value = self.narrow.values[name]
        full = self.full.features
        target = value.new_zeros(self.layout.shape(name, full))
        for k, factor in enumerate(factors):
            blocks = [
                torch.arange(n) + (k * n if a in self.split else 0)
                for a, n in enumerate(self.narrow.features)
            ]
            if factor != 1:
                value_of_copy = value * self.on_split_entries(name, factor, self.narrow)
            else:
                value_of_copy = value
            target[self.layout.index(name, blocks, full)] = value_of_copy
        return target

    def on_split_entries(self, name: str, factor: float, instance: Instance) -> Tensor:
        """Return factors for a tensor: ``factor`` along a split axis, and 1 elsewhere."""
        along = self.layout.mask_along(name, self.split, instance.features)
        factors = torch.ones(along.shape, dtype=torch.float64)
        factors[along] = factor
        return factors

    def is_sum(self, name: str) -> bool:
        """Whether a tensor only enters a sum over the copies.

        As the copies are equal, the output then stays if one counts more and one less.
        """
        unequal = {name: self.side_by_side(name, UNEQUAL)}
        return same(self.output(self.copies | unequal), self.output_of_copies)

    def is_mean(self, names: Collection[str], by_entries: bool) -> bool:
        """Tell whether the full model with these tensors divided has the narrow model's output."""
        divided = {name: self.copies[name] / COPIES for name in names}
        if by_entries:
            halves = {name: self.on_split_entries(name, 1 / COPIES, self.full) for name in names}
            divided = {name: self.copies[name] * halves[name] for name in names}
        return same(self.output(self.copies | divided), self.narrow.reference)

    def output(self, values: dict[str, Tensor]) -> Tensor:
        """Return the full model's output with these values and the buffers derived from them."""
        first = self.full.output(values, self.x)
        if not self.layout.derived:
            return first
        model = self.full.module
        compute_derived(model, self.layout, self.full.features, **CONVERGED)
        derived = {name: model.get_buffer(name) for name in self.layout.derived}
        return self.full.output(values | derived, self.x)


def _narrow(build: Build, layout: Layout, draw: int) -> Instance:
    narrow = small_instance(build, layout, draw)
    compute_derived(narrow.module, layout, narrow.features, **CONVERGED)
    return narrow


def _pair(build: Build, layout: Layout, split: frozenset[int], narrow: Instance) -> _Pair:
    features = tuple(n * COPIES if axis in split else n for axis, n in enumerate(narrow.features))
    module = construct_on_host(build, layout, features)
    check_sizes(module, layout, features)
    pair = _Pair(narrow, Instance(module, narrow.batch, features), layout, split)
    with users_code(f"the model cannot be tried at widths {layout.widths(features)}"):
        _ = pair.output_of_copies  # The model is run here for the first time.
    return pair


def _choices(summing: Sequence[str], usual: Collection[str]) -> Iterator[frozenset[str]]:
    """Yield every subset of ``summing``.

    The usual choice comes first, then those that differ least from it, of these the smallest.
    """
    for changes in range(len(summing) + 1):
        changed = [
            frozenset(usual).symmetric_difference(flip)
            for flip in itertools.combinations(summing, changes)
        ]
        yield from sorted(changed, key=len)
