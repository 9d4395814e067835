"""The exact output of a model of `gistgnn.nn`, one layer after the other, within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from gistgnn.evaluation.budget import ENTRY, READ_ENTRY, LayerSizes, Plan
from gistgnn.evaluation.inference import Inference, Output
from gistgnn.evaluation.required_nodes import RequiredNodes
from gistgnn.graphs.csr import row_chunks
from gistgnn.nn import GNN, Adjacency, SparseMatrix
from gistgnn.nn.functional import activate
from gistgnn.nn.gnn import Layer, Propagation, as_gnn
from gistgnn.sampling import Batch
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.utils.process_memory import return_freed_memory
from gistgnn.utils.transfer import column_blocks, copied, row_pieces

Rows = Callable[[slice], Tensor]  # maps some nodes to their rows of a matrix


class NodeFeatures:
    """The features of all nodes, in one matrix [N, f] per block of columns; a single one may be sparse.

    They are in memory, or mapped from a temporary file. They are read on ``device`` and as ``dtype``.
    """

    def __init__(self, parts: list[Tensor] | list[SparseMatrix], device: torch.device, dtype: torch.dtype) -> None:
        self._parts, self._device, self._dtype = parts, device, dtype
        cuts = accumulate((part.shape[1] for part in parts), initial=0)
        self.blocks = [slice(start, stop) for start, stop in pairwise(cuts)]
        self.width = self.blocks[-1].stop

    @classmethod
    def empty(
        cls, nodes: int, blocks: list[slice], device: torch.device, dtype: torch.dtype, *, in_file: bool
    ) -> NodeFeatures:
        """Return features on the host that are still to be set; `blocks` cut their columns."""
        size = torch.Size([nodes * blocks[-1].stop])
        in_file = in_file and bool(size.numel())
        whole = temporary_tensors({"x": (size, dtype)})["x"] if in_file else torch.empty(size, dtype=dtype)
        cuts = ((nodes * block.start, nodes * block.stop) for block in blocks)
        return cls([whole[start:stop].view(nodes, -1) for start, stop in cuts], device, dtype)

    def rows(self, nodes: slice | Tensor) -> Tensor | SparseMatrix:
        """Return the features of some nodes: [n, d]."""
        first = self._parts[0]
        if isinstance(first, SparseMatrix):
            return first.rows(nodes)
        where = nodes.to(first.device) if isinstance(nodes, Tensor) else nodes
        rows = [part[where] for part in self._parts if isinstance(part, Tensor)]
        return (rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)).to(self._device, self._dtype)

    def block(self, index: int) -> Tensor:
        """Return a block of columns of all nodes: [N, f]; not copied where it is as it is wanted."""
        part = cast(Tensor, self._parts[index])
        if (part.device, part.dtype) == (self._device, self._dtype) and part.is_contiguous():
            return part
        return copied(part, self._device, self._dtype)

    def put(self, nodes: slice, values: Tensor) -> None:
        """Set the features of some nodes: [n, d]."""
        for index, columns in enumerate(self.blocks):
            self.put_block(index, nodes, values[:, columns])

    def put_block(self, index: int, nodes: slice, values: Tensor) -> None:
        """Set a block of columns of some nodes: [n, f]."""
        cast(Tensor, self._parts[index])[nodes] = values

    def close(self) -> None:
        """Free the memory, or the file."""
        self._parts = []


class ByLayers(Inference):
    """Runs one layer for all nodes, then the next.

    Messages and updates are computed for a chunk of nodes at a time. Aggregation runs over a chunk of nodes and a block
    of columns; all nodes' messages of this block are in memory. Between the layers, the features of all nodes are on
    the host, in memory or in temporary files.

    ``plan`` is for models of the same shapes, ``required`` has the nodes that each layer computes.
    """

    def __init__(self, batch: Batch, plan: Plan, required: list[RequiredNodes]) -> None:
        super().__init__(len(batch.x))
        self._batch, self._plan, self._required = batch, plan, required
        if (last := required[-1].nodes) is not None:
            nodes = torch.zeros(len(batch.x), dtype=torch.bool)
            nodes[last] = True
            self.nodes = nodes.to(batch.device)

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the output for a chunk of nodes after another."""
        gnn = cast(GNN, as_gnn(model))
        gnn.check_input(self._batch.x)
        return_freed_memory()
        h = self._input()
        passes = [
            _LayerPass(self._batch, self._plan, cast(Layer, layer), sizes, required)
            for layer, sizes, required in zip(gnn.convs, self._plan.layers, self._required, strict=True)
        ]
        for hidden, norm in zip(passes, gnn.norms, strict=False):
            h = hidden.run(h, norm)
        yield from passes[-1].outputs(h)

    def _input(self) -> NodeFeatures:
        batch, features = self._batch, self._batch.features
        if isinstance(features, SparseMatrix):
            return NodeFeatures([features], batch.device, batch.dtype)
        blocks = column_blocks(features.shape[1], self._plan.columns if batch.is_stored else features.shape[1])
        return NodeFeatures([features[:, columns] for columns in blocks], batch.device, batch.dtype)


