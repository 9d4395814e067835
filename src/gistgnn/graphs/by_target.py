"""`GraphByTarget`: a graph whose edges are held by target, so that they can stay in a file."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.graphs.csr import CSR
from gistgnn.graphs.graph import Graph
from gistgnn.utils.checksums import checksum


class GraphByTarget(Graph):
    """A graph whose edges are held by target. ``edge_index`` is built when something asks for it, and then kept.

    Training on the whole graph and by clusters do not ask for it, unless the model takes an ``edge_index``.

    Args:
        x: as for `Graph`; likewise the others.
        edge_index: the edges, as a `CSR`; a tensor [2, E] is converted.
    """

    _held: CSR

    def __init__(self, x: Tensor, edge_index: CSR | Tensor, *args: Any, **kwargs: Any) -> None:
        held = edge_index if isinstance(edge_index, CSR) else CSR.of(edge_index, x.shape[0])
        super().__init__(x, torch.empty(0), *args, **kwargs)
        del self.__dict__["edge_index"]  # from now on the property below
        self.__dict__["_held"] = held

    @cached_property
    def edge_index(self) -> Tensor:
        """[2, E] int64, sorted by (target, source)."""
        return self._held.edge_index()

    @property
    def edges(self) -> CSR:
        """The edges as they are held."""
        return self._held

    @property
    def held_bytes(self) -> int:
        """Bytes of all tensors."""
        if self.cluster_ptr is not None and self.folder is not None:
            return sum(mask.nbytes for mask in (self.train, self.val, self.test))
        held = (self.x, self.y, self.train, self.val, self.test, self._held.rowptr, self._held.col)
        return sum(tensor.nbytes for tensor in (*held, *self.edge_data.values()))

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges."""
        return self._held.num_edges

    def checksum(self) -> int:
        """Return the checksum of the same graph in memory; it is computed once."""
        if "_checksum" not in self.__dict__:
            found = self._held.checksum()
            for tensor in (self.y, self.train, self.val, self.test, *self.edge_data.values()):
                found = checksum(tensor, found)
            self.__dict__["_checksum"] = found
        return int(self.__dict__["_checksum"])

    def with_features(self, x: Tensor) -> GraphByTarget:
        """Return the graph with other features: [N, F]."""
        return self._like({"x": x}, self._held)

    def to(self, device: torch.device | str) -> GraphByTarget:
        """Return the graph with every tensor on ``device``. Tensors that are already there are not copied."""
        names = ("y", "train", "val", "test") if self.folder else ("x", "y", "train", "val", "test", *self.edge_data)
        held = self._held if self.folder else self._held.to(device)
        return self._like({name: getattr(self, name).to(device) for name in names}, held)

    def _like(self, changes: dict[str, Any], held: CSR) -> GraphByTarget:
        return GraphByTarget(edge_index=held, **self._values() | changes)

    def _values(self) -> dict[str, Any]:
        names = (name for name in Graph.__dataclass_fields__ if name != "edge_index")
        return {name: getattr(self, name) for name in names}
