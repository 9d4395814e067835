"""The whole graph as the one batch of every step (c = 1 in Algorithm 1)."""

from collections.abc import Iterator

from torch import Tensor

from gistgnn.graphs import Graph
from gistgnn.sampling.batch import Batch


class FullGraph:
    """Full-batch training: one step an epoch.

    Args:
        graph: the graph, already on the device where the models run.
    """

    steps_per_epoch = 1

    def __init__(self, graph: Graph) -> None:
        self.batch = Batch(graph.x, graph.edge_index, graph.y, graph.train.nonzero().squeeze(1))

    def batches(self, first_step: int, steps: int) -> Iterator[Batch]:
        """Yield the batches of the steps first_step, first_step + 1, ..."""
        for _ in range(steps):
            yield self.batch

    def select_columns(self, columns: Tensor) -> "FullGraph":
        """Return the same sampler with the input features `columns` alone."""
        selected = FullGraph.__new__(FullGraph)
        selected.batch = self.batch.select_columns(columns)
        return selected
