"""Local SGD: full models trained on every worker, averaged every ζ steps (appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gistgnn.baselines.workers import independent
from gistgnn.gist import GIST
from gistgnn.layout.axes import Build
from gistgnn.sampling import Sampling
from gistgnn.session.result import Result


class LocalSGD(GIST):
    """Trains W copies of the full model, each on batches of its own, and averages them after every ζ steps.

    It is GIST with no axis partitioned: every worker's slice is all of Θ, and all of Θ is what several hold, which
    subAgg averages. The rest is as there: split training gives every worker E/W epochs, moments start anew after an
    average or are averaged too (`optimizer_state`), and with ranks worker i trains on rank i mod W.

    Args:
        build: see `GIST`.
        widths: see `GIST`.
        workers: W.
        options: `seed`, `device`, `store`, `ranks` and `axis_names` of `GIST`.
    """

    method = "local-sgd"

    def __init__(self, build: Build, widths: int | Sequence[int], workers: int, **options: Any) -> None:
        axes = range(len(widths) if isinstance(widths, (list, tuple)) else 1)
        super().__init__(build, widths, workers, whole=axes, **options)

    def fit(self, graph: Any, *, sampler: Sampling | None = None, **settings: Any) -> Result:
        """Train on a graph; see `GIST.fit`. Batches are independent, whatever the sampler says.

        Raises:
            InputError: there is no sampler; or as there.
        """
        return super().fit(graph, sampler=independent(sampler, self.method), **settings)
