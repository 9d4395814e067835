"""The exact output of a model of `gistgnn.nn`, one layer after the other, within a memory budget."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import READ_ENTRY, LayerSizes, Plan
from gistgnn.evaluation.hidden_features import FromGraph, OneTensor
from gistgnn.evaluation.needed import Computed
from gistgnn.evaluation.predictions import Output
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.io.column_blocks import InFile, InMemory, Stored, column_blocks
from gistgnn.nn import GNN, SparseMatrix
from gistgnn.nn.activation import activate
from gistgnn.nn.gnn import Layer, Propagation, as_gnn
from gistgnn.nn.pattern import row_chunks
from gistgnn.nn.stored_adjacency import StoredAdjacency
from gistgnn.sampling import Batch
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import return_freed_memory

Rows = Callable[[slice], Tensor]  # maps some nodes to their rows of a matrix
_WINDOW = 2**14  # rows that are read at once, of which some are needed

Features = OneTensor | FromGraph | Stored


class ByLayers:
    """Runs one layer for all nodes, then the next.

    Messages and updates are computed for a chunk of nodes at a time. Aggregation runs over a chunk of nodes and a block
    of columns; all nodes' messages of this block are in memory. Between the layers, the features of all nodes are on
    the host, in memory or in temporary files.

    Args:
        batch: the whole graph.
        plan: for models of the same shapes (see `plan_layers`).
        computed: what each layer computes (see `computed_nodes`); None: all nodes.

    Attributes:
        nodes: mask [N] of the nodes that have an output; None: all.

    Raises:
        InputError: the disk has too little space for the temporary files.
    """

    parts = None  # the graph is in one piece

    def __init__(self, batch: Batch, plan: Plan, computed: list[Computed] | None = None) -> None:
        self._batch, self._plan = batch, plan
        self._check_disk()
        self._computed = computed or [Computed.everything(batch.adj)] * len(plan.layers)
        self.nodes: Tensor | None = None
        if (last := self._computed[-1].nodes) is not None:
            self.nodes = torch.zeros(len(batch.x), dtype=torch.bool)
            self.nodes[last] = True
            self.nodes = self.nodes.to(batch.x.device)

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C], NaN for nodes without an output.

        Raises:
            InputError: a temporary file cannot be written.
        """
        out = self._batch.x.new_full((len(self._batch.x), self._plan.layers[-1].output), torch.nan)
        for nodes, values in self.outputs(model):
            out[nodes] = values
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the same output for a chunk of nodes after another.

        Raises:
            InputError: likewise.
        """
        gnn = cast(GNN, as_gnn(model))
        gnn.check_input(self._batch.x)
        self._check_disk()
        return_freed_memory()
        layers = [cast(Layer, layer) for layer in gnn.convs]
        finishes: list[Callable[[Tensor], Tensor]] = [partial(activate, norm) for norm in gnn.norms]
        finishes.append(nn.Identity())
        h = self._input()
        with ExitStack() as stack:
            for layer, sizes, computed, finish in zip(layers, self._plan.layers, self._computed, finishes, strict=True):
                step = _Pass(self._batch, self._plan, layer, sizes, computed, stack)
                if layer is layers[-1]:
                    yield from step.outputs(h, finish)
                else:
                    h = step.run(h, finish)

    def _input(self) -> Features:
        features = self._batch.features
        if isinstance(features, StoredFeatures):
            return FromGraph(features, self._plan.columns)
        return OneTensor(features)

    def _check_disk(self) -> None:
        folder, needed = tempfile.gettempdir(), self._plan.disk
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"the hidden features take {size(needed)} and {folder} has {size(free)} free: point TMPDIR to a disk "
                "with more room, allow more memory, or evaluate by parts"
            )


class _Pass:
    """One layer for the nodes that it computes. ``stack`` closes the storage if an error occurs."""

    def __init__(
        self, batch: Batch, plan: Plan, layer: Layer, sizes: LayerSizes, computed: Computed, stack: ExitStack
    ) -> None:
        self._x, self._adj, self._computed = batch.x, batch.adj, computed
        self._plan, self._layer, self._sizes, self._stack = plan, layer, sizes, stack

    def run(self, h: Features, finish: Callable[[Tensor], Tensor]) -> Stored:
        """Return the output for the input ``h``, which is closed. ``finish`` applies norm and activation."""
        received, spare = self._prepared(h)
        if spare is not None and len(spare.blocks) > 1 and spare.width == self._sizes.hidden:
            out = spare  # every row is read before it is written
        else:
            out = self._store(self._sizes.hidden, len(self._computed))
        for nodes, values in self._updated(h, received, finish):
            out.put(nodes, values)
        h.close()
        if spare is not None and spare is not out:
            spare.close()
        return out

    def outputs(self, h: Features, finish: Callable[[Tensor], Tensor]) -> Iterator[Output]:
        """Yield the output of the last layer for a chunk of nodes after another."""
        received, spare = self._prepared(h)
        every = self._computed.nodes
        for nodes, values in self._updated(h, received, finish):
            yield nodes if every is None else every[nodes], values
        h.close()
        if spare is not None:
            spare.close()

    def _prepared(self, h: Features) -> tuple[Rows, Stored | None]:
        self._no_rows = h.rows(slice(0, 0))
        received, spare = self._received(h)
        if not self._layer.update_reads_input:
            h.close()
        return received, spare

    def _updated(
        self, h: Features, received: Rows, finish: Callable[[Tensor], Tensor]
    ) -> Iterator[tuple[slice, Tensor]]:
        for nodes in self._chunks():
            x = self._own(h, nodes) if self._layer.update_reads_input else self._no_rows
            yield nodes, finish(self._layer.update(x, received(nodes)))

    def _own(self, h: Features, nodes: slice) -> Tensor | SparseMatrix:
        """Return the rows of the layer's input that are those of some of its nodes."""
        own = self._computed.own
        return h.rows(nodes) if own is None else _rows_at(h, own[nodes])

    def _received(self, h: Features) -> tuple[Rows, Stored | None]:
        """Return what nodes receive, and the storage, if not ``h``, that it is read from."""
        if self._sizes.cached:
            product = self._adj.aggregate(cast(Propagation, self._layer).operator, self._x)
            if isinstance(product, StoredFeatures):
                return cast(Rows, partial(self._own, FromGraph(product, self._plan.columns))), None
            return product.__getitem__, None
        z, scores = self._messages(h)
        if z is not h and not self._layer.update_reads_input:
            h.close()
        if len(z.blocks) == 1:
            received = partial(self._sums, z.block(0), scores, z.blocks[0])
            return received, None if z is h else cast(Stored, z)
        a = self._store(self._sizes.sent, len(self._computed), z.blocks)
        for index, columns in enumerate(z.blocks):
            received = partial(self._sums, z.block(index), scores, columns)
            for nodes in self._chunks():
                a.write(index, nodes, received(nodes))
            del received  # frees its block before the next one is read
        if z is not h:
            z.close()
        return a.rows, a

    def _sums(self, block: Tensor, scores: Tensor, columns: slice, nodes: slice) -> Tensor:
        return self._layer.aggregate_block(block, scores, self._computed.adj, nodes, columns)

    def _messages(self, h: Features) -> tuple[Features, Tensor]:
        """Return the messages of all nodes (``h`` if the layer sends its input), and the scores: [edge_scores, N]."""
        sizes, layer, inputs = self._sizes, self._layer, self._computed.inputs
        z = self._store(sizes.sent, inputs, sizes.blocks(self._columns(inputs))) if sizes.messages else h
        scores = self._x.new_empty(sizes.scores, inputs)
        if z is h and not sizes.scores:
            return z, scores
        for nodes in self._input_chunks():
            sent = layer.message(h.rows(nodes), self._adj)
            scores[:, nodes] = layer.scores(sent)
            if isinstance(z, Stored) and z is not h:
                z.put(nodes, sent)
        return z, scores

    def _store(self, width: int, nodes: int, blocks: list[slice] | None = None) -> Stored:
        kind = InFile if self._plan.in_file else InMemory
        stored = kind(nodes, blocks or column_blocks(width, self._columns(nodes)), self._x)
        return self._stack.enter_context(closing(stored))

    def _columns(self, nodes: int) -> int:
        """Return how many columns of so many nodes may be in memory."""
        return self._plan.columns * len(self._x) // max(nodes, 1)

    def _chunks(self) -> Iterator[slice]:
        work, row, entry = self._plan.work, self._sizes.row(self._x.element_size()), self._sizes.entry
        if entry:
            return row_chunks(self._adj.attention.rowptr, max(work // 2 // row, 1), work // 2 // entry)
        read = work // 2 // READ_ENTRY if isinstance(self._adj, StoredAdjacency) else None
        return row_chunks(self._computed.rowptr, max(work // (2 if read else 1) // row, 1), read)

    def _input_chunks(self) -> Iterator[slice]:
        if self._computed.own is None:
            return self._chunks()
        rows = max(self._plan.work // self._sizes.row(self._x.element_size()), 1)
        starts = range(0, self._computed.inputs, rows)
        return (slice(start, min(start + rows, self._computed.inputs)) for start in starts)


def _rows_at(h: Features, places: Tensor) -> Tensor:
    """Return the rows of some places, ascending, of features that are not sparse; read in a few large pieces."""
    pieces, start = [], 0
    while start < len(places):
        first = int(places[start])
        stop = int(torch.searchsorted(places, first + _WINDOW))
        block = h.rows(slice(first, int(places[stop - 1]) + 1))
        assert isinstance(block, Tensor)
        pieces.append(block.index_select(0, places[start:stop] - first))
        start = stop
    return torch.cat(pieces) if pieces else cast(Tensor, h.rows(slice(0, 0)))
