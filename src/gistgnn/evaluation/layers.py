"""The exact output of a model of gistgnn.nn, layer by layer, within a budget of memory."""

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
from gistgnn.evaluation.hidden_features import Given, InFile, InMemory, Stored, column_blocks
from gistgnn.nn import GNN
from gistgnn.nn.gnn import Layer, as_gnn
from gistgnn.nn.propagate import Propagation
from gistgnn.sampling import Batch

Rows = Callable[[slice], Tensor]  # from some nodes to their rows of a matrix


class ByLayers:
    """Runs one layer for all nodes before the next one begins.

    What a layer does to every node by itself is done for a chunk of nodes at a time. The sums along the edges are
    taken for a chunk of nodes and a block of columns, of which all nodes' messages are in memory. The features of all
    nodes between the layers lie on the host, in memory or in temporary files.

    Args:
        batch: the graph.
        plan: what fits into the memory, for models of these sizes (see `plan_layers`).

    Attributes:
        nodes: None: all nodes have an output.

    Raises:
        InputError: the disk of temporary files has too little room.
    """

    def __init__(self, batch: Batch, plan: Plan) -> None:
        self._batch, self._plan = batch, plan
        self.nodes = None
        self._check_disk()

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it."""
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def logits(self, model: nn.Module) -> Tensor:
        """The output for every node of a model in evaluation mode: [N, C].

        Raises:
            InputError: a temporary file cannot be written.
        """
        gnn = cast(GNN, as_gnn(model))
        gnn.check_input(self._batch.x)
        self._check_disk()
        layers = [cast(Layer, layer) for layer in gnn.convs]
        finishes: list[Callable[[Tensor], Tensor]] = [partial(gnn.activate, norm) for norm in gnn.norms]
        finishes.append(nn.Identity())
        h: Given | Stored = Given(self._batch.features)
        with ExitStack() as stack:
            for layer, sizes, finish in zip(layers, self._plan.layers, finishes, strict=True):
                h = _Pass(self._batch, self._plan, layer, sizes, stack).run(h, finish)
        return cast(Tensor, cast(Given, h).values)

    def _check_disk(self) -> None:
        folder, needed = tempfile.gettempdir(), self._plan.disk
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"the hidden features take {needed / 2**30:.3g} GiB and {folder} has {free / 2**30:.3g} GiB left: "
                "point TMPDIR to a disk with more room, allow more memory, or evaluate by parts"
            )


class _Pass:
    """One layer for all nodes.

    Args:
        batch: the graph.
        plan: what lies where.
        layer: the layer.
        sizes: its.
        stack: closes what is left open.
    """

    def __init__(self, batch: Batch, plan: Plan, layer: Layer, sizes: LayerSizes, stack: ExitStack) -> None:
        self._x, self._adj = batch.x, batch.adj
        self._plan, self._layer, self._sizes, self._stack = plan, layer, sizes, stack

    def run(self, h: Given | Stored, finish: Callable[[Tensor], Tensor]) -> Given | Stored:
        """The output for the input ``h``, which is closed; ``finish`` is norm and activation."""
        reads_own, nothing = self._layer.reads_own, h.rows(slice(0, 0))
        received, spare = self._received(h)
        if not reads_own:
            h.close()
        out: Given | Stored
        if not self._sizes.hidden:
            out = Given(self._x.new_empty(len(self._x), self._sizes.output))
        elif spare is not None and len(spare.blocks) > 1 and spare.width == self._sizes.hidden:
            out = spare  # a node's row is read before it is written
        else:
            out = self._store(self._sizes.hidden)
        for nodes in self._chunks():
            own = h.rows(nodes) if reads_own else nothing
            out.put(nodes, finish(self._layer.update(own, received(nodes))))
        h.close()
        if spare is not None and spare is not out:
            spare.close()
        return out

    def _received(self, h: Given | Stored) -> tuple[Rows, Stored | None]:
        """What nodes receive, and the storage beside ``h`` that holds it or what it is made of."""
        if self._sizes.kept:
            product = self._adj.aggregate(cast(Propagation, self._layer).operator, self._x)
            return product.__getitem__, None
        z, scores = self._messages(h)
        if z is not h and not self._layer.reads_own:
            h.close()
        if len(z.blocks) == 1:
            received = partial(self._sums, z.block(0), scores, z.blocks[0])
            return received, None if z is h else cast(Stored, z)
        a = self._store(self._sizes.sent, z.blocks)
        for index, columns in enumerate(z.blocks):
            received = partial(self._sums, z.block(index), scores, columns)
            for nodes in self._chunks():
                a.write(index, nodes, received(nodes))
            del received  # and its block, before the next one is read
        if z is not h:
            z.close()
        return a.rows, a

    def _sums(self, block: Tensor, scores: Tensor, columns: slice, nodes: slice) -> Tensor:
        return self._layer.aggregate_block(block, scores, self._adj, nodes, columns)

    def _messages(self, h: Given | Stored) -> tuple[Given | Stored, Tensor]:
        """The messages of all nodes, ``h`` itself where it is sent as it is, and the scores: [edge_scores, N]."""
        sizes, layer = self._sizes, self._layer
        z = self._store(sizes.sent) if sizes.messages else h
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
        work, row = self._plan.work, self._sizes.row(self._x.element_size())
        if not self._sizes.entry:
            return row_chunks(self._adj.pattern.rowptr, max(work // row, 1), None)
        rows = max(work // 2 // row, 1)
        return row_chunks(self._adj.attention.rowptr, rows, work // 2 // self._sizes.entry)
