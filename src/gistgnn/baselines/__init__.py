"""The methods that GIST is compared with, and parts: they train the same model on the same graph.

One device is `GIST` with one sub-GCN. The others are subclasses of `GIST` that change one thing
each, so that batches, kernels, clock, scores, checkpoints and ranks are the same: who holds which
part of Θ (`LocalSGD`), what happens within a step (`DataParallel`), or that narrow models train by
themselves (`Parts`, `Ensemble`).
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.baselines.data_parallel import DataParallel
    from gistgnn.baselines.ensemble import Ensemble
    from gistgnn.baselines.local_sgd import LocalSGD
    from gistgnn.baselines.parts import Parts

__all__ = ["DataParallel", "Ensemble", "LocalSGD", "Parts"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.baselines.data_parallel": ("DataParallel",),
        "gistgnn.baselines.ensemble": ("Ensemble",),
        "gistgnn.baselines.local_sgd": ("LocalSGD",),
        "gistgnn.baselines.parts": ("Parts",),
    },
)
