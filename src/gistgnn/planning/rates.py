"""Measures how fast this machine is, in a second or two, and turns counted work into seconds."""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from gistgnn.evaluation.scores import score
from gistgnn.graphs import Graph
from gistgnn.graphs.csr import CSR
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.disk_rate import reading_rate
from gistgnn.planning.ledger import Product, SparseProduct, Work
from gistgnn.utils.process_memory import keep_freed_memory

_COUNT, _SIDE = 4, 1024  # of the largest product that is measured: larger ones have about the same rate
_COPIED = 2**24  # bytes, about a hidden layer's features in a batch
_LARGE = 2**26  # bytes of a tensor whose memory the system hands out page by page
_INPUTS, _COLUMNS, _ENTRIES = 2**15, 256, 2**18  # of the largest sparse product that is measured
_SCORED, _CLASSES = (100, 20_000), 10  # nodes and classes of the scores that are measured
_REPEATS = 3
_FILES = 1e9  # bytes a second of files, on an ordinary disk; they are not measured


@dataclass(frozen=True)
class Rates:
    """What the machine does in a second."""

    products: Mapping[Product, float]  # floating-point operations of each shape that was measured
    sparse: Mapping[SparseProduct, float]  # likewise, of CSR products
    copied: float  # bytes read and written
    fresh: float  # bytes read and written where a large tensor is made
    operations: float  # operations on tiny tensors
    scoring: tuple[float, float]  # not a rate: seconds for an evaluation's scores, and more for every node
    disk: float | None = None  # bytes that are read from the disk of a graph's folder; None: the graph is in memory

    def seconds(self, work: Work) -> float:
        """Estimate the time of some work, whose shapes are among those that were measured."""
        dense = sum(times * flops(shape) / self.products[measured(shape)] for shape, times in work.products.items())
        sparse = sum(
            times * sparse_flops(shape) / self.sparse[measured_sparse(shape)] for shape, times in work.sparse.items()
        )
        moved = work.bytes / self.copied + work.large / self.fresh + work.filed / _FILES
        scores = self.scoring[0] + work.scored * self.scoring[1] if work.scored else 0.0
        computing = dense + sparse + moved + work.operations / self.operations + scores
        if self.disk is None:
            return computing
        return max(computing, work.ahead / self.disk) + work.read / self.disk


def flops(product: Product) -> int:
    """Return its multiplications and additions."""
    return 2 * math.prod(product[:4])


def sparse_flops(product: SparseProduct) -> int:
    """Return its multiplications and additions."""
    return 2 * product.entries * product.columns


def measured(product: Product) -> Product:
    """Return the product whose rate stands for it: of the same shape, cut to a size that is quick to measure."""
    times, rows, inner, columns, dtype = product
    return Product(min(times, _COUNT), min(rows, _SIDE), min(inner, _SIDE), min(columns, _SIDE), dtype)


def measured_sparse(product: SparseProduct) -> SparseProduct:
    """Return the sparse product whose rate stands for it, likewise.

    Its dense factor is too large for the caches if the product's is. Sizes are rounded to powers of 2, so that few
    products are measured.
    """
    entries, inputs, columns = (2 ** round(math.log2(max(size, 1))) for size in product)
    return SparseProduct(min(entries, _ENTRIES), min(inputs, _INPUTS), min(columns, _COLUMNS))


def measure(work: Iterable[Work], device: torch.device, features: Path | None = None) -> Rates:
    """Measure a device at the shapes of some work, and the disk of the graph's features, if they are in a file."""
    keep_freed_memory()  # as in a run
    blocks = list(work)
    source = torch.zeros(_COPIED // 4, device=device)
    target = torch.ones_like(source)
    copied = 2 * _COPIED / _fastest(lambda: target.copy_(source), device)
    large = torch.zeros(_LARGE // 4, device=device)
    fresh = 2 * _LARGE / _fastest(large.clone, device)
    tiny, layer = torch.zeros(2, 2, device=device), nn.Linear(2, 2, device=device).requires_grad_(False)
    operations = 3 / _fastest(lambda: torch.relu(layer(tiny)), device)  # a transposition, a product, a maximum
    shapes = {measured(product) for block in blocks for product in block.products}
    products = {shape: flops(shape) / _fastest(_dense(shape, device), device) for shape in shapes}
    entries = {measured_sparse(product) for block in blocks for product in block.sparse}
    sparse = {shape: sparse_flops(shape) / _fastest(_sparse(shape, device), device) for shape in entries}
    few, many = (_fastest(_scores(nodes), torch.device("cpu")) for nodes in _SCORED)
    scoring = few, max(many - few, 0.0) / (_SCORED[1] - _SCORED[0])
    disk = reading_rate(features) if features else None
    return Rates(products, sparse, copied, fresh, operations, scoring, disk)


def _scores(nodes: int) -> Callable[[], object]:
    """Score so many predictions, half of them for each of two splits."""
    half = nodes // 2
    graph = SimpleNamespace(num_nodes=nodes, num_classes=_CLASSES, multi_label=False, regression=False)
    graph.y = torch.arange(nodes) % _CLASSES
    graph.val = torch.arange(nodes) < half
    graph.test = ~graph.val
    logits = F.one_hot(graph.y.roll(1), _CLASSES).float()
    return lambda: score(logits, cast(Graph, graph), ("validation", "test"))


def _dense(shape: Product, device: torch.device) -> Callable[[], object]:
    left = torch.ones(shape.times, shape.rows, shape.inner, dtype=shape.dtype, device=device)
    right = torch.ones(shape.times, shape.inner, shape.columns, dtype=shape.dtype, device=device)
    return lambda: torch.bmm(left, right) if shape.times > 1 else torch.mm(left[0], right[0])


def _sparse(shape: SparseProduct, device: torch.device) -> Callable[[], object]:
    """Return a product with random columns; rows have a usual number of entries."""
    rows = max(shape.entries // max(shape.entries // shape.inputs, 8), 1)
    col = torch.randint(shape.inputs, (shape.entries,), generator=torch.Generator().manual_seed(0)).int().to(device)
    rowptr = torch.linspace(0, shape.entries, rows + 1, device=device).round().int()
    pattern = CSR(rowptr, col, (rows, shape.inputs))
    matrix = SparseMatrix.from_pattern(pattern, torch.ones(shape.entries, device=device))
    h = torch.ones(shape.inputs, shape.columns, device=device)
    return lambda: matrix @ h


def _fastest(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the fastest of a few runs, after one that is not timed."""

    def finish() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(finish, number=1, repeat=1 + _REPEATS)[1:])
