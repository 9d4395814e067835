"""Several processes that train one model together, under torchrun."""

from gistgnn.distributed.ranks import RankLostError, Ranks, Traffic, started_by_torchrun

__all__ = ["RankLostError", "Ranks", "Traffic", "started_by_torchrun"]
