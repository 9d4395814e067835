"""The whole graph as the batch of every step (c = 1 in Algorithm 1)."""

from collections.abc import Generator

from torch import Tensor

from gistgnn.sampling.batch import Batch


class FullGraph:
    """Full-batch training: an epoch is one step.

    Args:
        batch: the graph, on the device where the models run (see `whole_graph`).
    """

    steps_per_epoch = 1

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield the same batch ``steps`` times."""
        for _ in range(steps):
            yield self.batch

    def select_columns(self, columns: Tensor) -> "FullGraph":
        """Return the same sampler with the input features ``columns`` alone."""
        return FullGraph(self.batch.select_columns(columns))

    def for_sub_gcn(self, i: int) -> "FullGraph":
        """Return this sampler: all sub-GCNs see the same graph."""
        return self
