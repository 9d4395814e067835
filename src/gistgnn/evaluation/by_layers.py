"""The exact output of a model of `gistgnn.nn`, one layer after the other, within a memory budget."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import LayerSizes, Plan, row_chunks
from gistgnn.evaluation.hidden_features import InFile, InMemory, OneTensor, Stored, column_blocks
from gistgnn.nn import GNN
from gistgnn.nn.activation import activate
from gistgnn.nn.gnn import Layer, Propagation, as_gnn
from gistgnn.sampling import Batch
from gistgnn.utils.formats import size

Rows = Callable[[slice], Tensor]  # maps some nodes to their rows of a matrix


class ByLayers:
    """Runs one layer for all nodes, then the next.

    Messages and updates are computed for a chunk of nodes at a time. Aggregation runs over a chunk of nodes and a block
    of columns; all nodes' messages of this block are in memory. Between the layers, the features of all nodes are on
    the host, in memory or in temporary files. ``plan`` is for models of the same shapes (see `plan_layers`).

    Raises:
        InputError: the disk has too little space for the temporary files.
    """

    nodes = parts = None  # all nodes have an output, and the graph is in one piece

    def __init__(self, batch: Batch, plan: Plan) -> None:
        self._batch, self._plan = batch, plan
        self._check_disk()

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C].

        Raises:
            InputError: a temporary file cannot be written.
        """
        gnn = cast(GNN, as_gnn(model))
        gnn.check_input(self._batch.x)
        self._check_disk()
        layers = [cast(Layer, layer) for layer in gnn.convs]
        finishes: list[Callable[[Tensor], Tensor]] = [partial(activate, norm) for norm in gnn.norms]
        finishes.append(nn.Identity())
        h: OneTensor | Stored = OneTensor(self._batch.features)
        with ExitStack() as stack:
            for layer, sizes, finish in zip(layers, self._plan.layers, finishes, strict=True):
                h = _Pass(self._batch, self._plan, layer, sizes, stack).run(h, finish)
        return cast(Tensor, cast(OneTensor, h).values)

    def _check_disk(self) -> None:
        folder, needed = tempfile.gettempdir(), self._plan.disk
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"the hidden features take {size(needed)} and {folder} has {size(free)} free: point TMPDIR to a disk "
                "with more room, allow more memory, or evaluate by parts"
            )


class _Pass:
    """One layer for all nodes. ``stack`` closes the storage if an error occurs."""

    def __init__(self, batch: Batch, plan: Plan, layer: Layer, sizes: LayerSizes, stack: ExitStack) -> None:
        self._x, self._adj = batch.x, batch.adj
        self._plan, self._layer, self._sizes, self._stack = plan, layer, sizes, stack

    def run(self, h: OneTensor | Stored, finish: Callable[[Tensor], Tensor]) -> OneTensor | Stored:
        """Return the output for the input ``h``, which is closed. ``finish`` applies norm and activation."""
        reads_input, no_rows = self._layer.update_reads_input, h.rows(slice(0, 0))
        received, spare = self._received(h)
        if not reads_input:
            h.close()
        out: OneTensor | Stored
        if not self._sizes.hidden:
            out = OneTensor(self._x.new_empty(len(self._x), self._sizes.output))
        elif spare is not None and len(spare.blocks) > 1 and spare.width == self._sizes.hidden:
            out = spare  # every row is read before it is written
        else:
            out = self._store(self._sizes.hidden)
        for nodes in self._chunks():
            x = h.rows(nodes) if reads_input else no_rows
            out.put(nodes, finish(self._layer.update(x, received(nodes))))
        h.close()
        if spare is not None and spare is not out:
            spare.close()
        return out

    def _received(self, h: OneTensor | Stored) -> tuple[Rows, Stored | None]:
        """Return what nodes receive, and the storage, if not ``h``, that it is read from."""
        if self._sizes.cached:
            product = self._adj.aggregate(cast(Propagation, self._layer).operator, self._x)
            return product.__getitem__, None
        z, scores = self._messages(h)
        if z is not h and not self._layer.update_reads_input:
            h.close()
        if len(z.blocks) == 1:
            received = partial(self._sums, z.block(0), scores, z.blocks[0])
            return received, None if z is h else cast(Stored, z)
        a = self._store(self._sizes.sent, z.blocks)
        for index, columns in enumerate(z.blocks):
            received = partial(self._sums, z.block(index), scores, columns)
            for nodes in self._chunks():
                a.write(index, nodes, received(nodes))
            del received  # frees its block before the next one is read
        if z is not h:
            z.close()
        return a.rows, a

    def _sums(self, block: Tensor, scores: Tensor, columns: slice, nodes: slice) -> Tensor:
        return self._layer.aggregate_block(block, scores, self._adj, nodes, columns)

    def _messages(self, h: OneTensor | Stored) -> tuple[OneTensor | Stored, Tensor]:
        """Return the messages of all nodes (``h`` if the layer sends its input), and the scores: [edge_scores, N]."""
        sizes, layer = self._sizes, self._layer
        z = self._store(sizes.sent, sizes.blocks(self._plan.columns)) if sizes.messages else h
        scores = self._x.new_empty(sizes.scores, len(self._x))
        if z is h and not sizes.scores:
            return z, scores
        for nodes in self._chunks():
            sent = layer.message(h.rows(nodes), self._adj)
            scores[:, nodes] = layer.scores(sent)
            if z is not h:
                z.put(nodes, sent)
        return z, scores

    def _store(self, width: int, blocks: list[slice] | None = None) -> Stored:
        kind = InFile if self._plan.in_file else InMemory
        stored = kind(len(self._x), blocks or column_blocks(width, self._plan.columns), self._x)
        return self._stack.enter_context(closing(stored))

    def _chunks(self) -> Iterator[slice]:
        work, row, entry = self._plan.work, self._sizes.row(self._x.element_size()), self._sizes.entry
        if not entry:
            return row_chunks(self._adj.pattern.rowptr, max(work // row, 1), None)
        return row_chunks(self._adj.attention.rowptr, max(work // 2 // row, 1), work // 2 // entry)
