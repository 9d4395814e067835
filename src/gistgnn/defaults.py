"""The settings that suit a graph and a width, of `GIST.fit` with keywords and of the command line.

Those of `Training` itself are plain.
"""

from typing import Any

from gistgnn.settings import Training

# Narrower sub-GCNs than `WIDE` cost points, where there is more to learn than from a few labels, and save little time.
MOST_SUB_GCNS, WIDE = 8, 512
EPOCHS = 100  # of every sub-GCN
DROPOUT = 0.2  # of our models
CHOSEN: dict[str, Any] = {"epochs": EPOCHS, "schedule": "cosine", "optimizer_state": "carry"}
NARROW, HIGHEST_LR = 256, 0.1  # features of a sub-GCN below which it learns better at more than 0.01, and the limit


def chosen_sub_gcns(widest: int) -> int:
    """Return the m that suits a model by the widest layer that is split."""
    return min(max(widest // WIDE, 1), MOST_SUB_GCNS)


def chosen_lr(sub_gcns: int, widest: int) -> float:
    """Return the learning rate that suits m sub-GCNs: it grows as they become narrower than `NARROW` features."""
    return min(Training.lr * max(min(sub_gcns, NARROW * sub_gcns / widest), 1), HIGHEST_LR)
