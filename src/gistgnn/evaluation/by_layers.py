"""The exact output of a model of `gistgnn.nn`, one layer after the other, within a memory budget."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import ENTRY, READ_ENTRY, LayerPlan, LayerSizes
from gistgnn.evaluation.inference import Inference, Output
from gistgnn.graphs.csr import CSR, check_sources, row_chunks
from gistgnn.nn import GNN, Adjacency, SparseMatrix
from gistgnn.nn.adjacency import ENTRIES, Operator
from gistgnn.nn.functional import activate
from gistgnn.nn.gnn import Layer, Propagation, as_gnn, is_ours
from gistgnn.nn.scaling import scaled, scales_input
from gistgnn.sampling import Batch
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.utils.process_memory import return_freed_memory
from gistgnn.utils.tensors import column_blocks, copied, row_pieces

Rows = Callable[[slice], Tensor]  # maps some nodes to their rows of a matrix

MOST = 0.75  # share of the nodes; above it all are computed, which reads the disk in order


@dataclass(frozen=True, eq=False)
class RequiredNodes:
    """The nodes that a layer computes: few, where few nodes of a graph in a folder of clusters are scored."""

    adj: Adjacency
    nodes: Tensor | None  # [n], in ascending order; None: all
    place: Tensor | None  # [N] int32, the place of a node among the nodes of the layer's input; None: its number
    inputs: int  # how many nodes the input has

    @cached_property
    def rowptr(self) -> Tensor:
        """Where the edges into each of these nodes begin: [n + 1]."""
        return self.adj.pattern.rowptr if self.nodes is None else _rowptr(self.adj, self.nodes)

    @cached_property
    def own(self) -> Tensor | None:
        """The places of these nodes in the layer's input: [n]; None: they are the same nodes."""
        if self.nodes is None or self.place is None:
            return self.nodes
        return self.place[self.nodes].long()

    def __len__(self) -> int:
        return self.adj.num_nodes if self.nodes is None else len(self.nodes)

    def rows(self, operator: Operator, rows: slice) -> SparseMatrix:
        """Return an operator's rows of some of these nodes: [k, inputs]."""
        matrix = self.adj.rows(operator, rows if self.nodes is None else self.nodes[rows])
        return SparseMatrix.from_pattern(self._placed(matrix.pattern), matrix.value)

    def edges(self, rows: slice) -> tuple[CSR, slice | Tensor]:
        """Return the edges into some of these nodes: [k, inputs]; and the index of the edges in the graph."""
        pattern, entries = self.adj.pattern.rows(rows if self.nodes is None else self.nodes[rows])
        check_sources(pattern.col, self.adj.num_nodes)
        return self._placed(pattern), entries

    def _placed(self, pattern: CSR) -> CSR:
        if self.place is None:
            return pattern
        col = self.place.index_select(0, pattern.col).to(pattern.col.dtype)
        return CSR(pattern.rowptr, col, (pattern.shape[0], self.inputs))


def required_nodes(layers: Iterable[Any], adj: Adjacency, wanted: Tensor | None) -> list[RequiredNodes]:
    """Return the nodes that each layer computes; ``wanted``: mask [N] of those whose output is wanted; None: all."""
    layers = list(layers)
    required = [RequiredNodes(adj, None, None, adj.num_nodes)] * len(layers)
    whole = any(isinstance(layer, Layer) and not isinstance(layer, Propagation) for layer in layers)
    if wanted is None or not adj.by_rows or whole:
        return required
    chosen = wanted.cpu().clone()  # the nodes that the layer above needs; then also the sources of their edges
    for index in reversed(range(len(required))):
        if int(chosen.sum()) > MOST * adj.num_nodes:
            break
        nodes = chosen.nonzero().squeeze(1)
        for rows in row_chunks(_rowptr(adj, nodes), len(nodes), ENTRIES):
            edges, _ = adj.pattern.rows(nodes[rows])
            check_sources(edges.col, adj.num_nodes)
            chosen[edges.col.long()] = True
        place, inputs = None, adj.num_nodes
        if index and int(chosen.sum()) <= MOST * inputs:
            place, inputs = (chosen.cumsum(0) - 1).int(), int(chosen.sum())
        required[index] = RequiredNodes(adj, nodes, place, inputs)
    return required


def _rowptr(adj: Adjacency, nodes: Tensor) -> Tensor:
    degrees = adj.pattern.rowptr[nodes + 1] - adj.pattern.rowptr[nodes]
    return torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])


