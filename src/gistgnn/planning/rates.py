"""Measures how fast this machine is, in a second or two, and turns counted work into seconds."""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import Product, Work

_COUNT, _SIDE = 4, 1024  # of the largest product that is measured: larger ones have about the same rate
_COPIED = 2**24  # bytes, about a hidden layer's features in a batch
_ROWS, _DEGREE, _COLUMNS = 2000, 25, 128  # of the sparse product that is measured
_REPEATS = 3


@dataclass(frozen=True)
class Rates:
    """What the machine does in a second."""

    products: Mapping[Product, float]  # floating-point operations of each shape that was measured
    copied: float  # bytes read and written
    sparse: float  # floating-point operations of a CSR product

    def seconds(self, work: Work) -> float:
        """Estimate the time of some work, whose shapes are among those that were measured."""
        dense = sum(times * flops(shape) / self.products[measured(shape)] for shape, times in work.products.items())
        return dense + work.sparse / self.sparse + work.bytes / self.copied


def flops(product: Product) -> int:
    """Return its multiplications and additions."""
    return 2 * math.prod(product[:4])


def measured(product: Product) -> Product:
    """Return the product whose rate stands for it: of the same shape, cut to a size that is quick to measure."""
    times, rows, inner, columns, dtype = product
    return Product(min(times, _COUNT), min(rows, _SIDE), min(inner, _SIDE), min(columns, _SIDE), dtype)


def measure(work: Iterable[Work], device: torch.device) -> Rates:
    """Measure a device at the shapes of some work."""
    source = torch.zeros(_COPIED // 4, device=device)
    target = torch.ones_like(source)
    copied = 2 * _COPIED / _fastest(lambda: target.copy_(source), device)
    shapes = {measured(product) for block in work for product in block.products}
    products = {shape: flops(shape) / _fastest(_dense(shape, device), device) for shape in shapes}
    col = torch.randint(_ROWS, (_ROWS * _DEGREE,), generator=torch.Generator().manual_seed(0)).int().to(device)
    rowptr = torch.arange(0, len(col) + 1, _DEGREE, dtype=torch.int32, device=device)
    matrix = SparseMatrix.from_pattern(Pattern(rowptr, col, (_ROWS, _ROWS)), torch.ones(len(col), device=device))
    h = torch.ones(_ROWS, _COLUMNS, device=device)
    return Rates(products, copied, 2 * len(col) * _COLUMNS / _fastest(lambda: matrix @ h, device))


def _dense(shape: Product, device: torch.device) -> Callable[[], object]:
    left = torch.ones(shape.times, shape.rows, shape.inner, dtype=shape.dtype, device=device)
    right = torch.ones(shape.times, shape.inner, shape.columns, dtype=shape.dtype, device=device)
    return lambda: torch.bmm(left, right) if shape.times > 1 else torch.mm(left[0], right[0])


def _fastest(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the fastest of a few runs, after one that is not timed."""

    def finish() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(finish, number=1, repeat=1 + _REPEATS)[1:])
