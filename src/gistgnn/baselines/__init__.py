"""What GIST is compared with: other ways to train the same model on the same batches.

One device is `GIST` with one sub-GCN. The others are subclasses of it that change one thing each, so that batches,
kernels, clock, scores, checkpoints and ranks are the same: who holds which part of Θ (`LocalSGD`, `Ensemble`), or
what happens within a step (`DataParallel`).
"""

from gistgnn.baselines.data_parallel import DataParallel
from gistgnn.baselines.ensemble import Ensemble
from gistgnn.baselines.local_sgd import LocalSGD
from gistgnn.baselines.workers import independent
from gistgnn.gist import GIST

METHODS: dict[str, type[GIST]] = {
    "gist": GIST,
    "data-parallel": DataParallel,
    "local-sgd": LocalSGD,
    "ensemble": Ensemble,
}
"""The ways to train by their names; each is made of (build, widths, m)."""

UNSPLIT = frozenset({"data-parallel", "local-sgd"})
"""Those whose workers hold all of the model, so that there is no partition to choose."""

__all__ = ["METHODS", "UNSPLIT", "DataParallel", "Ensemble", "LocalSGD", "independent"]
