"""The approximate output of any module, one part of the graph after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.graphs.clusters import Note, cluster
from gistgnn.inference.available import available_bytes
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.clusters import Renumbered


class ByParts:
    """Runs a module on the subgraph that each part induces; the edges between parts are left out.

    The paper evaluates models wider than 4096 like this, by 5000 parts. The parts are METIS clusters, and are kept as
    batches where they take less than a quarter of the memory that is available.

    Args:
        batch: the graph.
        parts: P; METIS may make fewer.
        seed: of METIS.
        note: see `cluster`.

    Raises:
        InputError: more parts than nodes, or METIS failed.
    """

    def __init__(self, batch: Batch, parts: int, seed: int, note: Note) -> None:
        nodes, features = batch.x.shape
        if parts > nodes:
            raise InputError(f"parts is {parts}, expected 1 to {nodes}, the nodes of the graph")
        self._nodes = nodes
        self._clusters = cluster(batch.edge_index, nodes, parts, "metis", seed, note)
        unlabelled = replace(batch, y=batch.x.new_empty(nodes, 0), product=None)
        unlabelled.__dict__["adj"] = batch.adj
        self._graph = Renumbered(unlabelled, self._clusters, precompute=False)
        size = 2 * nodes * features * batch.x.element_size() + 40 * batch.adj.num_edges  # with operators and products
        self._kept = list(self._batches()) if size < available_bytes(batch.x.device) // 4 else None

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it."""
        return {"method": "parts", "exact": False, "parts": len(self._clusters)}

    def logits(self, model: nn.Module) -> Tensor:
        """The output for every node of a module in evaluation mode: [N, C]."""
        order = self._clusters.order.to(self._graph.x.device)
        out = torch.empty(0)
        for index, part in enumerate(self._kept or self._batches()):
            found = forward(model, part)
            if index == 0:
                out = found.new_empty(self._nodes, found.shape[1])
            begin, end = self._clusters.ptr[index : index + 2].tolist()
            out[order[begin:end]] = found
        return out

    def _batches(self) -> Iterable[Batch]:
        return (self._graph.batch(np.array([part])) for part in range(len(self._clusters)))
