"""The runner "in-turn", one sub-GCN after another, and one that gives the same bits but makes each
batch once.
"""

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
        numbers: Numbers = {}
        if len(round_.members) > 1:
            sampler = sampler.for_round()
        for i, sub in zip(round_.members, round_, strict=True):
            columns = round_.input_columns(i)
            batches_of = sampler.for_sub_gcn(i)
            batches_of = batches_of if columns is None else batches_of.select_columns(columns)
            optimizer = round_.make_optimizer(training, [sub])
            if round_.keeps_moments:
                round_.carry(i, optimizer)
            with (
                closing(batches_of.batches(steps.first, steps.count)) as batches,
                Stream(seed, "dropout", round_.number, i, device=next(sub.parameters()).device),
            ):
                loss = subtrain(sub, optimizer, batches, training, steps)
            if loss is not None:
                numbers[i] = {"loss": float(loss)}
                if not math.isfinite(float(loss)):
                    break
        return numbers


# Θ is the in-turn runner's, bit for bit, and time is saved where a batch costs as much as a narrow
# step. All sub-GCNs' gradients and moments are in memory at once, but the activations of one. Where
# Θ streams, batches are independent or input features are partitioned, they train in turn, and
# `together` is False.
class BatchByBatch:
    """Trains the sub-GCNs of a round batch by batch: each takes a step on a batch before the next
    batch is made.
    """

    def __init__(self) -> None:
        self.together = True

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        whole = not round_.members or round_.input_columns(0) is None
        self.together = not round_.streams and sampler.for_sub_gcn(0) is sampler and whole
        if not self.together or len(round_.members) < 2:
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
                    for sub, stream, found in zip(subs, streams, losses, strict=True):
                        with stream:
                            found.add(backward(sub, batch, training))
                    for optimizer in optimizers:
                        optimizer.step()
        for optimizer in optimizers:
            # Θ is merged and evaluated without gradients in memory
            optimizer.zero_grad(set_to_none=True)
        means = {i: found.mean for i, found in zip(round_.members, losses, strict=True)}
        return {i: {"loss": float(mean)} for i, mean in means.items() if mean is not None}


def make_optimizers(round_: Round, training: Training) -> list[Optimizer]:
    """One optimiser of all sub-GCNs if it is torch's own, else one of each, with the sub-GCNs'
    carried moments.
    """
    # Torch's optimisers change every parameter by itself.
    subs = round_.subs
    if training.optimizer in NAMES["optimizer"]:
        optimizers = [round_.make_optimizer(training, subs)] * len(subs)
    else:
        optimizers = [round_.make_optimizer(training, [sub]) for sub in subs]
    if round_.keeps_moments:
        for i, optimizer in zip(round_.members, optimizers, strict=True):
            round_.carry(i, optimizer)
    return list(dict.fromkeys(optimizers))
