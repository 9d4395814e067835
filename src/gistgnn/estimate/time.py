"""The time of a run: counted operations and bytes, over rates that are measured once on this machine."""

import os
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from gistgnn.estimate.memory import DISK, Memory
from gistgnn.estimate.shapes import RunShape
from gistgnn.graphs.named import StoredSizes
from gistgnn.nn import Adjacency
from gistgnn.utils.process_memory import keep_freed_memory

_PRODUCT = 4096, 512, 512  # rows, inner side and columns of the dense product that is measured
_ENTRIES, _NODES, _COLUMNS = 2**17, 2**14, 64  # of the sparse product
_COPIED = 2**25  # bytes
_REPEATS = 3
_FILES = 1e9  # bytes a second of an ordinary disk, for Θ; it is not measured
_READ, _PIECE, _SECONDS = 2**28, 2**22, 1.0  # bytes that are read at most, in pieces, and for how long
_CALLS, _UPDATES = 30, 12  # operations of a layer in a step, and of the optimiser for a parameter
_SCORING = 200  # operations on small tensors while predictions are scored


class Rates:
    """What a machine does in a second: multiplications and additions, bytes copied, calls of tiny operations."""

    def __init__(self, on: str, stored: StoredSizes | None = None) -> None:
        self._device = device = torch.device(on)
        self.disk = reading_rate(Path(stored.folder) / "x.npy") if stored else None
        keep_freed_memory()  # as in a run
        rows, inner, columns = _PRODUCT
        left, right = torch.ones(rows, inner, device=device), torch.ones(inner, columns, device=device)
        self.dense = 2 * rows * inner * columns / self._fastest(lambda: left @ right)
        ends = torch.randint(_NODES, (2, _ENTRIES), generator=torch.Generator().manual_seed(0))
        adj, h = Adjacency(ends.to(device), _NODES), torch.ones(_NODES, _COLUMNS, device=device)
        self.sparse = 2 * _ENTRIES * _COLUMNS / self._fastest(lambda: adj.aggregate("mean", h))
        source = torch.zeros(_COPIED // 4, device=device)
        target = torch.ones_like(source)
        self.copied = 2 * _COPIED / self._fastest(lambda: target.copy_(source))  # bytes read and written
        tiny, layer = torch.zeros(2, 2, device=device), nn.Linear(2, 2, device=device).requires_grad_(False)
        self.calls = 3 / self._fastest(lambda: torch.relu(layer(tiny)))

    def _fastest(self, run: Callable[[], object]) -> float:
        """Return the seconds of the fastest of a few runs, after one that is not timed."""

        def finish() -> None:
            run()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return min(timeit.repeat(finish, number=1, repeat=1 + _REPEATS)[1:])

    def seconds(self, memory: Memory, moved: int) -> dict[str, float]:
        """Seconds by name: of a step, a round (which moves `moved` bytes), an epoch, an evaluation and the phase."""
        run, phase = memory.run, memory.phase
        steps = phase.first.steps
        every = sum(self._step(memory, sub) for sub in range(phase.trained))
        if run.sizes.stored and self.disk:  # the next batch is read beside the step
            read = run.sizes.stored.size * run.expected.nodes[0] / run.sizes.nodes
            every = max(every, read * (1 if memory.together else phase.trained) / self.disk)
        exchange = moved / _FILES if memory.home == DISK else 2 * moved / self.copied  # read and written
        epoch = (steps.total * every + steps.total / steps.count * exchange) / phase.epochs
        evaluation = self._evaluation(memory)
        return {
            "step": every if memory.fused else every / phase.trained,
            "round": steps.count * every + exchange,
            "epoch": epoch,
            "evaluation": evaluation,
            "phase": phase.epochs * epoch,
            "total": phase.epochs * epoch + phase.evaluations * evaluation,
        }

    def _step(self, memory: Memory, sub: int) -> float:
        """Seconds of a sub-GCN's step: the backward pass multiplies twice as much as the forward pass."""
        run, phase = memory.run, memory.phase
        nodes, edges = run.expected.nodes[0], max(run.expected.edges)
        hidden, weights = phase.hidden[sub], phase.parameters[sub]
        products = 6 * weights * nodes / self.dense + 2 * self._sums(run, hidden, nodes, edges)
        moved = 3 * run.activations(phase, sub) + 4 * weights * (4 + 4 * phase.moments)
        shared = phase.trained if memory.fused else 1  # one operation for all sub-GCNs
        calls = run.config.model.layers * (_CALLS + 2 * _UPDATES) / shared
        return products + moved / self.copied + calls / self.calls

    def _evaluation(self, memory: Memory) -> float:
        run, phase = memory.run, memory.phase
        wanted, copies, layers = run.config.evaluation, phase.first.copies, run.config.model.layers
        hidden, weights = (phase.hidden[0], phase.parameters[0]) if copies else (run.hidden, run.full)
        share = (wanted.sample or wanted.parts) / wanted.parts if wanted.parts else 1.0
        nodes, edges = share * run.sizes.nodes, share * run.sizes.edges
        products = 2 * weights * nodes / self.dense + self._sums(run, hidden, nodes, edges)
        moved = (6 + 4 * (memory.method == "layers")) * 4 * nodes * sum(hidden)
        read = 0.0
        if run.sizes.stored and self.disk:
            read = run.sizes.stored.size * (1 if memory.method == "parts" else layers * memory.blocks) / self.disk
        return products + moved / self.copied + read + (_SCORING + _CALLS * layers) / self.calls

    def _sums(self, run: RunShape, hidden: tuple[int, ...], nodes: float, edges: float) -> float:
        """Seconds in which hidden features go along every edge and self-loop; attention also scores every edge."""
        return (8 if run.heads else 2) * (edges + nodes) * sum(hidden) / self.sparse


def reading_rate(path: Path) -> float:
    """Return the bytes a second at which a file is read from its disk; its cached pages are dropped first."""
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, _READ, os.POSIX_FADV_DONTNEED)
        begun, count = time.perf_counter(), 0
        while count < _READ and time.perf_counter() - begun < _SECONDS and (piece := file.read(_PIECE)):
            count += len(piece)
        return max(count, 1) / max(time.perf_counter() - begun, 1e-6)
