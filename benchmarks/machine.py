"""The machine's rates: matrix products of given shapes, copying, and cutting batches while nothing else runs."""

import math
from collections.abc import Callable
from contextlib import closing

import torch

from benchmarks.case import Case
from benchmarks.clock import Clock
from benchmarks.counts import count
from gistgnn.utils.process_memory import keep_freed_memory

LARGE = 256 * 2**20  # bytes: larger than any cache
BATCHES = 10


class Machine:
    """Measures, round by round, the parts of the floor for the widths of a case's sub-GCNs.

    Args:
        case: the shared settings.
        sub_gcns: the values of m.
        milliseconds: of one measurement of a part, at least.
    """

    def __init__(self, case: Case, sub_gcns: list[int], milliseconds: float = 50) -> None:
        keep_freed_memory()
        self._case, self._milliseconds = case, milliseconds
        self.sampler = case.sampler()
        self.nodes, self.edges = _size(self.sampler, case)
        self._parts: dict[str, Callable[[], object]] = {}
        for m in sub_gcns:
            counts = count(case, tuple(w // m for w in case.hidden), self.nodes, self.edges)
            for product in counts.products:
                self._add_product(product.shape)
            self._add_copy(min(LARGE, 16 * counts.parameters))  # the bytes of Adam
        self._add_copy(LARGE)
        self._repeats = {name: self._calibrate(run) for name, run in self._parts.items()}

    def measure(self) -> dict[str, float]:
        """Return milliseconds of every part, of cutting a batch ("batch"), also with operators ("batch, prepared")."""
        times = {}
        clock = Clock(self._case.device)
        for name, run in self._parts.items():
            with clock.span(name):
                for _ in range(self._repeats[name]):
                    run()
            times[name] = clock.read()[name] / self._repeats[name]
        return times | self._batches(clock)

    def _add_product(self, shape: tuple[str, int, int, int]) -> None:
        role, rows, inner, columns = shape
        dtype = torch.bfloat16 if self._case.precision == "bf16" else torch.float32

        def random(*size: int) -> torch.Tensor:
            return torch.randn(size, device=self._case.device).to(dtype)

        # The same layouts as in a step: X [N, in], G [N, out], W [out, in].
        if role == "forward":
            one, other = random(rows, inner), random(columns, inner).t()
        elif role == "weights":
            one, other = random(inner, rows).t(), random(inner, columns)
        else:
            one, other = random(rows, inner), random(inner, columns)
        out = torch.empty(rows, columns, dtype=dtype, device=self._case.device)
        self._parts[product_name(shape)] = lambda: torch.mm(one, other, out=out)

    def _add_copy(self, size: int) -> None:
        """Copy so that reading and writing add up to ``size`` bytes."""
        source = torch.zeros(size // 8, device=self._case.device)
        target = torch.ones_like(source)
        self._parts[copy_name(size)] = lambda: target.copy_(source)

    def _batches(self, clock: Clock) -> dict[str, float]:
        with clock.span("batch"), closing(self.sampler.batches(0, BATCHES)) as made:
            batches = list(made)
        with clock.span("operators"):
            for batch in batches:
                if self._case.model == "gat":
                    _ = batch.features, batch.adj.attention.transpose
                else:
                    operator = batch.adj.mean if self._case.model == "graphsage" else batch.adj.gcn
                    _ = batch.features, operator.t()
        return {name: value / BATCHES for name, value in clock.read().items()}

    def _calibrate(self, run: Callable[[], object]) -> int:
        """Return the number of repetitions that take as long as one measurement."""
        run()
        clock = Clock(self._case.device)
        with clock.span("once"):
            run()
        return max(1, math.ceil(self._milliseconds / max(clock.read()["once"], 1e-3)))


def product_name(shape: tuple[str, int, int, int]) -> str:
    """Return the key of a product's time."""
    return "product {} {}x{}x{}".format(*shape)


def copy_name(size: int) -> str:
    """Return the key of a copy's time."""
    return f"copy {size}"


def _size(sampler: object, case: Case) -> tuple[int, int]:
    """Return the nodes and the mean edges of an epoch's full batches."""
    with closing(sampler.batches(0, sampler.steps_per_epoch)) as made:  # type: ignore[attr-defined]
        sizes = [(b.x.shape[0], b.adj.num_edges) for b in made]
    nodes = max(n for n, _ in sizes)
    edges = [e for n, e in sizes if n == nodes]
    return nodes, round(sum(edges) / len(edges))
