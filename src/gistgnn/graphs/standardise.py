"""Standardisation: features are scaled by the mean and standard deviation of the training nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.cache import derived
from gistgnn.graphs.checks import dense
from gistgnn.graphs.features import SPARSE_BELOW, nonzero_share, sample_of
from gistgnn.graphs.graph import Graph
from gistgnn.utils.tensors import digest_of, tensor_digest

# The names of a model's buffers with which it scales its features.
MEAN = "feature_mean"
STD = "feature_std"
_ROWS = 2**16  # nodes that are read at once


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Scales every feature to mean 0 and standard deviation 1 over the training nodes."""

    mean: Tensor  # [F]
    std: Tensor  # [F]; 1 if all training nodes have the same value, to float32's accuracy

    @classmethod
    def of(cls, graph: Graph) -> "Standardisation":
        """Compute mean and standard deviation of a graph's features over its training nodes."""
        return cls.over(dense(graph.x), graph.train.nonzero().squeeze(1))

    @classmethod
    def over(cls, x: Tensor, nodes: Tensor) -> "Standardisation":
        """Compute mean and standard deviation of the features [N, F] of nodes, by number.

        Some nodes are read at a time.
        """
        blocks = nodes.split(_ROWS)
        count = len(nodes)
        total = torch.zeros(x.shape[1], dtype=torch.double, device=x.device)
        for block in blocks:
            total += x[block].sum(dim=0, dtype=torch.double)  # exact where all values are the same
        mean = total / count
        squares = torch.zeros_like(total)
        for block in blocks:
            squares += (x[block] - mean).square_().sum(dim=0)
        std = (squares / count).sqrt()
        return cls(mean.float(), torch.where(std <= 1e-7 * mean.abs(), 1.0, std).float())

    @classmethod
    def choose(
        cls, wanted: bool | None, graph: Graph, init: Mapping[str, Tensor] | None = None
    ) -> "Standardisation | None":
        """Return how a run scales the features, or None if it does not.

        Args:
            wanted: what the user says. If it is None, `init` decides if it is given, otherwise the
                features.
            graph: of the run.
            init: the tensors of the model with which the run begins.
        """
        if wanted is None and init is not None:
            return cls(init[MEAN], init[STD]) if MEAN in init else None
        is_scaled = cls.suits(graph.x) if wanted is None else wanted
        return cls.of(graph) if is_scaled else None

    @staticmethod
    def suits(x: Tensor) -> bool:
        """Whether features, [N, F], should be scaled: all but words.

        Words are few in each row, and never negative. A sparse matrix stays as it is: scaled, it
        would be dense.
        """
        if x.layout is not torch.strided:
            return False
        return nonzero_share(x) >= SPARSE_BELOW or float(sample_of(x).min()) < 0

    def features(self, x: Tensor) -> Tensor:
        """Return scaled features: [N, F]; another number of features is an `InputError`."""
        if x.shape[1] != len(self.mean):
            raise InputError(
                f"x has {x.shape[1]} features; the model was trained on {len(self.mean)}"
            )
        return ((x - self.mean.to(x.device)) / self.std.to(x.device)).contiguous()

    def graph(self, graph: Graph) -> Graph:
        """Return the graph with scaled features.

        Of a graph in a folder, a file in the folder keeps them.
        """
        if graph.folder is None or graph.x.device.type != "cpu":
            return replace(graph, x=self.features(dense(graph.x)))

        def fill(array: npt.NDArray[np.float32]) -> None:
            for start in range(0, len(array), _ROWS):
                rows = slice(start, start + _ROWS)
                array[rows] = self.features(graph.x[rows]).numpy()

        facts = [tensor_digest(graph.x), self.digest()]
        shape = graph.num_nodes, graph.num_features
        return replace(graph, x=derived(graph.folder, "x-standardised", facts, shape, fill))

    def digest(self) -> str:
        """Return a digest of the means and deviations."""
        return digest_of([tensor_digest(self.mean), tensor_digest(self.std)])
