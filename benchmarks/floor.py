"""The least time that a step can take on this machine, from counted work and measured rates."""

from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case
from benchmarks.counts import Counts, count
from benchmarks.machine import LARGE, copy_name, product_name


@dataclass(frozen=True)
class Floor:
    """Milliseconds of a step of one model or sub-GCN.

    Args:
        products: the matrix products, each at the speed measured at its shape.
        at_best_rate: the matrix products, all at the best rate measured at any shape.
        sparse: the bytes of the sparse products at the speed of a copy.
        adam: the bytes of Adam at the speed of a copy of as many, in cache or not.
        gflops: the rate of the products, in 10^9 operations a second.
    """

    products: float
    at_best_rate: float
    sparse: float
    adam: float
    gflops: float

    @property
    def total(self) -> float:
        """Products at their shapes, sparse products and Adam."""
        return self.products + self.sparse + self.adam


def floors(case: Case, sub_gcns: list[int], size: tuple[int, int], medians: dict[str, float]) -> dict[int, Floor]:
    """The floor for every m.

    Args:
        case: what is measured.
        sub_gcns: every m, 1 included.
        size: nodes and edges of a batch.
        medians: milliseconds of every part that `Machine` measures.
    """
    counts = {m: count(case, tuple(width // m for width in case.hidden), *size) for m in sub_gcns}
    all_products = [product for each in counts.values() for product in each.products]
    best = max(product.flops / medians[product_name(product.shape)] for product in all_products)
    return {m: _floor(each, medians, best) for m, each in counts.items()}


def _floor(counts: Counts, medians: dict[str, float], best: float) -> Floor:
    products = sum(medians[product_name(product.shape)] for product in counts.products)
    large = bandwidth(medians, LARGE)
    near = max(large, bandwidth(medians, min(LARGE, 16 * counts.parameters)))
    return Floor(
        products=products,
        at_best_rate=counts.flops / best,
        sparse=counts.sparse_bytes / near,
        adam=counts.adam_bytes / near,
        gflops=counts.flops / products / 1e6,
    )


def bandwidth(medians: dict[str, float], size: int) -> float:
    """Bytes a millisecond, read and written, of a copy of this size."""
    return size / medians[copy_name(size)]


def as_dict(floor: Floor) -> dict[str, Any]:
    """For JSON."""
    return {**vars(floor), "total": floor.total}
