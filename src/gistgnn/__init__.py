"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.errors import DivergedError as DivergedError
    from gistgnn.errors import GistError as GistError
    from gistgnn.errors import InputError as InputError
    from gistgnn.errors import RankLostError as RankLostError
    from gistgnn.fit.callbacks import Callback as Callback
    from gistgnn.fit.loop import Loop as Loop
    from gistgnn.fit.result import Result as Result
    from gistgnn.fit.saving import Saving as Saving
    from gistgnn.gist import GIST as GIST
    from gistgnn.graphs import Graph as Graph
    from gistgnn.graphs import load as load
    from gistgnn.round import Round as Round
    from gistgnn.runs.run_folder import load_run as load_run
    from gistgnn.settings import Phase as Phase
    from gistgnn.settings import Training as Training
    from gistgnn.training.metric import Metric as Metric

__version__ = "0.1.0"

_HOMES = {
    "Callback": "fit.callbacks",
    "DivergedError": "errors",
    "GIST": "gist",
    "GistError": "errors",
    "Graph": "graphs",
    "InputError": "errors",
    "Loop": "fit.loop",
    "Metric": "training.metric",
    "Phase": "settings",
    "RankLostError": "errors",
    "Result": "fit.result",
    "Round": "round",
    "Saving": "fit.saving",
    "Training": "settings",
    "load": "graphs",
    "load_run": "runs.run_folder",
}


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


__getattr__ = lazy_attributes(__name__, _HOMES)
