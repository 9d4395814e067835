"""The in-turn runner: the sub-GCNs train one after another in this process."""

import math
from contextlib import closing
from dataclasses import dataclass

from gistgnn.rounds import DivergedError, Round
from gistgnn.sampling import Sampler
from gistgnn.seeds import torch_stream
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain


@dataclass(frozen=True)
class Stretch:
    """The steps that every sub-GCN takes in one round.

    Args:
        first: steps that each sub-GCN took in earlier rounds.
        count: ζ, or what is left of the run.
        total: steps of the whole run; the schedule follows first / total.
    """

    first: int
    count: int
    total: int


def train_in_turn(round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> float:
    """Train every sub-GCN of a round, one after another, and return their mean loss.

    A step whose batch has no training node is passed over; where all of a round's are such, the loss is 0.

    Args:
        round_: the sub-GCNs.
        sampler: the batches; every sub-GCN sees the same ones, unless the sampler makes them independent.
        training: optimiser, schedule, clipping.
        stretch: which steps of the run these are.
        seed: the run's seed, from which dropout follows.

    Raises:
        DivergedError: a loss is not finite.
    """
    losses = []
    for i, sub in enumerate(round_):
        columns = round_.input_columns(i)
        seen = sampler.for_sub_gcn(i) if columns is None else sampler.for_sub_gcn(i).select_columns(columns)
        optimizer = training.make_optimizer(sub.parameters())
        if training.optimizer_state == "carry" or len(round_) == 1:  # the baseline is ordinary training
            round_.carry(i, optimizer)
        with (
            closing(seen.batches(stretch.first, stretch.count)) as batches,
            torch_stream(seed, "dropout", round_.number, i, device=next(sub.parameters()).device),
        ):
            loss = subtrain(
                sub,
                optimizer,
                batches,
                lambda k: training.rate((stretch.first + k) / stretch.total),
                training.clip_norm,
            )
        if loss is not None:
            losses.append(float(loss))
            if not math.isfinite(losses[-1]):
                raise DivergedError(round_.number, f"the loss of sub-GCN {i} became {losses[-1]}")
    return sum(losses) / len(losses) if losses else 0.0
