"""Several processes that train one model together, under torchrun."""

from gistgnn.distributed.agreement import lead, together
from gistgnn.distributed.communication import communication
from gistgnn.distributed.costs import Costs, costs
from gistgnn.distributed.ranks import Ranks, Traffic, started_by_torchrun
from gistgnn.distributed.shared_memory import Machine, load_once
from gistgnn.errors import RankLostError

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
