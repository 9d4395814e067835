"""Data parallel training: the full model on every worker, gradients averaged at every step."""

import statistics
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gistgnn.distributed import Costs, Ranks, World, communication
from gistgnn.distributed.ranks import error_message, raise_first
from gistgnn.errors import GistError
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Result
from gistgnn.gist import GIST, run_to_end
from gistgnn.layout.axes import Build
from gistgnn.round import Round
from gistgnn.runners.registry import Numbers
from gistgnn.sampling import Batch, Sampler, arguments, calling
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import change_gradients, loss_of, norms_one_node, trains_on
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.slices import THETA, Trained
from gistgnn.theta.theta import Theta
from gistgnn.utils.checks import check_count
from gistgnn.utils.random_streams import Stream


class DataParallel(GIST):
    """Trains the full model on W batches at every step.

    The mean of their gradients is one step of the optimiser.

    One process computes the workers' gradients one after another. Ranks use torch's
    DistributedDataParallel, with worker w on rank w mod the number of ranks. A batch without
    training nodes counts as a gradient of zero. Running statistics are those of worker 0.
    `local_steps` only sets how often the model is evaluated. Batches are independent, whatever the
    sampler says: "auto" takes clusters on any graph, and None, the whole graph, is refused.

    Args:
        build, widths: see `GIST`.
        workers: W.
        options: `seed`, `device`, `ranks` and `axis_names` of `GIST`.
    """

    method = "data-parallel"
    has_independent_batches = True
    _stores = ("memory",)

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int],
        workers: int,
        **options: Any,
    ) -> None:
        self._workers = check_count("workers", workers)
        super().__init__(build, widths, 1, **options)

    @property
    def workers(self) -> int:
        """W. `training="split"` splits the epochs over the workers."""
        return self._workers

    def bytes_sent(self, costs: Costs) -> dict[str, float]:
        return {"bytes_per_step": costs.local_sgd}

    def _train(self, setup: Setup) -> Result:
        # There is one model, whichever runner is asked for.
        return run_to_end(setup, EveryStep(self.workers, self.ranks))

    def _make_theta(self, spec: ModelSpec, *, anew: bool = False) -> Theta:
        theta = super()._make_theta(spec, anew=anew)
        if isinstance(self.ranks, Ranks):
            buffers = [name for name, _ in self.full_spec.on_meta().named_buffers()]
            theta.exchange = Mirror(self.ranks, self.workers, buffers)
        return theta


