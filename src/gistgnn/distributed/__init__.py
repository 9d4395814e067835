"""Several processes that train one model together, under torchrun."""

from gistgnn.distributed.agreeing import lead, together
from gistgnn.distributed.machine import Machine, load_once
from gistgnn.distributed.ranks import RankLostError, Ranks, Traffic, started_by_torchrun

__all__ = [
    "Machine",
    "RankLostError",
    "Ranks",
    "Traffic",
    "lead",
    "load_once",
    "started_by_torchrun",
    "together",
]
