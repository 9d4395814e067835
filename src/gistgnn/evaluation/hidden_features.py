"""All nodes' features between two layers, where they are in one tensor, or in the files of a graph."""

from __future__ import annotations

from torch import Tensor

from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.io.column_blocks import column_blocks
from gistgnn.nn import SparseMatrix


class OneTensor:
    """Features in one tensor [N, d] on the model's device: the graph's features, or the model's output."""

    def __init__(self, values: Tensor | SparseMatrix) -> None:
        self.values = values
        self.blocks = [slice(0, values.shape[1])]

    def rows(self, nodes: slice) -> Tensor | SparseMatrix:
        """Return the features of some nodes: [n, d]."""
        return self.values[nodes] if isinstance(self.values, Tensor) else self.values.rows(nodes)

    def block(self, index: int) -> Tensor:
        """Return all columns of dense features."""
        assert isinstance(self.values, Tensor)
        return self.values

    def put(self, nodes: slice, values: Tensor) -> None:
        """Set the dense features of some nodes."""
        assert isinstance(self.values, Tensor)
        self.values[nodes] = values

    def close(self) -> None:
        """Do nothing: somebody else owns the tensor."""


class FromGraph:
    """The features of a graph folder, which are read from its file."""

    def __init__(self, values: StoredFeatures, columns: int) -> None:
        self.values = values
        self.blocks = column_blocks(values.shape[1], columns)

    def rows(self, nodes: slice) -> Tensor:
        """Return the features of some nodes: [n, F]."""
        return self.values.cut(nodes).load()

    def block(self, index: int) -> Tensor:
        """Return a block of the columns of all nodes: [N, f]. The whole file is read for it."""
        return self.values.cut(slice(0, len(self.values)), self.blocks[index]).load()

    def close(self) -> None:
        """Do nothing: the features are the graph's."""