class _LayerPass:
    """One layer for the nodes that it computes."""

    def __init__(self, batch: Batch, plan: Plan, layer: Layer, sizes: LayerSizes, required: RequiredNodes) -> None:
        self._batch, self._adj, self._required = batch, batch.adj, required
        self._plan, self._layer, self._sizes = plan, layer, sizes
        self._row = sizes.row(batch.dtype.itemsize)

    def run(self, h: NodeFeatures, norm: nn.Module) -> NodeFeatures:
        """Return the activated output of a hidden layer for the input ``h``, which is closed."""
        no_rows = h.rows(slice(0, 0))
        received, spare = self._received(h)
        if spare is not None and len(spare.blocks) > 1 and spare.width == self._sizes.hidden:
            out = spare  # every row is read before it is written
        else:
            out = self._store(self._sizes.hidden, len(self._required))
        for nodes, values in self._updated(h, no_rows, received):
            out.put(nodes, activate(norm, values))
        h.close()
        if spare is not None and spare is not out:
            spare.close()
        return out

    def outputs(self, h: NodeFeatures) -> Iterator[Output]:
        """Yield the output of the last layer for a chunk of nodes after another; ``h`` is closed."""
        no_rows = h.rows(slice(0, 0))
        received, spare = self._received(h)
        every = self._required.nodes
        for nodes, values in self._updated(h, no_rows, received):
            yield nodes if every is None else every[nodes], values
        for used in (h, spare) if spare is not None else (h,):
            used.close()

    def _updated(
        self, h: NodeFeatures, no_rows: Tensor | SparseMatrix, received: Rows
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the layer's output for a chunk of nodes after another, in ascending order."""
        for nodes in self._chunks():
            x = self._own(h, nodes) if self._layer.update_reads_input else no_rows
            yield nodes, self._layer.update(x, received(nodes))

    def _own(self, h: NodeFeatures, nodes: slice) -> Tensor | SparseMatrix:
        """Return the rows of ``h`` that belong to some of the layer's nodes."""
        own = self._required.own
        return h.rows(nodes if own is None else own[nodes])

    def _received(self, h: NodeFeatures) -> tuple[Rows, NodeFeatures | None]:
        """Return what nodes receive, and the storage, if not ``h``, that it is read from.

        ``h`` is closed if nothing reads it afterwards.
        """
        if self._sizes.cached:
            batch, operator = self._batch, cast(Propagation, self._layer).operator
            product = self._adj.aggregate(operator, batch.x)
            return cast(Rows, partial(self._own, NodeFeatures([product], batch.device, batch.dtype))), None
        z, scores = self._messages(h)
        if z is not h and not self._layer.update_reads_input:
            h.close()
        found: tuple[Rows, NodeFeatures | None]
        if len(z.blocks) == 1:
            found = partial(self._sums, z.block(0), scores, z.blocks[0]), None if z is h else z
        else:
            a = self._store(self._sizes.sent, len(self._required), z.blocks)
            for index, columns in enumerate(z.blocks):
                received = partial(self._sums, z.block(index), scores, columns)
                for nodes in self._chunks():
                    a.put_block(index, nodes, received(nodes))
                del received  # frees its block before the next one is read
            if z is not h:
                z.close()
            found = cast(Rows, a.rows), a
        if not self._layer.update_reads_input:
            h.close()
        return found

    def _sums(self, block: Tensor, scores: Tensor, columns: slice, nodes: slice) -> Tensor:
        structure = self._adj if self._required.nodes is None else cast(Adjacency, self._required)
        return self._layer.aggregate_block(block, scores, structure, nodes, columns)

    def _messages(self, h: NodeFeatures) -> tuple[NodeFeatures, Tensor]:
        """Return the messages of all nodes (``h`` if the layer sends its input), and the scores: [edge_scores, N]."""
        sizes, layer, inputs = self._sizes, self._layer, self._required.inputs
        z = self._store(sizes.sent, inputs, sizes.blocks(self._columns(inputs))) if sizes.messages else h
        scores = torch.empty(sizes.scores, inputs, dtype=self._batch.dtype, device=self._batch.device)
        if z is h and not sizes.scores:
            return z, scores
        for nodes in self._input_chunks():
            sent = layer.message(h.rows(nodes), self._adj)
            scores[:, nodes] = layer.scores(sent)
            if z is not h:
                z.put(nodes, sent)
        return z, scores

    def _store(self, width: int, nodes: int, blocks: list[slice] | None = None) -> NodeFeatures:
        blocks = blocks or column_blocks(width, self._columns(nodes))
        return NodeFeatures.empty(nodes, blocks, self._batch.device, self._batch.dtype, in_file=self._plan.in_file)

    def _columns(self, nodes: int) -> int:
        """Return how many columns of ``nodes`` nodes may be in memory."""
        return self._plan.columns * len(self._batch.x) // max(nodes, 1)

    def _chunks(self) -> Iterator[slice]:
        work, row = self._plan.work, self._row
        if self._sizes.heads:
            return row_chunks(self._adj.attention_rowptr, max(work // 2 // row, 1), work // 2 // ENTRY)
        read = work // 2 // READ_ENTRY if self._adj.by_rows else None
        return row_chunks(self._required.rowptr, max(work // (2 if read else 1) // row, 1), read)

    def _input_chunks(self) -> Iterator[slice]:
        if self._required.own is None:
            return self._chunks()
        return row_pieces(self._required.inputs, self._row, self._plan.work)
