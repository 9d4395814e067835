"""The in-turn runner: the sub-GCNs train one after another in this process."""

import math
from contextlib import closing
from functools import partial

from gistgnn.round import Round
from gistgnn.runners.registry import Losses
from gistgnn.sampling import Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain
from gistgnn.utils.random_streams import torch_stream


class InTurn:
    """Trains the sub-GCNs of a round one after another."""

    def __call__(self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int) -> Losses:
        losses: Losses = {}
        for i, sub in zip(round_.members, round_, strict=True):
            columns = round_.input_columns(i)
            batches_of = sampler.for_sub_gcn(i)
            batches_of = batches_of if columns is None else batches_of.select_columns(columns)
            optimizer = training.make_optimizer(sub.parameters())
            if keeps_moments(round_, training):
                round_.carry(i, optimizer)
            with (
                closing(batches_of.batches(steps.first, steps.count)) as batches,
                torch_stream(seed, "dropout", round_.number, i, device=next(sub.parameters()).device),
            ):
                loss = subtrain(sub, optimizer, batches, training, partial(steps.rate, training))
            if loss is not None:
                losses[i] = float(loss)
                if not math.isfinite(losses[i]):
                    break
        return losses


def keeps_moments(round_: Round, training: Training) -> bool:
    """Whether moments are kept from round to round: where they are carried, and where the sub-GCNs stay the same."""
    return training.optimizer_state == "carry" or round_.lasting
