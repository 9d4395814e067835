"""Our contenders: the baseline, sub-GCNs in turn, batch by batch, and fused."""

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from benchmarks.case import Case
from benchmarks.clock import Clock, TimedSampler
from gistgnn import GIST
from gistgnn.graphs import CSR
from gistgnn.round import Round
from gistgnn.runners.registry import make_runner
from gistgnn.runners.stack import Stack
from gistgnn.sampling import Batch, forward
from gistgnn.schedule import StepRange
from gistgnn.subtrain import begin_step, loss_of
from gistgnn.utils.process_memory import keep_freed_memory

ENDLESS = 10**9  # steps of the whole run, for the schedule


class GISTContender:
    """GIST with m sub-GCNs, as `GIST.fit` runs it.

    Args:
        case: the shared settings.
        runner: "in-turn", "auto" or "fused".
        sub_gcns: m; 1 is the baseline.
        gist: Θ and the sub-GCNs, which several contenders of a process may share; None: its own.
    """

    def __init__(self, case: Case, runner: str, sub_gcns: int, gist: GIST | None = None) -> None:
        keep_freed_memory()
        self._case, self.sub_gcns = case, sub_gcns
        self._fused = runner == "fused"
        self.steps_per_pass = 1 if runner == "in-turn" else sub_gcns
        self.sampler = case.sampler()
        self._training = case.training()
        self._gist = gist or GIST(case.build, case.hidden, sub_gcns, device=case.device)
        self._runner = make_runner(runner)
        self._position = 0
        self._models: list[Stack | Any] = []  # that train on a batch one after another
        self._optimizer: Optimizer

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch as the sampler makes it. Preparing its operators is part of the step."""
        edges = CSR(batch.edges.rowptr, batch.edges.col, batch.edges.shape)
        return replace(batch, edges=edges)

    def logits(self, batch: Batch) -> Tensor:
        """Return the output of the first sub-GCN, or of all of them if they are fused: [m, N, C]."""
        return self._logits(self.models[0], batch)

    @property
    def models(self) -> list[Stack | Any]:
        """The sub-GCNs that train on a batch one after another. If they are fused, one that holds all of them."""
        if not self._models:
            self._open()
        return self._models

    def _logits(self, model: Stack | Any, batch: Batch) -> Tensor:
        return model.logits(batch) if self._fused else forward(model, batch)

    def step(self, batch: Batch, clock: Clock) -> None:
        """Run one step of a sub-GCN or, with "auto" and "fused", of all of them on the batch, as the runners do."""
        models = self.models
        with clock.span("forward"):
            begin_step(self._optimizer, self._training.lr)
        for model in models:
            with clock.span("forward"), self._training.autocast(batch.x.device):
                loss = loss_of(self._logits(model, batch), batch)
            with clock.span("backward"):
                loss.sum().backward()
        with clock.span("optimiser"):
            self._optimizer.step()

    def stretch(self, passes: int, clock: Clock) -> None:
        """Run one round: take Θ's slices, train every sub-GCN with batches from the background, merge Θ."""
        with clock.span("total"):
            with clock.span("theta"):
                round_ = self._gist.begin_round()
            _clock_carrying(round_, clock)
            sampler = TimedSampler(self.sampler, clock)
            self._runner(round_, sampler, self._training, StepRange(self._position, passes, ENDLESS), 0)
            with clock.span("theta"):
                round_.aggregate()
        self._position += passes
        if self.steps_per_pass > 1 and not self._runner.together:  # type: ignore[attr-defined]
            raise RuntimeError("the sub-GCNs do not train together, so there is nothing to measure: see the warning")

    def _open(self) -> None:
        subs = self._gist.begin_round().subs
        self._models = [Stack(subs)] if self._fused else list(subs[: self.steps_per_pass])
        if self._fused:
            parameters = list(self._models[0].parameters.values())
        else:
            parameters = [p for model in self._models for p in model.parameters()]
        self._optimizer = self._training.make_optimizer(parameters)


def _clock_carrying(round_: Round, clock: Clock) -> None:
    """Count the baseline's transfer of moments as time for Θ: it happens once a round, not once a step."""
    carry = round_.carry

    def timed(i: int, optimizer: Optimizer) -> None:
        with clock.span("theta"):
            carry(i, optimizer)

    round_.carry = timed  # type: ignore[method-assign]
