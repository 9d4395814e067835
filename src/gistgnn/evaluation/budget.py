"""How much memory a model of gistgnn.nn takes on a graph, and how to evaluate it layer by layer with less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.evaluation.hidden_features import column_blocks
from gistgnn.io.stored_tensor import reading_bytes
from gistgnn.nn import GNN, SparseMatrix
from gistgnn.nn.gnn import Layer
from gistgnn.nn.propagate import Propagation
from gistgnn.sampling import Batch

WORK = 2**27  # bytes of a chunk of nodes: more is no faster where the weights are in memory
_STORED_ROWS = 4096  # nodes of a chunk: with less, a CPU would wait for weights that lie in files
_MOST_CHUNKS = 4096
_ENTRY = 48  # bytes that attention takes for one entry of one head: scores, maxima, coefficients, rows

# Bytes for one entry of an operator beside its values: those that stay, and those that making it takes for a while.
_OPERATOR_BYTES = {"gcn": (16, 40), "mean": (8, 16), "attention": (12, 40)}


@dataclass(frozen=True)
class Budget:
    """Bytes that an evaluation may take.

    Args:
        host: on the host.
        device: on the GPU where the model runs, or None where it runs on the host.
    """

    host: int
    device: int | None = None

    @property
    def compute(self) -> int:
        """Where the model runs."""
        return self.host if self.device is None else self.device


@dataclass(frozen=True)
class LayerSizes:
    """Columns of a layer's features; what is 0 takes no memory.

    Attributes:
        stored: of its input, if that is a hidden layer's.
        read: of its input.
        sent: of its messages.
        messages: of its messages, if they are not its input or a product that is kept.
        output: of its output.
        hidden: of its output, if that is not the model's.
        scores: of what the weights of edges depend on.
        own: the input is read once more when all messages have been received.
        kept: what the nodes receive is a product that is kept.
    """

    stored: int
    read: int
    sent: int
    messages: int
    output: int
    hidden: int
    scores: int
    own: bool
    kept: bool

    def features(self, columns: int) -> int:
        """Columns of features that lie between the steps at once, if the messages are cut into blocks of columns."""
        sending = self.stored + self.messages
        receiving = sending if self.own else self.messages or self.stored
        if self.kept or not sending or len(column_blocks(self.sent, columns)) == 1:
            return max(sending, receiving + self.hidden)
        out = 0 if self.hidden == self.sent else self.hidden  # it takes the place of what was received
        updating = (self.stored if self.own else 0) + self.sent + out
        return max(sending, receiving + self.sent, updating)

    def row(self, size: int) -> int:
        """Bytes for one node of a chunk, for numbers of ``size`` bytes."""
        return size * (self.read + 2 * self.sent + 3 * self.output)

    @property
    def entry(self) -> int:
        """Bytes for one entry of a chunk."""
        return _ENTRY if self.scores else 0


@dataclass(frozen=True)
class Plan:
    """How a model is evaluated layer by layer.

    Attributes:
        in_file: hidden features lie in temporary files, not in memory.
        columns: most columns of the messages that are in memory where the model runs.
        work: bytes of a chunk of nodes.
        keep: use the product of the graph's features with the operator, and keep it.
        layers: sizes of every layer.
        disk: bytes of the temporary files.
    """

    in_file: bool
    columns: int
    work: int
    keep: bool
    layers: tuple[LayerSizes, ...]
    disk: int


class Costs:
    """What a model takes on a graph, in bytes.

    Args:
        gnn: the model.
        batch: the graph.
        most_kept: bytes that the product of the graph's features with an operator may take to be kept.
    """

    def __init__(self, gnn: GNN, batch: Batch, most_kept: int) -> None:
        self.nodes, self.size = batch.x.shape[0], batch.x.dtype.itemsize
        first = cast(Layer, gnn.convs[0])
        kept = self.nodes * gnn.in_features * self.size
        made = isinstance(first, Propagation) and batch.adj.has_kept(first.operator)
        dense = not isinstance(batch.features, SparseMatrix)
        self.keep = isinstance(first, Propagation) and dense and (made or kept <= most_kept)
        self.layers = tuple(_sizes(gnn, batch, self.keep))
        stay, peak = _operators(gnn, batch)
        product = kept if self.keep and not made else 0
        self.reading = reading_bytes(gnn)
        columns = gnn.out_features + max(layer.scores for layer in self.layers)
        self.resident = stay + product + self.reading + self.column(columns)
        self.preparing = peak
        degree = int(batch.adj.pattern.rowptr.diff().max()) + 1 if any(s.scores for s in self.layers) else 0
        rows = -(-self.nodes // _MOST_CHUNKS)
        self.least_work = max(rows * layer.row(self.size) + degree * layer.entry for layer in self.layers)

    def column(self, count: int = 1) -> int:
        """Columns of all nodes' features."""
        return count * self.nodes * self.size

    def features(self, columns: int) -> int:
        """All features that lie between the steps at once."""
        return self.column(max(layer.features(columns) for layer in self.layers))

    @property
    def widest(self) -> int:
        """Columns of the widest messages."""
        return max(layer.sent for layer in self.layers)

    @property
    def least(self) -> int:
        """The least memory, where the model runs, with which it can be evaluated layer by layer."""
        return max(self.preparing, self.resident + self.least_work + self.column())


