"""The global parameters Θ, wherever they lie."""

from gistgnn.theta.disk.on_disk import InFiles
from gistgnn.theta.initial import build_from_seed, build_on_meta
from gistgnn.theta.local import LocalTheta
from gistgnn.theta.memory import InMemory, PendingInMemory
from gistgnn.theta.ranks.agreement import DealtPending, OnRanks
from gistgnn.theta.ranks.replicated import Replicated
from gistgnn.theta.ranks.sharded import Sharded
from gistgnn.theta.running import Running, full_model
from gistgnn.theta.slices import Slices
from gistgnn.theta.store import STORES, Model, Store, check_ranks, make_theta, open_theta
from gistgnn.theta.theta import Pending, Said, Theta, Trained, fill

__all__ = [
    "STORES",
    "DealtPending",
    "InFiles",
    "InMemory",
    "LocalTheta",
    "Model",
    "OnRanks",
    "Pending",
    "PendingInMemory",
    "Replicated",
    "Running",
    "Said",
    "Sharded",
    "Slices",
    "Store",
    "Theta",
    "Trained",
    "build_from_seed",
    "build_on_meta",
    "check_ranks",
    "fill",
    "full_model",
    "make_theta",
    "open_theta",
]
