"""Fused steps on batches whose operators are ready: as they run, and captured as CUDA graphs."""

import math
from contextlib import closing
from typing import Any

import torch

from benchmarks.case import LR, Case
from benchmarks.clock import Clock
from gistgnn import GIST
from gistgnn.runners.stack import Stack
from gistgnn.sampling import Batch
from gistgnn.subtrain import loss_of

BATCHES = 2  # of which each has a graph of its own, with its own memory
_WARM = 3  # steps before the capture, as torch advises


class ReadySteps:
    """Passes of the fused runner over few batches, again and again.

    A CUDA graph repeats the same kernels on the same memory. Batches of clusters differ in size, and some operators
    (self-loops) are counted on the host. So this is what a graph could save at most; no runner of gistgnn uses one.

    Args:
        case: the shared settings.
        gist: Θ and m sub-GCNs.
        captured: as CUDA graphs.
        seconds: of one measurement.
    """

    def __init__(self, case: Case, gist: GIST, *, captured: bool, seconds: float) -> None:
        if captured and torch.device(case.device).type != "cuda":
            raise RuntimeError("CUDA graphs need a GPU")
        self._case, self._m, self._clock, self._next = case, gist.sub_gcns, Clock(case.device), 0
        with closing(case.sampler().batches(0, BATCHES)) as made:
            self._batches = list(made)
        self._stack = Stack(gist.begin_round().subs)
        self._optimizer = torch.optim.Adam(self._stack.parameters.values(), lr=LR, fused=True, capturable=captured)
        self._graphs = self._capture() if captured else []
        for _ in range(_WARM):
            self._pass()
        with self._clock.span("once"):
            self._pass()
        self._repeats = max(2, math.ceil(1e3 * seconds / max(self._clock.read()["once"], 1e-3)))

    def measure(self, what: str) -> dict[str, float]:
        """Return the milliseconds of a step of one sub-GCN."""
        with self._clock.span("step"):
            for _ in range(self._repeats):
                self._pass()
        return {"step": self._clock.read()["step"] / self._repeats / self._m}

    def _pass(self) -> None:
        place = self._next % BATCHES
        self._next += 1
        if self._graphs:
            self._graphs[place].replay()
        else:
            self._step(self._batches[place])

    def _step(self, batch: Batch) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._case.training().autocast(batch.x.device):
            loss = loss_of(self._stack.logits(batch), batch)
        loss.sum().backward()
        self._optimizer.step()

    def _capture(self) -> list[Any]:
        graphs, aside = [], torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for batch in self._batches * _WARM:
                self._step(batch)
        torch.cuda.current_stream().wait_stream(aside)
        for batch in self._batches:
            self._optimizer.zero_grad(set_to_none=True)  # its gradients are memory of the graph
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(batch)
            graphs.append(graph)
        return graphs
