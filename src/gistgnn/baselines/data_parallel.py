"""Data parallel training: the full model on every worker, gradients averaged at every step."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gistgnn.accounting.footprint import costs_of
from gistgnn.baselines.workers import independent
from gistgnn.distributed import Ranks, communication
from gistgnn.distributed.agreement import raise_first, words_of
from gistgnn.errors import InputError
from gistgnn.gist import GIST
from gistgnn.layout.axes import Build, Layout
from gistgnn.partition import Blocks
from gistgnn.round import Round
from gistgnn.runners import Runner, Stretch
from gistgnn.runners.runner import Losses
from gistgnn.sampling import Batch, Sampler, Sampling, arguments
from gistgnn.session.result import Result
from gistgnn.settings import Training
from gistgnn.subtrain import begin_step, loss_of
from gistgnn.theta import InMemory, OnRanks, PendingInMemory, Said, Theta, build_on_meta, make_theta
from gistgnn.utils.random_streams import torch_stream


class DataParallel(GIST):
    """Trains the full model on W batches at every step: the mean of their gradients is one step of the optimiser.

    In one process the workers' gradients are found one after another; with ranks by torch's DistributedDataParallel,
    worker w on rank w mod the number of ranks. A batch without a training node counts as a gradient of zero; running
    statistics are those of worker 0, as there. `local_steps` says how often it is evaluated, and nothing else.

    Args:
        build: see `GIST`.
        widths: see `GIST`.
        workers: W.
        ranks: see `GIST`.
        options: `seed`, `device` and `axis_names` of `GIST`.

    Raises:
        InputError: W < 1, or fewer workers than ranks; or as `GIST` does.
    """

    method = "data-parallel"

    def __init__(
        self, build: Build, widths: int | Sequence[int], workers: int, *, ranks: Ranks | None = None, **options: Any
    ) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise InputError(f"workers is {workers!r}, expected an integer >= 1")
        self._workers = workers
        super().__init__(build, widths, 1, ranks=ranks, **options)

    @property
    def workers(self) -> int:
        """W, over which `training="split"` splits the epochs."""
        return self._workers

    def fit(self, graph: Any, *, sampler: Sampling | None = None, **settings: Any) -> Result:
        """Train on a graph; see `GIST.fit`. Batches are independent, whatever the sampler says.

        Raises:
            InputError: there is no sampler; or as there.
        """
        return super().fit(graph, sampler=independent(sampler, self.method), **settings)

    def runner(self, name: str) -> Runner:
        """The runner of data parallel training, whichever is asked for: there is one model."""
        super().runner(name)
        return EveryStep(self.workers, self.ranks)

    def traffic(self, training: Training) -> dict[str, float]:
        """Bytes that a worker sends: the gradients of Θ, averaged after every step."""
        return {"bytes_per_step": costs_of(self, training).data_parallel / training.local_steps}

    def _check_ranks(self) -> None:
        if self.store.kind != "memory":
            raise InputError(f"the store is {self.store.kind}, but every worker holds all of Θ: use memory")
        if self.ranks and self.workers < self.ranks.count:
            raise InputError(
                f"workers is {self.workers}, fewer than the {self.ranks.count} ranks, each of which is one at least: "
                "start fewer ranks, or use more workers"
            )

    def _make_theta(self, *, replace: bool = False) -> Theta:
        own = make_theta(self.store, dataclasses.replace(self.what(), ranks=None), replace=replace)
        assert isinstance(own, InMemory)
        if self.ranks is None:
            return own
        model = build_on_meta(self.build, self.widths, shared=self.shared)
        buffers = [name for name in own.tensors if name in dict(model.named_buffers())]
        return Mirrored(own, self.layout, self.widths, self.ranks, self.workers, buffers)


class EveryStep:
    """Trains one model on the batches of W workers; see `gistgnn.runners.Runner`.

    Args:
        workers: W.
        ranks: the processes that they are dealt to, or None.
    """

    def __init__(self, workers: int, ranks: Ranks | None) -> None:
        self._ranks = ranks
        first, count = (ranks.rank, ranks.count) if ranks else (0, 1)
        self._own = range(first, workers, count)
        self._share = count / workers  # of a worker's gradient in the sum of its rank: ranks are averaged
        self._net: nn.Module | None = None

    def __call__(self, round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> Losses:
        """Train for a stretch of steps, and return the mean loss of the workers here, for sub-GCN 0."""
        (model,) = round_.subs
        net = self._wrapped(model)
        optimizer = training.make_optimizer(model.parameters())
        round_.carry(0, optimizer)
        total, steps = torch.zeros((), device=next(model.parameters()).device), 0
        with ExitStack() as stack:
            batches = [
                stack.enter_context(closing(sampler.for_sub_gcn(w).batches(stretch.first, stretch.count)))
                for w in self._own
            ]
            for k in range(stretch.count):
                begin_step(optimizer, stretch.rate(training, k))
                for loss in self._backward(net, model, batches, training, (seed, stretch.first + k)):
                    total, steps = total + loss, steps + 1
                if training.clip_norm is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
                optimizer.step()
        if self._ranks:  # a ring's share of the gradients, which torch averages
            gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
            share = 2 * (self._ranks.count - 1) / self._ranks.count
            self._ranks.traffic.sent += round(share * gradients) * stretch.count
        return {0: float(total / steps)} if steps else {}

    def _backward(
        self,
        net: nn.Module,
        model: nn.Module,
        batches: Sequence[Generator[Batch, None, None]],
        training: Training,
        stream: tuple[int, int],
    ) -> list[Tensor]:
        """Add up the gradients of one step of every worker here; return the losses of those that have one."""
        losses, seed, step = [], *stream
        for w, each in zip(self._own, batches, strict=True):
            batch = next(each)
            last = w == self._own[-1]
            waits = net.no_sync() if isinstance(net, DistributedDataParallel) and not last else nullcontext()
            kept = {name: buffer.clone() for name, buffer in model.named_buffers()} if w else {}
            with torch_stream(seed, "dropout", step, w, device=batch.x.device), waits, self._talking():
                with training.autocast(batch.x.device):
                    logits = net(*arguments(model, batch))
                    found = bool(batch.loss_nodes.numel())
                    loss = loss_of(logits, batch) if found else logits.sum() * 0.0
                (loss * self._share).backward()
            for name, buffer in kept.items():
                model.get_buffer(name).copy_(buffer)
            losses += [loss.detach()] * found
        return losses

    def _wrapped(self, model: nn.Module) -> nn.Module:
        if self._ranks is None:
            return model
        if not isinstance(self._net, DistributedDataParallel) or self._net.module is not model:
            with self._talking():
                self._net = DistributedDataParallel(model)
        return self._net

    def _talking(self) -> AbstractContextManager[None]:
        """Where torch exchanges gradients, or running statistics, between ranks."""
        return self._ranks.talking() if self._ranks else nullcontext()


class Mirrored(OnRanks, InMemory):
    """Θ that every rank has trained all of, with gradients that were averaged.

    Args:
        own: Θ as this rank has it, which is no one else's.
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        ranks: the processes of the run.
        workers: W, who are dealt to them.
        buffers: which of the tensors are not parameters.
    """

    def __init__(
        self, own: InMemory, layout: Layout, widths: Sequence[int], ranks: Ranks, workers: int, buffers: Sequence[str]
    ) -> None:
        super().__init__(layout, widths, own.tensors)
        self.ranks, self.shard, self.workers = ranks, 0 if ranks.leads else None, workers
        self.buffers = buffers

    def begin(self, number: int, blocks: Sequence[Blocks]) -> PendingMirrored:
        """Begin round t."""
        return PendingMirrored(self, number, blocks)

    def communication(self, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged so far; the gradients, which torch exchanges, by the formula."""
        size = sum(tensor.nbytes for tensor in self.tensors.values())
        found = communication(self.ranks, size, local_steps, sharded=False)
        return {**found, "received": found["sent"], "by_formula": True}


class PendingMirrored(PendingInMemory):
    """One round, in which every rank has trained the same model."""

    _theta: Mirrored

    def agree(self, said: Said) -> Said:
        """The mean of all ranks' losses; the first error of any is raised in all."""
        ranks, workers = self._theta.ranks, self._theta.workers
        every = ranks.gather([said.losses.get(0), words_of(said.error)])
        raise_first([words for _, words in every], said.error)
        ranks.traffic.rounds += 1
        weights = [len(range(rank, workers, ranks.count)) for rank in range(ranks.count)]
        found = [(loss, weight) for (loss, _), weight in zip(every, weights, strict=True) if loss is not None]
        return Said({0: statistics.fmean(*zip(*found, strict=True))} if found else {})

    def commit(self, loss: float) -> None:
        """Write the round into Θ; running statistics, which torch does not average, are those of rank 0."""
        super().commit(loss)
        theta = self._theta
        for name in theta.buffers:
            theirs = theta.tensors[name].cpu()
            theta.ranks.tell(theirs)
            theta.tensors[name].copy_(theirs)