class NodeFeatures:
    """The features of all nodes, in memory or a file: a matrix [N, f] per block of columns; one may be sparse."""

    def __init__(
        self,
        parts: list[Tensor] | list[SparseMatrix],
        device: torch.device,
        dtype: torch.dtype,
        scale: Callable[[Tensor, slice], Tensor] = lambda x, columns: x,
    ) -> None:
        self.parts, self._device, self._dtype, self.scale = parts, device, dtype, scale
        cuts = accumulate((part.shape[1] for part in parts), initial=0)
        self.blocks = [slice(start, stop) for start, stop in pairwise(cuts)]
        self.width = self.blocks[-1].stop

    @classmethod
    def empty(
        cls, batch: Batch, plan: LayerPlan, width: int, nodes: int, blocks: list[slice] | None = None
    ) -> "NodeFeatures":
        """Return features on the host that are still to be set; `blocks` cut their columns, or else the plan does."""
        blocks = blocks or column_blocks(width, plan.columns * len(batch.x) // max(nodes, 1))
        size, dtype = torch.Size([nodes * width]), batch.dtype
        in_file = plan.in_file and bool(size.numel())
        whole = temporary_tensors({"x": (size, dtype)})["x"] if in_file else torch.empty(size, dtype=dtype)
        cuts = ((nodes * block.start, nodes * block.stop) for block in blocks)
        return cls([whole[start:stop].view(nodes, -1) for start, stop in cuts], batch.device, dtype)

    def rows(self, nodes: slice | Tensor) -> Tensor | SparseMatrix:
        first = self.parts[0]
        if isinstance(first, SparseMatrix):
            return first.rows(nodes)
        where = nodes.to(first.device) if isinstance(nodes, Tensor) else nodes
        rows = [part[where] for part in cast(list[Tensor], self.parts)]
        x = (rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)).to(self._device, self._dtype)
        return self.scale(x, slice(None))

    def block(self, index: int) -> Tensor:
        """Return a block of columns of all nodes: [N, f]; not copied where it is as it is wanted."""
        part = cast(Tensor, self.parts[index])
        there = (part.device, part.dtype) == (self._device, self._dtype) and part.is_contiguous()
        return self.scale(part if there else copied(part, self._device, self._dtype), self.blocks[index])

    def put(self, nodes: slice, values: Tensor) -> None:
        for part, columns in zip(cast(list[Tensor], self.parts), self.blocks, strict=True):
            part[nodes] = values[:, columns]

    def close(self) -> None:
        self.parts = []


Pass = Callable[[RequiredNodes, NodeFeatures], Iterator[tuple[slice, Tensor]]]
"""Runs a layer: from the nodes that it computes and its input, to its output for a piece of them after another."""


# Messages and updates are computed for a chunk of nodes at a time, sums for a chunk and a block of columns, of which
# all messages are in memory. `required` has the nodes that each layer computes.
class ByLayers(Inference):
    """Runs one layer for all nodes, then the next; between them, features are on the host, in memory or in files."""

    def __init__(self, batch: Batch, plan: LayerPlan, required: list[RequiredNodes]) -> None:
        super().__init__(len(batch.x))
        self._batch, self._plan, self._required = batch, plan, required
        if (last := required[-1].nodes) is not None:
            nodes = torch.zeros(len(batch.x), dtype=torch.bool)
            nodes[last] = True
            self.nodes = nodes.to(batch.device)

    def describe(self) -> dict[str, Any]:
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        return_freed_memory()
        h, passes = self._begin(model)
        *hidden, (last, _) = passes
        for (run, width), required in zip(hidden, self._required, strict=False):
            pieces, out = run(required, h), NodeFeatures.empty(self._batch, self._plan, width, len(required))
            for nodes, values in pieces:
                out.put(nodes, values)
            h.close()
            h = out
        required = self._required[-1]
        for nodes, values in last(required, h):
            yield nodes if required.nodes is None else required.nodes[nodes], values

    def _begin(self, model: nn.Module) -> tuple[NodeFeatures, list[tuple[Pass, int]]]:
        """Return the input of the first layer, and for every layer how it runs and the columns of its output."""
        gnn, batch, plan = cast(GNN, as_gnn(model)), self._batch, self._plan
        gnn.check_input(batch.x)
        features, scale = batch.dense if scales_input(model) else batch.features, partial(scaled, model)
        if isinstance(features, SparseMatrix):
            h = NodeFeatures([features], batch.device, batch.dtype)
        else:
            cut = batch.is_stored or scales_input(gnn)  # a block is copied
            blocks = column_blocks(features.shape[1], plan.columns if cut else features.shape[1])
            h = NodeFeatures([features[:, columns] for columns in blocks], batch.device, batch.dtype, scale)
        layers = zip(gnn.convs, [*gnn.norms, None], plan.layers, strict=True)
        runs = [(_LayerPass(batch, plan, gnn, cast(Layer, own), norm, each), each) for own, norm, each in layers]
        return h, [(run, each.output) for run, each in runs]