def whole_graph_bytes(gnn: GNN, batch: Batch) -> int:
    """About the memory that the forward on the whole graph takes at its peak, operators included."""
    costs = Costs(gnn, batch, most_kept=2**62)
    entries = _entries(batch) + costs.nodes
    between = max(
        costs.column(layer.stored + layer.messages + layer.sent + 2 * layer.output)
        + 3 * entries * costs.size * (layer.scores // 2)
        for layer in costs.layers
    )
    return max(costs.preparing, costs.resident + between)


def plan_layers(gnn: GNN, batch: Batch, budget: Budget) -> Plan:
    """Choose what lies where, and how large the pieces are.

    Raises:
        InputError: the budget is too small for any plan; the message says how much is needed.
    """
    costs = Costs(gnn, batch, budget.compute // 4)
    if budget.compute < costs.least:
        raise InputError(
            f"evaluation has {_said(budget.compute)} of memory, layer by layer this model needs "
            f"{_said(costs.least)} on this graph: allow more, or evaluate by parts"
        )
    left = budget.compute - costs.resident
    work = min(max(costs.least_work, _work(costs, left, gpu=budget.device is not None)), left - costs.column())
    room = left - work
    if budget.device is None:
        in_file = costs.features(costs.widest) > room
        columns = room // costs.column() if in_file else costs.widest
    else:
        columns = room // costs.column()
        in_file = costs.features(columns) > budget.host
    columns = min(columns, costs.widest)
    disk = costs.features(columns) if in_file else 0
    return Plan(in_file, columns, work, costs.keep, costs.layers, disk)


def _work(costs: Costs, left: int, *, gpu: bool) -> int:
    """Bytes of a chunk of nodes for which time and memory are well spent; every chunk reads stored weights anew."""
    if not costs.reading:
        return min(WORK, left // 4)
    wanted = _STORED_ROWS * max(layer.row(costs.size) for layer in costs.layers)
    return left // 2 if gpu else min(max(WORK, wanted), left // 2)


def row_chunks(rowptr: Tensor, rows: int, entries: int | None) -> Iterator[slice]:
    """Consecutive nodes: at most ``rows``, with at most ``entries`` entries unless it is one node.

    Args:
        rowptr: where every node's entries begin, [N + 1].
        rows: at least 1.
        entries: None: any number.
    """
    nodes, start = len(rowptr) - 1, 0
    before = None if entries is None else rowptr.cpu().numpy()
    while start < nodes:
        stop = min(start + rows, nodes)
        if before is not None:
            fits = int((before[start + 1 : stop + 1] - before[start]).searchsorted(entries, side="right"))
            stop = start + max(min(fits, stop - start), 1)
        yield slice(start, stop)
        start = stop


def _sizes(gnn: GNN, batch: Batch, keep: bool) -> Iterator[LayerSizes]:
    stored, read = 0, gnn.in_features
    x: Tensor | SparseMatrix = batch.features
    for index, module in enumerate(gnn.convs):
        layer, kept = cast(Layer, module), keep and index == 0
        probe = x.rows(slice(0, 0)) if isinstance(x, SparseMatrix) else batch.x.new_empty(0, read)
        sent = layer.message(probe, batch.adj)
        width = read if kept else sent.shape[1]
        messages = 0 if kept or sent is probe else width
        hidden = 0 if index + 1 == len(gnn.convs) else layer.out_features
        out = layer.out_features
        yield LayerSizes(stored, read, width, messages, out, hidden, layer.edge_scores, layer.reads_own, kept)
        stored = read = out
        x = batch.x


def _operators(gnn: GNN, batch: Batch) -> tuple[int, int]:
    """What the operators that are still to be made take for good, and at most."""
    entries, size = _entries(batch) + batch.x.shape[0], batch.x.dtype.itemsize
    names = {layer.operator if isinstance(layer, Propagation) else "attention" for layer in gnn.convs}
    stay = peak = 0
    for name in names - batch.adj.__dict__.keys():
        lasting, passing = _OPERATOR_BYTES[name]
        values = 0 if name == "attention" else size
        peak = max(peak, stay + entries * (passing + values))
        stay += entries * (lasting + values)
    return stay, peak


def _entries(batch: Batch) -> int:
    return batch.adj.pattern.nnz


def _said(size: int) -> str:
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.3g} {name}"
