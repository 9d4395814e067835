"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gistgnn.errors import InputError
    from gistgnn.gist import GIST
    from gistgnn.graphs import Graph
    from gistgnn.round import Round
    from gistgnn.session.result import Result
    from gistgnn.session.saving import Saving
    from gistgnn.settings import Training

__version__ = "0.1.0"

__all__ = ["GIST", "DivergedError", "Graph", "InputError", "Result", "Round", "Saving", "Training", "__version__"]

_HOMES = {
    "DivergedError": "errors",
    "GIST": "gist",
    "Graph": "graphs",
    "InputError": "errors",
    "Result": "session.result",
    "Round": "round",
    "Saving": "session.saving",
    "Training": "settings",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that the command line's help need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gistgnn' has no attribute '{name}'")
    return getattr(importlib.import_module(f"gistgnn.{_HOMES[name]}"), name)
