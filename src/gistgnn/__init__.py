"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gistgnn.errors import DivergedError as DivergedError
    from gistgnn.errors import GistError as GistError
    from gistgnn.errors import InputError as InputError
    from gistgnn.errors import RankLostError as RankLostError
    from gistgnn.gist import GIST as GIST
    from gistgnn.graphs import Graph as Graph
    from gistgnn.round import Round as Round
    from gistgnn.session.result import Result as Result
    from gistgnn.session.saving import Saving as Saving
    from gistgnn.settings import Training as Training

__version__ = "0.1.0"

_HOMES = {
    "DivergedError": "errors",
    "GIST": "gist",
    "GistError": "errors",
    "Graph": "graphs",
    "InputError": "errors",
    "RankLostError": "errors",
    "Result": "session.result",
    "Round": "round",
    "Saving": "session.saving",
    "Training": "settings",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `gistgnn --help` need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gistgnn' has no attribute '{name}'")
    return getattr(importlib.import_module(f"gistgnn.{_HOMES[name]}"), name)