class EveryStep:
    """Trains one model on the batches of W workers, dealt to the ranks.

    See `gistgnn.runners.registry.Runner`.
    """

    def __init__(self, workers: int, ranks: World) -> None:
        self._ranks = ranks
        self._rank_workers = range(ranks.rank, workers, ranks.count)
        # The weight of a worker's gradient in its rank's sum. Torch averages over ranks.
        self._weight = ranks.count / workers
        self._net: DistributedDataParallel | None = None  # Ranks train this wrapper of the model.

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        """Train for some steps; return the mean loss of this rank's workers.

        It is returned as the loss of sub-GCN 0.
        """
        (model,) = round_.subs
        if self._ranks.is_distributed and (self._net is None or self._net.module is not model):
            with self._ranks.talking():
                self._net = DistributedDataParallel(model)
        optimizer = round_.make_optimizer(training, [model])
        round_.carry(0, optimizer)
        total = torch.zeros((), device=next(model.parameters()).device)
        counted = 0
        with ExitStack() as stack:
            batches = [
                stack.enter_context(
                    closing(sampler.for_sub_gcn(w).batches(steps.first, steps.count))
                )
                for w in self._rank_workers
            ]
            for k in range(steps.count):
                steps.begin(optimizer, training, k)
                losses = self._add_up_gradients(model, batches, training, seed, steps.first + k)
                for loss in losses:
                    total = total + loss
                counted += len(losses)
                change_gradients(model, training)
                optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gradients = sum(
            parameter.nbytes for parameter in model.parameters() if parameter.requires_grad
        )
        # Torch averages over a ring of ranks, each of which sends this share of the gradients.
        share = 2 * (self._ranks.count - 1) / self._ranks.count
        self._ranks.traffic.sent += round(share * gradients) * steps.count
        return {0: {"loss": float(total / counted)}} if counted else {}

    def _add_up_gradients(
        self,
        model: nn.Module,
        batches: Sequence[Generator[Batch, None, None]],
        training: Training,
        seed: int,
        step: int,
    ) -> list[Tensor]:
        """Add up the gradients of this rank's workers for one step of the run.

        Returns the losses of the workers whose batches have some.
        """
        net = self._net or model
        losses = []
        for w, worker_batches in zip(self._rank_workers, batches, strict=True):
            batch = next(worker_batches)
            # Ranks exchange their gradients with that of their last worker.
            exchange_later: AbstractContextManager[None] = nullcontext()
            if self._net is not None and w != self._rank_workers[-1]:
                exchange_later = self._net.no_sync()
            buffers_before = {}  # Running statistics are those of worker 0.
            if w > 0:
                buffers_before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            with (
                Stream(seed, "dropout", step, w, device=batch.x.device),
                exchange_later,
                self._ranks.talking(),
            ):
                has_loss = trains_on(model, batch, training)
                is_single = norms_one_node(model, batch)
                if is_single:
                    net.eval()
                with training.autocast(batch.x.device):
                    inputs = arguments(model, batch, nodes=batch.loss_nodes)
                    with calling(model, batch, inputs):
                        logits = inputs.chosen(net(*inputs.positional, **inputs.by_name))
                    loss = loss_of(logits, batch, training) if has_loss else logits.sum() * 0.0
                (loss * self._weight).backward()
                if is_single:
                    net.train()
            for name, buffer in buffers_before.items():
                model.get_buffer(name).copy_(buffer)
            if has_loss:
                losses.append(loss.detach())
        return losses


class Mirror(Exchange):
    """Every rank has trained all of Θ with averaged gradients.

    Buffers are not averaged: rank 0 sends its own.
    """

    ranks: Ranks

    def __init__(self, ranks: Ranks, workers: int, buffers: Sequence[str]) -> None:
        super().__init__(ranks)
        self._workers = workers
        self._buffers = buffers

    def agree(
        self, numbers: Numbers, error: GistError | None, trained: Mapping[int, Trained]
    ) -> Numbers:
        """Return the means of all ranks' numbers, weighted by their workers."""
        ranks = self.ranks
        reports = ranks.gather([numbers.get(0), error_message(error)])
        raise_first([message for _, message in reports], error)
        ranks.traffic.rounds += 1
        weights = [len(range(rank, self._workers, ranks.count)) for rank in range(ranks.count)]
        measured = [
            (values, weight) for (values, _), weight in zip(reports, weights, strict=True) if values
        ]
        if not measured:
            return {}
        means = {}
        for name in measured[0][0]:
            values_of_ranks = [values[name] for values, _ in measured]
            means[name] = statistics.fmean(values_of_ranks, [weight for _, weight in measured])
        return {0: means}

    def members(self, sub_gcns: int) -> list[int]:
        return list(range(sub_gcns))

    def send_trained(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return the model of this rank, with the running statistics of rank 0."""
        for key in (f"{THETA}{name}" for name in self._buffers):
            if key in trained[0]:
                values = trained[0][key].cpu().clone()
                self.ranks.broadcast(values)
                trained[0][key] = values
        return trained

    def communication(self, place: InMemory, theta_bytes: int, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged so far.

        The bytes of gradients, which torch exchanges, are by the formula.
        """
        traffic = communication(self.ranks, theta_bytes, local_steps, copies=self.ranks.count)
        return {**traffic, "received": traffic["sent"], "by_formula": True}
