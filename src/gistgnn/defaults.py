"""The settings that suit a graph and a width, of `GIST.fit` with keywords and of the command line.

Those of `Training` itself are plain.
"""

from typing import Any

from gistgnn.settings import Training

# On a small graph, which every step sees as a whole, the blocks of m = 4 regularise. On a larger one the score falls as
# sub-GCNs become narrower than `WIDE`, and a step takes as long.
SMALL_GRAPH = 10_000  # nodes, at most
SUB_GCNS, MOST_SUB_GCNS, WIDE = 4, 8, 512
EPOCHS, EPOCHS_OF_EACH = 400, 100  # of the whole run on a small graph, and of every sub-GCN on a larger one
DROPOUT, LESS_DROPOUT = 0.5, 0.2  # of our models on a small graph, and on a larger one
CHOSEN: dict[str, Any] = {"epochs": EPOCHS, "schedule": "cosine", "optimizer_state": "carry"}
NARROW, HIGHEST_LR = 256, 0.1  # features of a sub-GCN below which it learns better at more than 0.01, and the limit


def chosen_sub_gcns(nodes: int, widest: int) -> int:
    """Return the m that suits a graph of N nodes and the widest layer that is split."""
    return SUB_GCNS if nodes <= SMALL_GRAPH else min(max(widest // WIDE, 1), MOST_SUB_GCNS)


def chosen_epochs(nodes: int, sub_gcns: int) -> int:
    """Return the epochs that suit a graph of N nodes and m sub-GCNs."""
    return EPOCHS if nodes <= SMALL_GRAPH else EPOCHS_OF_EACH * sub_gcns


def chosen_lr(sub_gcns: int, widest: int) -> float:
    """Return the learning rate that suits m sub-GCNs: it grows as they become narrower than `NARROW` features."""
    return min(Training.lr * max(min(sub_gcns, NARROW * sub_gcns / widest), 1), HIGHEST_LR)
