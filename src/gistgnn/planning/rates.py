"""How fast this machine is, measured in a second or two, and the time that counted work takes at that rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import Product, Work

_SIDE = 1024  # of a product that is measured: a larger one is about as fast
_COUNT = 4
_COPIED = 2**24  # bytes, about a hidden layer's features in a batch
_ROWS, _DEGREE, _COLUMNS = 2000, 25, 128  # of the sparse product that is measured
_REPEATS = 3


@dataclass(frozen=True)
class Rates:
    """What the machine does in a second.

    Attributes:
        products: floating-point operations, for every shape that was measured.
        copied: bytes read and written.
        sparse: floating-point operations of a CSR product.
    """

    products: Mapping[Product, float]
    copied: float
    sparse: float

    def seconds(self, work: Work) -> float:
        """About the time that the work takes, one operation after the other.

        Raises:
            KeyError: a product of a shape that was not measured.
        """
        dense = sum(
            times * product.flops / self.products[measured(product)] for product, times in work.products.items()
        )
        return dense + work.sparse / self.sparse + work.bytes / self.copied


def measured(product: Product) -> Product:
    """The product whose rate is taken for a product's: of the same shape, but no larger than is quickly measured."""
    sides = {side: min(getattr(product, side), _SIDE) for side in ("rows", "inner", "columns")}
    return replace(product, count=min(product.count, _COUNT), **sides)


def measure(work: Iterable[Work], device: torch.device) -> Rates:
    """Measure the machine at the shapes that some work has; it takes a second or two.

    Args:
        work: what is to be timed later.
        device: where it runs.
    """
    shapes = {measured(product) for each in work for product in each.products}
    source = torch.zeros(_COPIED // 4, device=device)
    target = torch.ones_like(source)
    copied = 2 * _COPIED / _fastest(lambda: target.copy_(source), device)
    products = {shape: shape.flops / _fastest(_product(shape, device), device) for shape in shapes}
    return Rates(products, copied, _sparse(device))


def _product(shape: Product, device: torch.device) -> Callable[[], object]:
    left = torch.ones(shape.count, shape.rows, shape.inner, dtype=shape.dtype, device=device)
    right = torch.ones(shape.count, shape.inner, shape.columns, dtype=shape.dtype, device=device)
    return lambda: torch.bmm(left, right) if shape.count > 1 else torch.mm(left[0], right[0])


def _sparse(device: torch.device) -> float:
    col = torch.randint(_ROWS, (_ROWS * _DEGREE,), generator=torch.Generator().manual_seed(0)).int().to(device)
    rowptr = torch.arange(0, len(col) + 1, _DEGREE, dtype=torch.int32, device=device)
    value = torch.ones(len(col), device=device)
    matrix = SparseMatrix.from_pattern(Pattern(rowptr, col, (_ROWS, _ROWS)), value)
    h = torch.ones(_ROWS, _COLUMNS, device=device)
    return 2 * len(col) * _COLUMNS / _fastest(lambda: matrix @ h, device)


def _fastest(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few runs, after one that is not timed."""
    found = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return min(found[1:])
