"""Several processes that train one model together, under torchrun; or one process alone."""

from gistgnn.distributed.ranks import Ranks, started_by_torchrun
from gistgnn.distributed.world import (
    Alone,
    Costs,
    Traffic,
    World,
    communication,
    costs,
    load_on_ranks,
)
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
    "load_on_ranks",
    "started_by_torchrun",
]
