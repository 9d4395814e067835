"""The least time of a step on this machine, from counted work and measured rates."""

from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case
from benchmarks.counts import Counts, count
from benchmarks.machine import LARGE, copy_name, product_name


@dataclass(frozen=True)
class Floor:
    """Milliseconds of a step of one model or sub-GCN.

    Args:
        products: matrix products, each at the rate measured for its shape.
        at_best_rate: matrix products, all at the best rate measured for any shape.
        sparse: the sparse products' bytes at the speed of a copy.
        adam: Adam's bytes at the speed of a copy of the same size.
        gflops: rate of the products, in 10^9 operations per second.
    """

    products: float
    at_best_rate: float
    sparse: float
    adam: float
    gflops: float

    @property
    def total(self) -> float:
        """The sum of products at their shapes, sparse products and Adam."""
        return self.products + self.sparse + self.adam


def floors(case: Case, sub_gcns: list[int], size: tuple[int, int], medians: dict[str, float]) -> dict[int, Floor]:
    """Compute the floor for every m.

    Args:
        case: the shared settings.
        sub_gcns: the values of m, with 1.
        size: nodes and edges of a batch.
        medians: milliseconds of every part that `Machine` measures.
    """
    counts = {m: count(case, tuple(width // m for width in case.hidden), *size) for m in sub_gcns}
    all_products = [product for work in counts.values() for product in work.products]
    best = max(product.flops / medians[product_name(product.shape)] for product in all_products)
    return {m: _floor(work, medians, best) for m, work in counts.items()}


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
    """Return the bytes per millisecond that a copy of this size reads and writes."""
    return size / medians[copy_name(size)]


def as_dict(floor: Floor) -> dict[str, Any]:
    """Convert to a JSON record."""
    return {**vars(floor), "total": floor.total}
