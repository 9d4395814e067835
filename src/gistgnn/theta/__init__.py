"""The global parameters Θ, wherever they lie."""

from gistgnn.theta.files import InFiles
from gistgnn.theta.memory import InMemory
from gistgnn.theta.store import Model, Store, full_model, make_theta, open_theta
from gistgnn.theta.theta import Pending, Theta, Trained, fill

__all__ = [
    "InFiles",
    "InMemory",
    "Model",
    "Pending",
    "Store",
    "Theta",
    "Trained",
    "fill",
    "full_model",
    "make_theta",
    "open_theta",
]