class _LayerPass:
    """One layer of `gistgnn.nn`, with the norm and activation that follow; ``norm``: None for the last layer."""

    def __init__(
        self, batch: Batch, plan: LayerPlan, gnn: GNN, layer: Layer, norm: nn.Module | None, sizes: LayerSizes
    ) -> None:
        self._batch, self._plan, self._layer, self._norm, self._sizes = batch, plan, layer, norm, sizes
        self._is_ours = is_ours(layer)
        self._activate = partial(activate, activation=gnn.activation)
        self._row = sizes.row(batch.dtype.itemsize)
        homes = type(layer).__mro__  # the first that has a method defines it
        whole, block = (next(k for k in homes if name in vars(k)) for name in ("aggregate", "aggregate_block"))
        if whole is not block:
            has = f"aggregate of {whole.__name__}, but the aggregate_block of {block.__name__}"
            raise InputError(f"{type(layer).__name__} has the {has}: define both, or evaluate the whole graph")

    def __call__(self, required: RequiredNodes, h: NodeFeatures) -> Iterator[tuple[slice, Tensor]]:
        """Aggregate now, then yield the output for a piece of the nodes after another, in ascending order."""
        # The input `h` is closed when nothing reads it any more.
        self._required, self._h, self._no_rows = required, h, h.rows(torch.arange(0))
        return self._outputs(*self._aggregate())

    def _outputs(self, received: Rows, sums: NodeFeatures | None) -> Iterator[tuple[slice, Tensor]]:
        for nodes in self._chunks():
            x = self._own(self._h, nodes) if self._layer.update_reads_input else self._no_rows
            values = self._layer.update(x, received(nodes))
            yield nodes, values if self._norm is None else self._activate(self._norm, values, overwrite=self._is_ours)
        if sums is not None:
            sums.close()
        self._h.close()

    def _own(self, h: NodeFeatures, nodes: slice) -> Tensor | SparseMatrix:
        """Return the rows of ``h`` that belong to some of the layer's nodes."""
        own = self._required.own
        return self._readable(h.rows(nodes if own is None else own[nodes]))

    def _readable(self, rows: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
        """Return rows for a step of the layer: a copy for a layer of the user's, which may write into them."""
        return rows.clone() if isinstance(rows, Tensor) and not self._is_ours else rows

    def _aggregate(self) -> tuple[Rows, NodeFeatures | None]:
        """Return what nodes receive, and the storage, if not the layer's input, that it is read from."""
        batch, layer, h = self._batch, self._layer, self._h
        if self._sizes.cached:
            assert isinstance(layer, Propagation)
            product = batch.adj.cached_product(layer.operator, batch.x)
            assert product is not None  # only that with the features as they are is planned to be kept
            return cast(Rows, partial(self._own, NodeFeatures([product], batch.device, batch.dtype))), None
        z, scores = self._messages(h)
        if z is not h and not layer.update_reads_input:
            h.close()
        received: Rows
        if len(z.blocks) == 1:
            received, sums = partial(self._sums_of, z.block(0), scores, z.blocks[0]), None if z is h else z
        else:
            sums = NodeFeatures.empty(batch, self._plan, self._sizes.sent, len(self._required), z.blocks)
            for index, columns in enumerate(z.blocks):
                block, target = z.block(index), cast(Tensor, sums.parts[index])
                for nodes in self._chunks():
                    target[nodes] = self._sums_of(block, scores, columns, nodes)
                del block  # frees it before the next one is read
            if z is not h:
                z.close()
            received = cast(Rows, sums.rows)
        if not layer.update_reads_input:
            h.close()
        return received, sums

    def _sums_of(self, block: Tensor, scores: Tensor, columns: slice, nodes: slice) -> Tensor:
        structure = self._batch.adj if self._required.nodes is None else cast(Adjacency, self._required)
        return self._layer.aggregate_block(block, scores, structure, nodes, columns)

    def _messages(self, h: NodeFeatures) -> tuple[NodeFeatures, Tensor]:
        """Return the messages of all nodes (``h`` if the layer sends its input), and the scores: [edge_scores, N]."""
        sizes, layer, inputs = self._sizes, self._layer, self._required.inputs
        z = h
        if sizes.messages:
            blocks = None if sizes.cuts else [slice(0, sizes.sent)]
            z = NodeFeatures.empty(self._batch, self._plan, sizes.sent, inputs, blocks)
        scores = torch.empty(sizes.scores, inputs, dtype=self._batch.dtype, device=self._batch.device)
        own = self._required.own
        for nodes in self._chunks() if own is None else row_pieces(inputs, self._row, self._plan.work):
            if z is h and not sizes.scores:
                break
            sent = layer.message(self._readable(h.rows(nodes)), self._batch.adj)
            scores[:, nodes] = layer.scores(sent)
            if z is not h:
                z.put(nodes, sent)
        return z, scores

    def _chunks(self) -> Iterator[slice]:
        work, row, adj = self._plan.work, self._row, self._batch.adj
        if self._sizes.heads:
            return row_chunks(adj.attention_rowptr, max(work // 2 // row, 1), work // 2 // ENTRY)
        read = work // 2 // READ_ENTRY if adj.by_rows else None
        return row_chunks(self._required.rowptr, max(work // (2 if read else 1) // row, 1), read)
