"""The runner "auto": the one that suits the device."""

from gistgnn.round import Round
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import BatchByBatch
from gistgnn.runners.registry import Numbers
from gistgnn.sampling import Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training


class Auto:
    """Trains batch by batch on a CPU, and fused on a GPU, where the sub-GCNs can be fused.

    On a CPU this gives the bits of the runner "in-turn". On a GPU starting the kernels of narrow
    sub-GCNs takes longer than their arithmetic, so one pass for all of them is several times as
    fast.
    """

    def __init__(self) -> None:
        self._batch_by_batch = BatchByBatch()
        self._fused = Fused(otherwise=self._batch_by_batch)

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        """Train the sub-GCNs of a round; see `Runner`."""
        fuses = round_.device.type == "cuda" and not round_.streams
        runner = self._fused if fuses else self._batch_by_batch
        return runner(round_, sampler, training, steps, seed)
