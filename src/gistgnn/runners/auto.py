"""The runner "auto": every batch is made once, and the sub-GCNs train on it one after another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import torch
from torch import Tensor
from torch.optim import Optimizer

from gistgnn.round import Round
from gistgnn.runners.in_turn import InTurn
from gistgnn.runners.runner import Losses, keeps_moments
from gistgnn.sampling import Sampler
from gistgnn.schedule import Stretch
from gistgnn.settings import Training
from gistgnn.subtrain import backward, begin_step
from gistgnn.training.names import NAMES
from gistgnn.utils.random_streams import Stream


class Auto:
    """Trains the sub-GCNs of a round batch by batch: each takes a step on a batch before the next batch is made.

    It gives the Θ of the in-turn runner, bit for bit, and saves time where a batch costs as much as a step of a narrow
    sub-GCN. The gradients and moments of all sub-GCNs are in memory at once, but the activations of one.

    The sub-GCNs train in turn if they have independent batches, if the input features are partitioned, or if Θ is kept
    in a way that holds one sub-GCN in memory at a time.

    Attributes:
        together: all sub-GCNs take a step on a batch before the next; expected before the first round, then known.
    """

    def __init__(self) -> None:
        self.together = True

    def __call__(self, round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> Losses:
        """Train the sub-GCNs of a round; see `Runner`."""
        self.together = not round_.streams and shares_batches(round_, sampler)
        if not self.together or len(round_.members) < 2:
            return InTurn()(round_, sampler, training, stretch, seed)
        subs, optimizers = round_.subs, Optimizers(round_, training)
        device = next(subs[0].parameters()).device
        streams = [Stream(seed, "dropout", round_.number, i, device=device) for i in round_.members]
        losses: list[list[Tensor]] = [[] for _ in subs]
        with closing(sampler.batches(stretch.first, stretch.count)) as batches:
            for k, batch in enumerate(batches):
                if batch.loss_nodes.numel():
                    optimizers.begin_step(stretch.rate(training, k))
                    for sub, stream, found in zip(subs, streams, losses, strict=True):
                        with stream:
                            found.append(backward(sub, batch, training))
                    optimizers.step()
        optimizers.finish()
        return {i: float(torch.stack(found).mean()) for i, found in zip(round_.members, losses, strict=True) if found}


class Optimizers:
    """The optimisers of all sub-GCNs of a round, which take their steps as one where this makes no difference.

    torch's optimisers change every parameter by itself, so one of all parameters takes the steps of one for each
    sub-GCN. An optimiser of the user's own may not.

    Args:
        round_: the sub-GCNs.
        training: optimiser, and whether moments are kept.
    """

    def __init__(self, round_: Round, training: Training) -> None:
        self._subs = round_.subs
        self._singles: list[Optimizer] = []
        keeps, named = keeps_moments(round_, training), training.optimizer in NAMES["optimizer"]
        if keeps or not named:
            for i, sub in zip(round_.members, self._subs, strict=True):
                self._singles.append(training.make_optimizer(sub.parameters()))
                if keeps:
                    round_.carry(i, self._singles[-1])
        self._used: Sequence[Optimizer] = self._singles
        if named:
            together = training.make_optimizer([p for sub in self._subs for p in sub.parameters()])
            for single in self._singles:
                together.state.update(single.state)
            self._used = [together]

    def begin_step(self, rate: float) -> None:
        """Set the learning rate, and clear the gradients."""
        for optimizer in self._used:
            begin_step(optimizer, rate)

    def step(self) -> None:
        """Take a step of every sub-GCN."""
        for optimizer in self._used:
            optimizer.step()

    def finish(self) -> None:
        """Give the moments to the optimisers that carry them."""
        if self._used is not self._singles:
            for single, sub in zip(self._singles, self._subs, strict=False):
                single.state.update({p: self._used[0].state[p] for p in sub.parameters() if p in self._used[0].state})


def shares_batches(round_: Round, sampler: Sampler) -> bool:
    """Tell whether all sub-GCNs of a round see the same batches, with all input features."""
    return sampler.for_sub_gcn(0) is sampler and (not round_.members or round_.input_columns(0) is None)
