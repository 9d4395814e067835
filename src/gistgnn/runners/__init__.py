"""Where the sub-GCNs of a round run."""

from gistgnn.runners.in_turn import Stretch, train_in_turn

__all__ = ["Stretch", "train_in_turn"]
