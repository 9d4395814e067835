"""Short runs of GIST and of what it is compared with, on a tiny graph in clusters."""

from typing import Any

from torch import nn

from gistgnn import GIST, Result
from gistgnn.baselines.registry import METHODS
from gistgnn.distributed import Ranks
from gistgnn.sampling import ClusterSampling, whole_graph
from tests.helpers.models import OURS, PLAIN, tiny_graph

GRAPH = tiny_graph(48)
BATCHES = ClusterSampling(clusters=6, clusters_per_batch=3, method="random", batches="independent")
STEPS = 6
"""The steps of every worker."""
LOCAL = 2
"""Its steps in a round."""
LR = 0.05


def build(widths: Any, dropout: float = 0.0, norm: str = "none") -> nn.Module:
    return OURS["gcn"](widths, dropout=dropout, norm=norm)


def make(
    method: str,
    m: int,
    ranks: Ranks | None = None,
    store: str = "memory",
    width_scaling: str = "mup",
    **options: Any,
) -> GIST:
    return METHODS[method](
        lambda widths: build(widths, **options),
        (8, 7),
        m,
        seed=3,
        ranks=ranks,
        store=store,
        width_scaling=width_scaling,
    )


def fit(gist: GIST, **settings: Any) -> Result:
    """Six steps of every worker, in rounds of two: an epoch has two."""
    defaults = {
        "epochs": STEPS // 2,
        "training": "each",
        "local_steps": LOCAL,
        "lr": LR,
        "sampler": BATCHES,
    }
    return gist.fit(GRAPH, progress=False, **{**PLAIN, **defaults, **settings})


def batches(worker: int) -> Any:
    """What a worker sees, step by step."""
    return BATCHES.sampler(whole_graph(GRAPH), seed=3).for_sub_gcn(worker).batches(0, STEPS)
