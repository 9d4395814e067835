"""Several processes that train one model together, under torchrun; or one process alone."""

from gistgnn.distributed.ranks import Ranks, started_by_torchrun
from gistgnn.distributed.shared_memory import load_once
from gistgnn.distributed.world import Alone, Costs, Traffic, World, communication, costs
from gistgnn.errors import RankLostError

__all__ = [
    "Alone",
    "Costs",
    "RankLostError",
    "Ranks",
    "Traffic",
    "World",
    "communication",
    "costs",
    "load_once",
    "started_by_torchrun",
]
