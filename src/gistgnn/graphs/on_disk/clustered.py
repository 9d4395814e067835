"""`ClusteredGraph`: a graph in a folder whose nodes are in the order of their clusters. It trains from the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.by_target import GraphByTarget
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.graphs.on_disk.manifest import ADVICE
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.graphs.on_disk.values import cluster_problem


@dataclass(frozen=True, eq=False)
class Files:
    """What of a folder is read while a run goes on.

    Attributes:
        folder: where they lie.
        cluster_ptr: [c + 1] int64; cluster k is the nodes from ``cluster_ptr[k]`` to ``cluster_ptr[k + 1] - 1``.
        node: [N] int64, the numbers that the nodes had in the graph that was cut.
        col: [E], see `CSR`.
        identity: a digest of the checksums of features and edges.
    """

    folder: Path
    cluster_ptr: Tensor
    node: ArrayFile
    col: ArrayFile
    identity: str


class ClusteredGraph(GraphByTarget):
    """A graph whose clusters are contiguous ranges of nodes, in a folder that `gistgnn partition --out` has made.

    Training by these clusters and evaluation by layers read parts of the files. Everything else maps them, or reads
    them whole where they fit in memory.

    Attributes:
        files: of the folder.
        x: [N, F] `StoredFeatures`.
    """

    files: Files

    def __init__(self, x: Tensor, edge_index: CSR | Tensor, *args: Any, files: Files, **kwargs: Any) -> None:
        super().__init__(x, edge_index, *args, **kwargs)
        self.__dict__["files"] = files

    @property
    def num_clusters(self) -> int:
        """The number of clusters that the nodes are in the order of."""
        return len(self.files.cluster_ptr) - 1

    def numbers(self) -> Tensor:
        """Return the numbers that the nodes had in the graph that was cut, mapped: [N].

        Raises:
            InputError: they are damaged: some node's number is another one's, or none.
        """
        if problem := cluster_problem(self.files.cluster_ptr.numpy(), self.files.node.array):
            path = self.files.folder / f"{problem[0]}.npy"
            raise InputError(f"{path} is damaged: it {problem[1]}; {ADVICE}")
        return self.files.node.mapped()

    @property
    def held_bytes(self) -> int:
        """Bytes of the graph that are in memory whatever happens: the masks of the splits."""
        return sum(mask.nbytes for mask in (self.train, self.val, self.test))

    def with_features(self, x: Tensor) -> GraphByTarget:
        """Return the graph with other features: [N, F]. Where these are not in its file, it trains in memory."""
        return super().with_features(x) if isinstance(x, StoredFeatures) else self._in_memory({"x": x})

    def to(self, device: torch.device | str) -> ClusteredGraph:
        """Return the graph with labels and masks on ``device``. Its edges stay where they are."""
        moved = {name: getattr(self, name).to(device) for name in ("x", "y", "train", "val", "test")}
        return self._like(moved, self._held)

    def _like(self, changes: dict[str, Any], held: CSR) -> ClusteredGraph:
        return ClusteredGraph(edge_index=held, files=self.files, **self._values() | changes)

    def _in_memory(self, changes: dict[str, Any]) -> GraphByTarget:
        return GraphByTarget(edge_index=self._held, **self._values() | changes)
