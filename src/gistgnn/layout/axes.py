"""Which dimension of which parameter or buffer lies along which hidden axis.

An axis is one feature dimension of the model, d_l in the paper: the entries of `build(widths)` stand for the axes. The
layout is *found* by building the model at several widths without memory (the meta device) and watching which dimensions
grow and by how much, so it needs no knowledge of the layers inside. `gistgnn.layout.check` then checks it.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gistgnn.errors import InputError, reason

Build = Callable[[Any], nn.Module]
Widths = tuple[int, ...]


@dataclass(frozen=True)
class Segment:
    """A stretch of one dimension: the features of an axis in order, or (`axis` None) `fixed` features of no axis."""

    axis: int | None
    fixed: int = 0


Dim = tuple[Segment, ...]  # one dimension of a tensor, as stretches in order; an axis may stand there several times


@dataclass(frozen=True)
class Layout:
    """How every parameter and buffer of a model lies along the hidden axes.

    Args:
        dims: for each parameter and buffer, by name, the stretches that make up each of its dimensions.
        units: for each axis, how much `build`'s width grows when the axis gains one feature (a model that divides its
            width over 4 heads has axes of width / 4 features).
    """

    dims: dict[str, tuple[Dim, ...]]
    units: tuple[int, ...]

    def features(self, widths: Sequence[int]) -> Widths:
        """Return the number of features d_l of each axis at the given widths of `build`."""
        return tuple(w // u for w, u in zip(widths, self.units, strict=True))

    def widths(self, features: Sequence[int]) -> Widths:
        """Return the widths of `build` at which the axes have the given numbers of features."""
        return tuple(n * u for n, u in zip(features, self.units, strict=True))

    def carriers(self, axis: int) -> list[str]:
        """Return the names of the parameters and buffers that have a dimension along the axis."""
        return [name for name, dims in self.dims.items() if any(s.axis == axis for dim in dims for s in dim)]

    def positions(self, dim: Dim, blocks: Sequence[Tensor], features: Sequence[int]) -> Tensor:
        """Return where the blocks lie in a dimension, in order.

        Args:
            dim: one dimension of one tensor.
            blocks: for each axis the chosen features.
            features: the axes' full numbers of features.
        """
        parts, offset = [], 0
        for segment in dim:
            size = segment.fixed if segment.axis is None else features[segment.axis]
            chosen = torch.arange(size) if segment.axis is None else blocks[segment.axis]
            parts.append(chosen + offset)
            offset += size
        return torch.cat(parts)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer by name; one that stands under several names is given once.

    Raises:
        InputError: a parameter is lazy, so that its shape is not known yet.
    """
    tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    for name, tensor in tensors.items():
        if is_lazy(tensor):
            raise InputError(f"parameter '{name}' is lazy: give the layer its number of input features instead of -1")
    return tensors


