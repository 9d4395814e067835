"""Runners that train one sub-GCN after another, in every round or on every batch."""

import math
from contextlib import closing

from torch.optim import Optimizer

from gistgnn.round import Round
from gistgnn.runners.registry import Numbers
from gistgnn.sampling.sampler import Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import MeanLoss, backward, subtrain, trains_on
from gistgnn.training.names import NAMES
from gistgnn.utils.random_streams import Stream


class InTurn:
    """Trains the sub-GCNs of a round one after another."""

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        """Train the sub-GCNs of a round; see `Runner`."""
        numbers: Numbers = {}
        if len(round_.members) > 1:
            sampler = sampler.for_round()
        for i, sub in zip(round_.members, round_, strict=True):
            sub_sampler = sampler.for_sub_gcn(i)
            columns = round_.input_columns(i)
            if columns is not None:
                sub_sampler = sub_sampler.select_columns(columns)
            optimizer = round_.make_optimizer(training, [sub])
            if round_.keeps_moments:
                round_.carry(i, optimizer)
            with (
                closing(sub_sampler.batches(steps.first, steps.count)) as batches,
                Stream(seed, "dropout", round_.number, i, device=next(sub.parameters()).device),
            ):
                loss = subtrain(sub, optimizer, batches, training, steps)
            if loss is not None:
                numbers[i] = {"loss": float(loss)}
                if not math.isfinite(float(loss)):
                    break  # The round is refused when it is merged.
        return numbers


class BatchByBatch:
    """Trains the sub-GCNs of a round batch by batch, so that each batch is made once.

    Each sub-GCN takes a step on a batch before the next batch is made. Θ is that of `InTurn`, bit
    for bit. This saves time where a batch costs as much as a narrow step. The gradients and moments
    of all sub-GCNs are in memory at once, but the activations of one alone.

    The sub-GCNs train in turn where Θ streams, batches are independent or input features are
    partitioned.
    """

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        """Train the sub-GCNs of a round; see `Runner`."""
        share_batches = sampler.for_sub_gcn(0) is sampler and round_.input_columns(0) is None
        if round_.streams or not share_batches or len(round_.members) < 2:
            return InTurn()(round_, sampler, training, steps, seed)
        subs = round_.subs
        optimizers = make_optimizers(round_, training)
        device = next(subs[0].parameters()).device
        streams = [Stream(seed, "dropout", round_.number, i, device=device) for i in round_.members]
        losses = [MeanLoss() for _ in subs]
        with closing(sampler.batches(steps.first, steps.count)) as batches:
            for k, batch in enumerate(batches):
                if trains_on(subs[0], batch, training):
                    for optimizer in optimizers:
                        steps.begin(optimizer, training, k)
                    for sub, stream, mean_loss in zip(subs, streams, losses, strict=True):
                        with stream:
                            mean_loss.add(backward(sub, batch, training))
                    for optimizer in optimizers:
                        optimizer.step()
        for optimizer in optimizers:
            # Θ is merged and evaluated without gradients in memory.
            optimizer.zero_grad(set_to_none=True)
        numbers: Numbers = {}
        for i, mean_loss in zip(round_.members, losses, strict=True):
            if mean_loss.mean is not None:
                numbers[i] = {"loss": float(mean_loss.mean)}
        return numbers


def make_optimizers(round_: Round, training: Training) -> list[Optimizer]:
    """Return the optimisers of all sub-GCNs, with their carried moments.

    An optimiser of torch is one for all of them, as it changes every parameter by itself. Any other
    is one for each.
    """
    subs = round_.subs
    if training.optimizer in NAMES["optimizer"]:
        optimizers = [round_.make_optimizer(training, subs)] * len(subs)
    else:
        optimizers = [round_.make_optimizer(training, [sub]) for sub in subs]
    if round_.keeps_moments:
        for i, optimizer in zip(round_.members, optimizers, strict=True):
            round_.carry(i, optimizer)
    return list(dict.fromkeys(optimizers))
