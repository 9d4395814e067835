"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.errors import DivergedError as DivergedError
    from gistgnn.errors import GistError as GistError
    from gistgnn.errors import InputError as InputError
    from gistgnn.errors import RankLostError as RankLostError
    from gistgnn.gist import GIST as GIST
    from gistgnn.graphs import Graph as Graph
    from gistgnn.graphs import load as load
    from gistgnn.phases import Phase as Phase
    from gistgnn.round import Round as Round
    from gistgnn.runs.run_folder import load_run as load_run
    from gistgnn.session.callbacks import Callback as Callback
    from gistgnn.session.loop import Loop as Loop
    from gistgnn.session.result import Result as Result
    from gistgnn.session.saving import Saving as Saving
    from gistgnn.settings import Training as Training
    from gistgnn.training.metric import Metric as Metric

__version__ = "0.1.0"

_HOMES = {
    "Callback": "session.callbacks",
    "DivergedError": "errors",
    "GIST": "gist",
    "GistError": "errors",
    "Graph": "graphs",
    "InputError": "errors",
    "Loop": "session.loop",
    "Metric": "training.metric",
    "Phase": "phases",
    "RankLostError": "errors",
    "Result": "session.result",
    "Round": "round",
    "Saving": "session.saving",
    "Training": "settings",
    "load": "graphs",
    "load_run": "runs.run_folder",
}


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


__getattr__ = lazy_attributes(__name__, _HOMES)
