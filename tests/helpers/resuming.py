"""Runs that are stopped and resumed, and all that they leave behind."""

from typing import Any

from gistgnn import GIST, Result
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import ClusterSampling
from tests.helpers.fitting import quiet
from tests.helpers.models import OURS, PLAIN, tiny_graph
from tests.theta.stores import values

GRAPH = tiny_graph()
ROUNDS = 6
RICH: dict[str, Any] = {
    "epochs": 22,
    "sampler": ClusterSampling(4, 2, method="random"),
    "optimizer_state": "carry",
    "schedule": "cosine",
}
"""Options of `fit` with four sub-GCNs on clusters: eleven steps of each, so the last of six rounds
is shorter.
"""


def make(m: int = 3, seed: int = 0, **options: Any) -> GIST:
    return GIST(
        lambda w: OURS["gcn"](w, dropout=0.4, norm="batch"), (8, 7), m, seed=seed, **options
    )


def fit(gist: GIST, **options: Any) -> Result:
    """Six rounds, the last of them shorter."""
    defaults = {"epochs": 11 * gist.sub_gcns, "local_steps": 2, "lr": 0.05, "evaluate_every": 2}
    return gist.fit(GRAPH, progress=False, **{**PLAIN, **defaults, **options})


def after(rounds: int) -> list[InterruptWhen]:
    """Callbacks that interrupt a run when they are asked for the n-th time."""
    asked = iter(range(1, 1000))
    return [InterruptWhen(lambda: next(asked) == rounds)]


def state(gist: GIST, result: Result) -> dict[str, Any]:
    """All that a run leaves behind, except how long it took."""
    p = result.progress
    return {
        "theta": {n: t.tolist() for n, t in values(gist.theta).items()},
        "model": {n: t.tolist() for n, t in named_tensors(result.model).items()},
        "history": quiet(p.history),
        "classes": str(p.classes),  # counts stay integers
        "rest": [
            p.rounds,
            p.steps,
            p.best_round,
            p.best_score,
            p.best,
            p.last,
            p.stopped_early,
            result.interrupted,
        ],
    }