def construct(build: Build, widths: Widths, *, shared: bool) -> nn.Module:
    """Return build(widths), or build(width) where one axis is shared by all layers.

    Raises:
        InputError: `build` raised an error, or returned something that is not a module.
    """
    argument = widths[0] if shared else widths
    try:
        module = build(argument)
    except InputError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise InputError(f"build({argument}) failed: {reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"build({argument}) returned {type(module).__name__}, expected a torch.nn.Module")
    return module


def _shapes(build: Build, widths: Widths, shared: bool) -> dict[str, tuple[int, ...]]:
    try:
        with torch.device("meta"):
            module = construct(build, widths, shared=shared)
    except InputError:  # an initialisation that needs values does not run on the meta device
        module = construct(build, widths, shared=shared)
    return {name: tuple(tensor.shape) for name, tensor in named_tensors(module).items()}


def _same_names(shapes: list[dict[str, tuple[int, ...]]]) -> None:
    first = shapes[0]
    for other in shapes[1:]:
        if differing := sorted(first.keys() ^ other.keys()):
            raise InputError(
                f"parameter '{differing[0]}' exists at some widths only: build the same layers at every width"
            )
        for name, shape in first.items():
            if len(other[name]) != len(shape):
                raise InputError(
                    f"parameter '{name}' has {len(shape)} dimensions at some widths, {len(other[name])} at others"
                )


@dataclass(frozen=True)
class _Growth:
    """What one dimension is made of: `fixed` entries and, for each axis, `steps` of its width."""

    fixed: int
    steps: tuple[int, ...]


def _growth(name: str, sizes: dict[str, int], per_axis: list[tuple[int, int]]) -> _Growth:
    """Fit one dimension's size as a sum of axes; `per_axis` holds the sizes at twice and three times an axis' width."""
    size, steps = sizes["base"], []
    for axis, (twice, thrice) in enumerate(per_axis):
        if thrice - twice != twice - size or twice < size:
            raise InputError(
                f"parameter '{name}': a dimension of {size} grows to {twice} and {thrice} as width {axis} doubles and "
                "triples: it is not made of whole copies of the axis"
            )
        steps.append(twice - size)
    fixed = size - sum(steps)
    if fixed < 0 or sizes["all"] != size + sum(steps):
        raise InputError(f"parameter '{name}': a dimension of {size} is not a sum of axes")
    return _Growth(fixed, tuple(steps))


def _scaled(widths: Widths, axis: int, factor: int) -> Widths:
    return tuple(w * factor if a == axis else w for a, w in enumerate(widths))


def _measure(build: Build, widths: Widths, shared: bool) -> dict[str, tuple[_Growth, ...]]:
    """Return what every dimension of every parameter and buffer is made of."""
    base = _shapes(build, widths, shared)
    doubled = _shapes(build, tuple(2 * w for w in widths), shared)
    probes = [[_shapes(build, _scaled(widths, axis, k), shared) for k in (2, 3)] for axis in range(len(widths))]
    _same_names([base, doubled, *itertools.chain.from_iterable(probes)])
    return {
        name: tuple(
            _growth(
                name,
                {"base": shape[i], "all": doubled[name][i]},
                [(twice[name][i], thrice[name][i]) for twice, thrice in probes],
            )
            for i in range(len(shape))
        )
        for name, shape in base.items()
    }


def _units(growths: dict[str, tuple[_Growth, ...]], widths: Widths) -> tuple[int, ...]:
    units = []
    for axis, width in enumerate(widths):
        slopes = [Fraction(g.steps[axis], width) for dims in growths.values() for g in dims if g.steps[axis]]
        if not slopes:
            raise InputError(
                f"no parameter of build(widths) depends on width {axis} ({width}): remove it from the widths"
            )
        units.append(math.lcm(*(slope.denominator for slope in slopes)))
    return tuple(units)


MOST_ORDERS, MOST_CANDIDATES = 1000, 2000  # all orders of six parts; of more, the natural and the reversed one


def _arrangements(growth: _Growth, widths: Widths, units: tuple[int, ...]) -> list[Dim]:
    """List the orders in which a dimension may hold its stretches, the likeliest first.

    One axis alone has one order. A sum of axes may be laid out axis by axis ([h1, h2]) or as repeats of the whole
    ([h1, h2, Ah1, Ah2]), in any order of its parts.
    """
    copies = {a: step * units[a] // widths[a] for a, step in enumerate(growth.steps) if step}
    if not copies:
        return [(Segment(None, growth.fixed),)]
    if not growth.fixed and len(copies) == 1:
        ((axis, count),) = copies.items()
        return [(Segment(axis),) * count]
    found = []
    common = math.gcd(growth.fixed, *copies.values())
    for repeats in (r for r in range(1, common + 1) if common % r == 0 and all(c % r == 0 for c in copies.values())):
        parts: list[Dim] = [(Segment(None, growth.fixed // repeats),)] if growth.fixed else []
        parts += [(Segment(axis),) * (count // repeats) for axis, count in copies.items()]
        orders = itertools.chain([parts, parts[::-1]], itertools.permutations(parts))
        found += [tuple(itertools.chain(*order)) * repeats for order in itertools.islice(orders, MOST_ORDERS)]
    return list(dict.fromkeys(found))


def candidate_layouts(build: Build, widths: Widths, *, shared: bool) -> Iterator[Layout]:
    """Yield the layouts that fit how the model's shapes grow with its widths, the likeliest first.

    There is more than one only where a dimension is a sum of several axes, whose order the shapes do not tell.

    Args:
        build: takes the tuple of widths (or, with `shared`, the one width) and returns the model.
        widths: the full widths.
        shared: one axis runs through all layers, and `build` takes a single width.

    Raises:
        InputError: a dimension is no sum of whole copies of axes, or a width changes nothing; the parameter is named.
    """
    growths = _measure(build, widths, shared)
    units = _units(growths, widths)
    distinct = list(dict.fromkeys(g for dims in growths.values() for g in dims))
    options = [_arrangements(g, widths, units) for g in distinct]
    for chosen in itertools.islice(itertools.product(*options), MOST_CANDIDATES):
        order = dict(zip(distinct, chosen, strict=True))
        yield Layout({name: tuple(order[g] for g in dims) for name, dims in growths.items()}, units)


def check_widths(widths: Any, input_axis: int | None) -> Widths:
    """Return what a user has given as `widths`, as a tuple, or raise InputError."""
    given = widths if isinstance(widths, (list, tuple)) else (widths,)
    try:
        axes = tuple(operator.index(w) for w in given if not isinstance(w, bool))
    except TypeError:
        axes = ()
    if not axes or len(axes) < len(given) or min(axes) < 1:
        raise InputError(f"widths is {widths!r}, expected an integer >= 1 or a sequence of them")
    if input_axis is not None and input_axis not in range(len(axes)):
        raise InputError(f"input_axis is {input_axis!r}, expected one of 0 to {len(axes) - 1}, or None")
    return axes
