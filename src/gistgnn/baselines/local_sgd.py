"""Local SGD: full models trained on every worker, averaged every ζ steps (appendix B)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from gistgnn.errors import InputError
from gistgnn.gist import GIST
from gistgnn.global_model import WorkerOptions
from gistgnn.layout.axes import Build
from gistgnn.sampling import Sampling
from gistgnn.settings import Training


class LocalSGD(GIST):
    """Trains W copies of the full model, each on batches of its own, and averages them after every ζ steps.

    It is GIST with no axis partitioned: every worker's slice is all of Θ, so subAgg averages all of Θ. Everything else
    is as in GIST. Split training gives every worker E/W epochs. Moments start anew after an average, or are averaged
    too (`optimizer_state`). With ranks, worker i trains on rank i mod W. Batches are independent, whatever the sampler
    says; `fit` refuses to train without a sampler.

    Args:
        build: see `GIST`.
        widths: see `GIST`.
        workers: W.
        options: `seed`, `device`, `store`, `ranks` and `axis_names` of `GIST`.
    """

    method = "local-sgd"
    _phased = False

    def __init__(
        self, build: Build, widths: int | Sequence[int], workers: int, **options: Unpack[WorkerOptions]
    ) -> None:
        axes = range(len(widths) if isinstance(widths, (list, tuple)) else 1)
        super().__init__(build, widths, workers, whole=axes, **options)

    def _adapt(self, training: Training, sampler: Sampling | None) -> tuple[Training, Sampling | None]:
        return training, independent(sampler, self.method)


def independent(sampler: Sampling | None, method: str) -> Sampling:
    """Return the same sampling with independent batches: with shared ones all workers would learn the same.

    Raises:
        InputError: every step sees the whole graph.
    """
    if sampler is None:
        raise InputError(
            f"{method} gives each worker its own batches, but the sampler is full: choose another sampler, such as "
            "clusters or neighbor"
        )
    return replace(sampler, batches="independent")
