"""The global parameters Θ, wherever they lie."""

from gistgnn.theta.files import InFiles
from gistgnn.theta.initial import build_from_seed
from gistgnn.theta.memory import InMemory
from gistgnn.theta.store import STORES, Model, Running, Store, full_model, make_theta, open_theta
from gistgnn.theta.theta import Pending, Theta, Trained, fill

__all__ = [
    "STORES",
    "InFiles",
    "InMemory",
    "Model",
    "Pending",
    "Running",
    "Store",
    "Theta",
    "Trained",
    "build_from_seed",
    "fill",
    "full_model",
    "make_theta",
    "open_theta",
]
