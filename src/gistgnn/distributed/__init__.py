"""Several processes that train one model together, under torchrun."""

from gistgnn.distributed.accounting import communication
from gistgnn.distributed.agreeing import lead, together
from gistgnn.distributed.costs import Costs, costs
from gistgnn.distributed.machine import Machine, load_once
from gistgnn.distributed.ranks import RankLostError, Ranks, Traffic, started_by_torchrun

__all__ = [
    "Costs",
    "Machine",
    "RankLostError",
    "Ranks",
    "Traffic",
    "communication",
    "costs",
    "lead",
    "load_once",
    "started_by_torchrun",
    "together",
]
