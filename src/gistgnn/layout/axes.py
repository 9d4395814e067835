"""Which dimension of which parameter or buffer lies along which hidden axis.

An axis is the feature dimension of a layer, d_l in the paper; the entries of `build(widths)` are
the axes' widths. To infer the layout, the model is built at several widths on the meta device,
without memory: the dimensions that grow with a width lie along its axis. So no knowledge of the
model's layers is needed. `gistgnn.layout.check` checks the result.
"""

import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gistgnn.errors import InputError, reason
from gistgnn.sampling.call import signature
from gistgnn.utils.checks import WIDEST, as_integer, check_count, shown

Build = Callable[[Any], nn.Module]
Widths = tuple[int, ...]

# Limits of the search: all orders of six segments; of more segments, the natural and the reversed
# order at least.
MOST_ORDERS = 1000
MOST_CANDIDATES = 2000

_PRODUCT = (
    "it is a product of widths, as in NNConv, whose edge network makes a matrix for every edge; "
    "use a layer whose edge network makes one vector, such as GINEConv"
)


@dataclass(frozen=True)
class Segment:
    """A stretch of a dimension: all features of an axis in order, or entries of no axis.

    Attributes:
        axis: the axis, or None.
        fixed: the number of entries, if they are of no axis.
    """

    axis: int | None
    fixed: int = 0

    def size(self, features: Sequence[int]) -> int:
        """Return the number of entries, for the given numbers of features of the axes."""
        return self.fixed if self.axis is None else features[self.axis]


Dim = tuple[Segment, ...]
"""The segments of one dimension of a tensor, in order. An axis may occur several times."""


class NoLayoutError(InputError):
    """The features of a model cannot be split into blocks; with m = 1 it trains all the same."""


class NotOnMetaError(Exception):
    """A model on the meta device has other parameters or buffers than one with values."""


@dataclass(frozen=True)
class Layout:
    """How every parameter and buffer of a model lies along the hidden axes.

    Attributes:
        dims: for every parameter and buffer, by name, the segments of each dimension.
        units: for every axis, the step of the width in `build` that adds a feature. It is 4 for the
            width of 4 heads.
        unused: the inputs that the model gets and makes no use of; see `check_behaviour`.
        derived: the buffers that forward computes from whole parameters; see `layout.derived`.
        builds_on_meta: whether the model can be built on the meta device, where its tensors take no
            memory.
        refusal: why no axis can be split. Such a model is trained with m = 1 alone.
        shared: whether `build` takes a single width, which all layers share.
        input_axis: the axis of the input features, if they are one.
    """

    dims: dict[str, tuple[Dim, ...]]
    units: tuple[int, ...]
    unused: frozenset[str] = frozenset()
    derived: frozenset[str] = frozenset()
    builds_on_meta: bool = True
    refusal: str | None = None
    shared: bool = False
    input_axis: int | None = None

    def features(self, widths: Sequence[int]) -> Widths:
        """Return the number of features d_l of every axis for the given widths of ``build``."""
        return tuple(map(operator.floordiv, widths, self.units))

    def widths(self, features: Iterable[int]) -> Widths:
        """Return the widths of ``build`` for the given numbers of features of the axes."""
        return tuple(map(operator.mul, features, self.units))

    def names_along(self, axis: int) -> list[str]:
        """Return the names of the parameters and buffers with a dimension along the axis."""
        return [name for name in self.dims if self.dims_along(name, {axis})]

    def dims_along(self, name: str, axes: Collection[int]) -> list[int]:
        """Return the dimensions of a tensor that lie along one of the axes, if only in part."""
        return [
            i
            for i, dim in enumerate(self.dims[name])
            if any(segment.axis in axes for segment in dim)
        ]

    def shape(self, name: str, features: Sequence[int]) -> list[int]:
        """Return the shape of a tensor, for the given numbers of features of the axes."""
        return [sum(segment.size(features) for segment in dim) for dim in self.dims[name]]

    def mask_along(self, name: str, axes: Collection[int], features: Sequence[int]) -> Tensor:
        """Return which entries of a tensor lie along one of the axes.

        The mask is boolean, and broadcasts to the tensor's shape.
        """
        dims = self.dims[name]
        mask = torch.zeros([1] * len(dims), dtype=torch.bool)
        for i, dim in enumerate(dims):
            flags = torch.tensor([segment.axis in axes for segment in dim], dtype=torch.bool)
            sizes = torch.tensor([segment.size(features) for segment in dim], dtype=torch.int64)
            mask = mask | _along_dim(flags.repeat_interleave(sizes), i, len(dims))
        return mask

    def index(
        self, name: str, blocks: Sequence[Tensor], features: Sequence[int]
    ) -> tuple[Tensor, ...]:
        """Return the entries of a tensor that blocks select, as an index of the tensor.

        For the arguments see `positions`.
        """
        dims = self.dims[name]
        return tuple(
            _along_dim(self.positions(dim, blocks, features), i, len(dims))
            for i, dim in enumerate(dims)
        )

    def positions(self, dim: Dim, blocks: Sequence[Tensor], features: Sequence[int]) -> Tensor:
        """Return the positions of blocks in one dimension of a tensor, in order.

        Args:
            dim: the dimension.
            blocks: the selected features of every axis.
            features: the number of features of every axis.
        """
        parts = []
        offset = 0
        for segment in dim:
            size = segment.size(features)
            selected = torch.arange(size) if segment.axis is None else blocks[segment.axis]
            parts.append(selected + offset)
            offset += size
        return torch.cat(parts)


