"""The time of a run: counted operations and bytes, over rates that are measured once on this machine."""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Callable
from functools import lru_cache
from math import log2
from pathlib import Path

import torch
from torch import nn

from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import Memory
from gistgnn.estimate.shapes import PhaseShape, RunShape
from gistgnn.nn import Adjacency
from gistgnn.utils.process_memory import keep_freed_memory

_SIDE = 1024  # of the largest dense product that is measured: larger ones have about the same rate
_ENTRIES, _INPUTS, _COLUMNS = 2**18, 2**15, 256  # of the largest sparse product that is measured
_COPIED = 2**25  # bytes
_REPEATS = 3
_FILES = 1e9  # bytes a second of an ordinary disk, for Θ; it is not measured
_READ, _PIECE, _SECONDS = 2**28, 2**22, 1.0  # bytes that are read at most, in pieces, and for how long
_CALLS, _UPDATES = 30, 12  # operations of a layer in a step, and of the optimiser for a parameter
_SCORING = 200  # operations on small tensors while predictions are scored


class Rates:
    """What a device does in a second. Each is measured when it is first asked for, in a few milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        keep_freed_memory()  # as in a run
        self.dense, self.sparse = lru_cache(self._dense), lru_cache(self._sparse)
        source = torch.zeros(_COPIED // 4, device=device)
        target = torch.ones_like(source)
        self.copied = 2 * _COPIED / self._seconds(lambda: target.copy_(source))  # bytes read and written
        tiny, layer = torch.zeros(2, 2, device=device), nn.Linear(2, 2, device=device).requires_grad_(False)
        self.calls = 3 / self._seconds(lambda: torch.relu(layer(tiny)))  # operations on tiny tensors

    def product(self, rows: float, inner: float, columns: float) -> float:
        """Return the multiplications and additions of a dense product, [rows, inner] [inner, columns]."""
        return self.dense(*(min(_power(side), _SIDE) for side in (rows, inner, columns)))

    def aggregation(self, entries: float, inputs: float, columns: float) -> float:
        """Return those of a sparse matrix with some entries times a dense one, [inputs, columns]."""
        return self.sparse(min(_power(entries), _ENTRIES), min(_power(inputs), _INPUTS), min(_power(columns), _COLUMNS))

    def _dense(self, rows: int, inner: int, columns: int) -> float:
        left, right = (torch.ones(*shape, device=self._device) for shape in ((rows, inner), (inner, columns)))
        return 2 * rows * inner * columns / self._seconds(lambda: left @ right)

    def _sparse(self, entries: int, inputs: int, columns: int) -> float:
        ends = torch.randint(inputs, (2, entries), generator=torch.Generator().manual_seed(0))
        adj, h = Adjacency(ends.to(self._device), inputs), torch.ones(inputs, columns, device=self._device)
        return 2 * entries * columns / self._seconds(lambda: adj.aggregate("mean", h))

    def _seconds(self, run: Callable[[], object]) -> float:
        """Return the seconds of the fastest of a few runs, after one that is not timed."""

        def finish() -> None:
            run()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return min(timeit.repeat(finish, number=1, repeat=1 + _REPEATS)[1:])


def reading_rate(path: Path) -> float:
    """Return the bytes a second at which a file is read from its disk; its cached pages are dropped first.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, _READ, os.POSIX_FADV_DONTNEED)
            begun, count = time.perf_counter(), 0
            while count < _READ and time.perf_counter() - begun < _SECONDS and (piece := file.read(_PIECE)):
                count += len(piece)
            return max(count, 1) / max(time.perf_counter() - begun, 1e-6)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)})") from error


