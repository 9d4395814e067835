"""Local SGD: full models trained on every worker, averaged every ζ steps (appendix B)."""

from collections.abc import Sequence
from typing import Any

from gistgnn.gist import GIST
from gistgnn.layout.axes import Build


class LocalSGD(GIST):
    """Trains W copies of the full model, and averages them after every ζ steps.

    Each copy has batches of its own.

    It is GIST with no axis partitioned: every worker's slice is all of Θ, so subAgg averages all of
    Θ. Everything else is as in GIST. Split training gives every worker E/W epochs. Moments start
    anew after an average, or are averaged too (`optimizer_state`). With ranks, worker i trains on
    rank i mod W. Batches are independent, whatever the sampler says: "auto" takes clusters on any
    graph, and None, the whole graph, is refused.

    Args:
        build, widths: see `GIST`.
        workers: W.
        options: `seed`, `device`, `store`, `ranks` and `axis_names` of `GIST`.
    """

    method = "local-sgd"
    has_independent_batches = True

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int],
        workers: int,
        **options: Any,
    ) -> None:
        axes = range(len(widths) if isinstance(widths, (list, tuple)) else 1)
        super().__init__(build, widths, workers, whole=axes, **options)
