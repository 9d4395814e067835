"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.baselines.parts import Parts
    from gistgnn.errors import DivergedError, GistError, InputError, RankLostError
    from gistgnn.fit.callbacks import Callback, Log
    from gistgnn.fit.loop import Loop
    from gistgnn.fit.result import Result
    from gistgnn.fit.saving import Saving
    from gistgnn.gist import GIST
    from gistgnn.graphs import Graph, load
    from gistgnn.layout.joining import join, widen
    from gistgnn.layout.width_scaling import WidthScaling
    from gistgnn.round import Round
    from gistgnn.runs.run_folder import load_run
    from gistgnn.settings import Training
    from gistgnn.training.metric import Metric

__version__ = "0.1.0"
__all__ = [
    "GIST",
    "Callback",
    "DivergedError",
    "GistError",
    "Graph",
    "InputError",
    "Log",
    "Loop",
    "Metric",
    "Parts",
    "RankLostError",
    "Result",
    "Round",
    "Saving",
    "Training",
    "WidthScaling",
    "join",
    "load",
    "load_run",
    "widen",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.baselines.parts": ("Parts",),
        "gistgnn.errors": ("DivergedError", "GistError", "InputError", "RankLostError"),
        "gistgnn.fit.callbacks": ("Callback", "Log"),
        "gistgnn.fit.loop": ("Loop",),
        "gistgnn.fit.result": ("Result",),
        "gistgnn.fit.saving": ("Saving",),
        "gistgnn.gist": ("GIST",),
        "gistgnn.graphs": ("Graph", "load"),
        "gistgnn.layout.joining": ("join", "widen"),
        "gistgnn.layout.width_scaling": ("WidthScaling",),
        "gistgnn.round": ("Round",),
        "gistgnn.runs.run_folder": ("load_run",),
        "gistgnn.settings": ("Training",),
        "gistgnn.training.metric": ("Metric",),
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