class TimeOfRun:
    """Estimates the seconds of a run's phases.

    Args:
        run: the run's sizes.
        rates: of the device.
        disk: bytes that are read from the graph's folder in a second; None: the graph is in memory.
    """

    def __init__(self, run: RunShape, rates: Rates, disk: float | None) -> None:
        self._run, self._rates, self._disk = run, rates, disk

    def of(self, phase: PhaseShape, memory: Memory, moved: int, *, on_disk: bool) -> dict[str, float]:
        """Return the seconds of a step, a round, an epoch, an evaluation, the phase, and the phase with evaluations.

        Args:
            phase: the phase.
            memory: what it takes.
            moved: bytes from and to Θ in a round.
            on_disk: whether Θ lies in files.
        """
        stretch = phase.first.stretch
        every = sum(self._step(phase, memory, sub) for sub in range(phase.trained))
        if self._disk:
            reads = bytes_of_batch(self._run) * (1 if memory.together else phase.trained)
            every = max(every, reads / self._disk)
        exchange = moved / _FILES if on_disk else 2 * moved / self._rates.copied  # read and written
        epoch = (stretch.total * every + stretch.total / stretch.count * exchange) / phase.epochs
        evaluation = self._evaluation(phase, memory)
        return {
            "step": every if memory.fused else every / phase.trained,
            "round": stretch.count * every + exchange,
            "epoch": epoch,
            "evaluation": evaluation,
            "phase": phase.epochs * epoch,
            "total": phase.epochs * epoch + phase.evaluations * evaluation,
        }

    def _step(self, phase: PhaseShape, memory: Memory, sub: int) -> float:
        """Seconds of a sub-GCN's step: the backward pass multiplies twice as much as the forward pass."""
        run, rates = self._run, self._rates
        nodes, edges = run.expected.nodes[0], max(run.expected.edges)
        hidden, weights = phase.hidden[sub], phase.parameters[sub]
        dense = 3 * self._products(weights, nodes, hidden)
        sparse = 2 * self._sums(hidden, nodes, edges)
        moved = 3 * run.activations(phase, sub) + 4 * weights * (4 + 4 * phase.moments)
        layers = run.config.model.layers
        shared = phase.trained if memory.fused else 1  # one operation for all sub-GCNs
        calls = layers * (_CALLS + 2 * _UPDATES) / shared
        return dense + sparse + moved / rates.copied + calls / rates.calls

    def _evaluation(self, phase: PhaseShape, memory: Memory) -> float:
        run, sizes, rates = self._run, self._run.sizes, self._rates
        wanted, copies = run.config.evaluation, phase.first.copies
        model = phase.hidden[0] if copies else run.hidden
        share = (wanted.sample or wanted.parts) / wanted.parts if wanted.parts else 1.0
        nodes, edges = share * sizes.nodes, share * sizes.edges
        dense = self._products(phase.parameters[0] if copies else run.full, nodes, model)
        sparse = self._sums(model, nodes, edges)
        features = 4 * nodes * sum(model)
        moved = (6 + 4 * (memory.method == "layers")) * features / rates.copied
        read = bytes_of_evaluation(run, memory) / self._disk if self._disk else 0.0
        return dense + sparse + moved + read + (_SCORING + _CALLS * run.config.model.layers) / rates.calls

    def _products(self, weights: int, nodes: float, hidden: tuple[int, ...]) -> float:
        """Seconds in which every weight multiplies a feature of every node."""
        width = sum(hidden) / len(hidden)
        inner = weights / (width * (len(hidden) + 1))
        return 2 * weights * nodes / self._rates.product(nodes, inner, width)

    def _sums(self, hidden: tuple[int, ...], nodes: float, edges: float) -> float:
        """Seconds in which hidden features go along every edge, and along self-loops."""
        entries, per_edge = edges + nodes, 4 if self._run.heads else 1  # attention also scores every edge
        each = [2 * entries * width / self._rates.aggregation(entries, nodes, width) for width in hidden]
        return per_edge * sum(each)


def bytes_of_batch(run: RunShape) -> int:
    """Return the bytes of a graph's files that are read for a batch; 0: the graph is in memory."""
    stored, sizes, batch = run.seen.stored, run.sizes, run.expected
    if stored is None or run.config.sampler is None:
        return 0
    if batch.sampled:  # a page of the disk for every node
        return batch.nodes[0] * 4096 * -(-stored.x // (4096 * sizes.nodes))
    product = 4 * sizes.nodes * sizes.features if batch.precomputed and run.factors.product else 0
    return round((stored.x + product + stored.edges + stored.edge_data) * batch.nodes[0] / sizes.nodes)


def bytes_of_evaluation(run: RunShape, memory: Memory) -> int:
    """Return the bytes of a graph's files that are read for an evaluation; 0: the graph is in memory."""
    stored, layers = run.sizes.stored, run.config.model.layers
    if stored is None:
        return 0
    edges = stored.edges + stored.edge_data
    return 2 * stored.x + edges * (1 if memory.method == "parts" else layers * memory.blocks)


def _power(size: float) -> int:
    """Round a size to a power of 2, so that few products are measured."""
    return int(2 ** round(log2(max(size, 1))))
