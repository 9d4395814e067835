"""The defaults that depend on a width and on m, for Python and the command line."""

from collections.abc import Sequence
from dataclasses import replace

from gistgnn.settings import LR, Training
from gistgnn.utils.checks import MOST

# Narrower sub-GCNs than `WIDE` cost points, where there is more to learn than from a few labels,
# and save little time.
MOST_SUB_GCNS = 8
WIDE = 512
EPOCHS = 100  # Every sub-GCN takes so many.
DROPOUT = 0.2  # Our models have this dropout.
# Sub-GCNs of fewer features than this learn better at a learning rate above 0.01, up to the limit.
NARROW = 256
HIGHEST_LR = 0.1


def chosen_sub_gcns(widest: int) -> int:
    """Return the m that suits a model by the widest layer that is split."""
    return min(max(widest // WIDE, 1), MOST_SUB_GCNS)


def chosen_lr(sub_gcns: int, widest: int) -> float:
    """Return the learning rate that suits m sub-GCNs, which grows as they become narrower."""
    return min(LR * max(min(sub_gcns, NARROW * sub_gcns / widest), 1), HIGHEST_LR)


def chosen_epochs(training: Training, workers: int) -> int:
    """Return the epochs of a run in which each of its workers takes `EPOCHS` of them."""
    return min(EPOCHS * (workers if training.training == "split" else 1), MOST)


def complete(training: Training, workers: int, split: Sequence[int]) -> Training:
    """Return the settings of a run with its epochs and its learning rate.

    Those that are not given are chosen.

    Args:
        training: the settings as they are given.
        workers: the sub-GCNs, or the workers of a baseline, that train at the same time.
        split: the widths of the hidden layers that are split into blocks; empty where every worker
            trains all of them, and where learning rates follow the widths by themselves.
    """
    has_budget = training.budget is not None  # A budget chooses m and the epochs.
    if training.epochs is None and not has_budget:
        training = replace(training, epochs=chosen_epochs(training, workers))
    if training.lr is None:
        training = replace(
            training, lr=chosen_lr(workers, max(split)) if split and not has_budget else LR
        )
    return training