def _along_dim(values: Tensor, dim: int, dims: int) -> Tensor:
    """Return a vector that lies along one of so many dimensions; the others have size 1."""
    return values.view(-1, *[1] * (dims - 1 - dim))


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer by name, each once; raise InputError if one is lazy."""
    tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    for name, tensor in tensors.items():
        if is_lazy(tensor):
            raise InputError(
                f"parameter '{name}' is lazy: give the layer its number of input features instead "
                "of -1"
            )
    return tensors


def construct(build: Build, widths: Widths, *, shared: bool) -> nn.Module:
    """Return build(widths), or build(width) if all layers share one axis.

    Raises:
        InputError: build fails, or returns no module.
    """
    argument = widths[0] if shared else widths
    try:
        module = build(argument)
    except InputError:
        raise
    except Exception as error:  # A user's function may raise anything.
        hint = (
            "; if build takes a tuple of widths, one for each hidden layer, give "
            f"widths=({argument},)"
        )
        if not isinstance(argument, int):
            hint = (
                "; if build takes one width for all layers, as PyG's models do, give an "
                f"integer: widths={widths[0]}"
            )
        hint = hint if isinstance(error, TypeError) else ""
        raise InputError(f"build({argument}) failed: {reason(error)}{hint}") from error
    if not isinstance(module, nn.Module):
        raise InputError(
            f"build({argument}) returned {type(module).__name__}, expected a torch.nn.Module"
        )
    for layer in layers_that_cache(module):
        layer.cached = False
    return module


def layers_that_cache(module: nn.Module) -> list[Any]:
    """Return PyG's layers with ``cached=True``.

    They would use the normalised edges of the first graph for every other one, so `construct`
    switches this off. gistgnn keeps those of every batch by itself.
    """
    return [
        layer
        for layer in module.modules()
        if getattr(layer, "cached", None) is True and _is_of_pyg(layer)
    ]


def _is_of_pyg(layer: nn.Module) -> bool:
    return any(kind.__module__.startswith("torch_geometric.") for kind in type(layer).__mro__)


def candidate_layouts(
    build: Build, widths: Widths, *, shared: bool, on_meta: bool
) -> Iterator[Layout]:
    """Yield the layouts that explain how a model's shapes grow, the most likely one first.

    Raises:
        NotOnMetaError: ``on_meta``, and the model cannot be built on the meta device.
        NoLayoutError: a shape does not grow as a sum of widths.
    """
    # There are several only if a dimension is a sum of several axes: the shapes do not show their
    # order.
    growths = _measure(build, widths, shared, on_meta)
    units = _units(growths, widths)
    distinct = list(dict.fromkeys(growth for dims in growths.values() for growth in dims))
    options = [_arrangements(growth, widths, units) for growth in distinct]
    for choice in itertools.islice(itertools.product(*options), MOST_CANDIDATES):
        order = dict(zip(distinct, choice, strict=True))
        dims_of = {name: tuple(order[growth] for growth in dims) for name, dims in growths.items()}
        yield Layout(dims_of, units, builds_on_meta=on_meta)


def unsplit_layout(build: Build, widths: Widths, *, shared: bool, refusal: str) -> Layout:
    """Return the layout of a model of which no axis can be split, for training it whole."""
    tensors = named_tensors(construct(build, widths, shared=shared))
    try:
        with torch.device("meta"):
            builds_on_meta = (
                named_tensors(construct(build, widths, shared=shared)).keys() == tensors.keys()
            )
    except InputError:
        builds_on_meta = False
    dims: dict[str, tuple[Dim, ...]] = {
        name: tuple((Segment(None, size),) for size in tensor.shape)
        for name, tensor in tensors.items()
    }
    return Layout(dims, (1,) * len(widths), builds_on_meta=builds_on_meta, refusal=refusal)


class _Growth(NamedTuple):
    """The parts of one dimension."""

    fixed: int
    steps: tuple[int, ...]  # For every axis, the entries that come with its width.


def _measure(
    build: Build, widths: Widths, shared: bool, on_meta: bool
) -> dict[str, tuple[_Growth, ...]]:
    """Return how each dimension of every parameter and buffer grows with the widths, by name.

    For the arguments and errors see `candidate_layouts`.
    """

    def shapes(factors: Sequence[int]) -> dict[str, tuple[int, ...]]:
        scaled = tuple(w * factor for w, factor in zip(widths, factors, strict=True))
        try:
            with torch.device("meta") if on_meta else nullcontext():
                module = construct(build, scaled, shared=shared)
        except InputError as error:
            if on_meta:  # An initialisation that needs values does not run on the meta device.
                raise NotOnMetaError from error
            raise
        signature(module)  # This refuses a forward that cannot be called.
        return {name: tuple(tensor.shape) for name, tensor in named_tensors(module).items()}

    axes = range(len(widths))
    base = shapes([1] * len(widths))
    doubled = shapes([2] * len(widths))
    probes = [
        [shapes([factor if a == axis else 1 for a in axes]) for factor in (2, 3)] for axis in axes
    ]
    _check_names(base, [doubled, *itertools.chain.from_iterable(probes)])
    return {
        name: tuple(
            _growth(
                name,
                size,
                doubled[name][i],
                [(twice[name][i], thrice[name][i]) for twice, thrice in probes],
            )
            for i, size in enumerate(shape)
        )
        for name, shape in base.items()
    }


def _check_names(
    base: dict[str, tuple[int, ...]], at_other_widths: list[dict[str, tuple[int, ...]]]
) -> None:
    """Refuse a model that has other tensors at other widths, or tensors of other dimensions.

    Args:
        base: the shapes of its tensors at the full widths, by name.
        at_other_widths: the same at each of some other widths.
    """
    for shapes in at_other_widths:
        if differing := sorted(base.keys() ^ shapes.keys()):
            name = differing[0]
            raise NoLayoutError(
                f"parameter '{name}' exists at some widths only: build the same layers at every "
                "width (GENConv and others add a projection where the sizes on their two sides "
                "differ: give them equal sizes, by one integer as widths and a Linear layer before "
                "and after them)"
            )
        for name, shape in base.items():
            if (dims := len(shapes[name])) != len(shape):
                raise NoLayoutError(
                    f"parameter '{name}' has {len(shape)} dimensions at some widths, {dims} at "
                    "others"
                )


def _growth(name: str, size: int, doubled: int, per_axis: list[tuple[int, int]]) -> _Growth:
    """Express a size as a sum of axes.

    Args:
        name: of the tensor.
        size: at the given widths.
        doubled: the size when all widths double.
        per_axis: for every axis, the sizes when its width doubles and triples.

    Raises:
        NoLayoutError: the size is no sum of axes.
    """
    steps = []
    for axis, (twice, thrice) in enumerate(per_axis):
        if thrice - twice != twice - size or twice < size:
            why = (
                _PRODUCT
                if (twice, thrice) == (4 * size, 9 * size)
                else "it is not made of whole copies of the axis"
            )
            grows = f"grows to {twice} and {thrice} as width {axis} doubles and triples: {why}"
            raise NoLayoutError(f"parameter '{name}': a dimension of {size} {grows}")
        steps.append(twice - size)
    if size < sum(steps) or doubled != size + sum(steps):
        why = f": {_PRODUCT}" if doubled == 4 * size else ""
        raise NoLayoutError(f"parameter '{name}': a dimension of {size} is not a sum of axes{why}")
    return _Growth(size - sum(steps), tuple(steps))


def _units(growths: dict[str, tuple[_Growth, ...]], widths: Widths) -> tuple[int, ...]:
    """Return for every axis the step of the width that adds a feature (see `Layout.units`)."""
    units = []
    for axis, width in enumerate(widths):
        # How many entries of a dimension come with each step of the width: 1/4 for 4 heads.
        slopes = [
            Fraction(growth.steps[axis], width)
            for growths_of_tensor in growths.values()
            for growth in growths_of_tensor
            if growth.steps[axis]
        ]
        if not slopes:
            raise InputError(
                f"no parameter of build(widths) depends on width {axis} ({width}): remove it from "
                "widths"
            )
        units.append(math.lcm(*(slope.denominator for slope in slopes)))
    return tuple(units)


def _arrangements(growth: _Growth, widths: Widths, units: tuple[int, ...]) -> list[Dim]:
    """List the possible orders of a dimension's segments.

    They may stand by axis, [h1, h2], or be repeated, [h1, h2, Ah1, Ah2].
    """
    copies = {a: step * units[a] // widths[a] for a, step in enumerate(growth.steps) if step}
    if not copies:
        return [(Segment(None, growth.fixed),)]
    if not growth.fixed and len(copies) == 1:
        ((axis, count),) = copies.items()
        return [(Segment(axis),) * count]
    dims = []
    most_repeats = math.gcd(growth.fixed, *copies.values())
    for repeats in range(1, most_repeats + 1):
        if most_repeats % repeats:
            continue
        parts: list[Dim] = [(Segment(None, growth.fixed // repeats),)] if growth.fixed else []
        parts += [(Segment(axis),) * (count // repeats) for axis, count in copies.items()]
        orders = itertools.chain([parts, parts[::-1]], itertools.permutations(parts))
        dims += [
            tuple(itertools.chain(*order)) * repeats
            for order in itertools.islice(orders, MOST_ORDERS)
        ]
    return list(dict.fromkeys(dims))


def check_widths(widths: Any, input_axis: int | None) -> Widths:
    """Return a user's ``widths`` as a tuple.

    Raises:
        InputError: they or ``input_axis`` are out of range.
    """
    entries = widths if isinstance(widths, (list, tuple)) else (widths,)
    if not entries:
        raise InputError(
            "widths is missing: give the width of each hidden layer, or one integer for all of them"
        )
    axes = tuple(integer for width in entries if (integer := as_integer(width)) is not None)
    if not axes or len(axes) < len(entries) or min(axes) < 1:
        raise InputError(
            f"widths is {shown(widths)}, expected an integer >= 1 or a sequence of them"
        )
    for width in axes:
        check_count("a width", width, most=WIDEST)
    if input_axis is not None and as_integer(input_axis) not in range(len(axes)):
        raise InputError(
            f"input_axis is {shown(input_axis)}, expected one of 0 to {len(axes) - 1}, or None"
        )
    return axes
