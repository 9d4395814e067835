"""What suits a graph, a width and m where a setting is not given. Python and the command line
choose it here.
"""

from collections.abc import Sequence
from dataclasses import replace

from gistgnn.settings import LR, Training
from gistgnn.utils.checks import MOST

# Narrower sub-GCNs than `WIDE` cost points, where there is more to learn than from a few labels,
# and save little time.
MOST_SUB_GCNS = 8
WIDE = 512
EPOCHS = 100  # of every sub-GCN
DROPOUT = 0.2  # of our models
# features of a sub-GCN below which it learns better at more than 0.01, and the limit
NARROW = 256
HIGHEST_LR = 0.1


def chosen_sub_gcns(widest: int) -> int:
    """Return the m that suits a model by the widest layer that is split."""
    return min(max(widest // WIDE, 1), MOST_SUB_GCNS)


def chosen_lr(sub_gcns: int, widest: int) -> float:
    """Return the learning rate that suits m sub-GCNs: it grows as they become narrower than
    `NARROW` features.
    """
    return min(LR * max(min(sub_gcns, NARROW * sub_gcns / widest), 1), HIGHEST_LR)


def chosen_epochs(training: Training, workers: int) -> int:
    """Return the epochs of a run in which each sub-GCN, or each worker of a baseline, takes
    `EPOCHS` of them.
    """
    return min(EPOCHS * (workers if training.training == "split" else 1), MOST)


def complete(training: Training, workers: int, split: Sequence[int]) -> Training:
    """Return the settings of a run, with the epochs and the learning rate that suit it where they
    are not given.

    Args:
        training: the settings as they are given.
        workers: the sub-GCNs, or the workers of a baseline, that train at the same time.
        split: the widths of the hidden layers that are split into blocks; empty where every worker
            trains all of them, and where learning rates follow the widths by themselves.
    """
    has_budget = training.budget is not None  # which chooses m and the epochs
    if training.epochs is None and not has_budget:
        training = replace(training, epochs=chosen_epochs(training, workers))
    if training.lr is None:
        training = replace(
            training, lr=chosen_lr(workers, max(split)) if split and not has_budget else LR
        )
    return training
