"""The memory that a model of `gistgnn.nn` needs on a graph, and a plan to evaluate it layer by layer with less."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import nn

from gistgnn.errors import InputError
from gistgnn.nn import GNN, Adjacency
from gistgnn.nn.gnn import Layer, Propagation, as_gnn, is_ours, propagates_features
from gistgnn.nn.scaling import scales_input
from gistgnn.sampling import Batch
from gistgnn.utils import formats

WORK = 2**27  # bytes of a chunk of nodes: larger ones are not faster
_MOST_CHUNKS = 4096
_NO_EDGES = Adjacency(torch.empty(2, 0, dtype=torch.int64), 1)
ENTRY = 48  # bytes of attention per edge and head: scores, maxima, coefficients, rows
READ_ENTRY = 32  # bytes for an entry of an operator whose rows are read from a file, while they are computed

# Bytes per entry of an operator beside its values: kept afterwards, and only while it is computed.
_OPERATOR_BYTES = {"gcn": (16, 40), "mean": (8, 16), "sum": (16, 40), "attention": (12, 40)}


class Budget(NamedTuple):
    """Bytes that an evaluation may use."""

    host: int
    device: int | None = None  # on the model's GPU; None: the model runs on the host

    @property
    def compute(self) -> int:
        """Bytes on the device of the model."""
        return self.host if self.device is None else self.device

    def require(self, least: int) -> None:
        """Refuse a model that needs more on its device."""
        if self.compute < least:
            said = f"evaluation has {formats.size(self.compute)} of memory, layer by layer this model needs"
            raise InputError(f"{said} {formats.size(least)} on this graph: allow more, or evaluate by parts")


class LayerSizes(NamedTuple):
    """A layer's numbers of columns. A 0 means: needs no memory."""

    stored: int  # of the input, if it is the output of a hidden layer
    read: int  # of the input
    sent: int  # of the messages
    messages: int  # of the messages, if they are neither the input nor replaced by a cached product
    output: int  # of the output
    hidden: int  # of the output, if it is not the model's output
    scores: int  # of the scores that the edges' weights depend on
    heads: int  # of attention
    cuts: bool  # messages may be cut into blocks of columns
    rereads_input: bool  # after aggregation
    cached: bool  # nodes receive a cached product
    sends_whole: bool  # the features themselves, which are in memory in one piece, as they are

    def features(self, columns: int) -> int:
        """Return the columns stored at once between steps, if messages are cut into blocks of ``columns`` columns."""
        sending = self.stored + self.messages
        receiving = sending if self.rereads_input else self.messages or self.stored
        if self.cached or self.sends_whole or not self.cuts or self.sent <= columns:
            return max(sending, receiving + self.hidden)
        updating = (self.stored if self.rereads_input else 0) + self.sent + self.hidden
        return max(sending, receiving + self.sent, updating)

    def row(self, size: int) -> int:
        """Return the bytes per node of a chunk, for numbers of ``size`` bytes."""
        return size * (self.read + 2 * self.sent + 3 * self.output)


@dataclass(frozen=True)
class LayerPlan:
    """How to evaluate a model layer by layer."""

    in_file: bool  # hidden features are in temporary files, not in memory
    columns: int  # of the messages that are on the model's device at once, at most
    work: int  # bytes of a chunk of nodes
    layers: tuple[LayerSizes, ...]
    disk: int  # bytes of the temporary files


@dataclass(frozen=True)
class GraphShape:
    """The numbers of a graph that decide what an evaluation on it takes."""

    nodes: int
    edges: int
    features: int
    size: int = 4  # bytes of a number
    sparse: bool = False  # few features are not zero; see `for_model`
    stored: bool = False  # the edges are read from files while they are multiplied
    adj: Adjacency | None = None  # knows what is computed already; None: there is no graph yet
    computed: bool = False  # all operators and Ā x are computed already
    scaled: bool = False  # the model scales the features

    @classmethod
    def of(cls, batch: "Batch | GraphShape") -> "GraphShape":
        if isinstance(batch, GraphShape):
            return batch
        (nodes, features), adj = batch.x.shape, batch.adj
        return cls(nodes, adj.num_edges, features, batch.dtype.itemsize, batch.is_sparse, batch.is_stored, adj)

    def for_model(self, model: nn.Module) -> "GraphShape":
        """Return the shape with ``sparse`` as layers see it: scaled features, and those in files, are dense."""
        scaled = scales_input(model)
        return replace(self, scaled=scaled, sparse=self.sparse and not self.stored and not scaled)


# `least_work` is the smallest chunk of nodes; `widest` and `narrowest`: columns of messages that may and must fit.
class LayerCosts:
    """The bytes that a model needs on a graph: always, while operators are computed, and at least on its device."""

    @torch.no_grad()
    def __init__(self, model: nn.Module, batch: Batch | GraphShape, largest_cached: int) -> None:
        """Cache the product of the graph's features with an operator if it needs at most ``largest_cached`` bytes."""
        gnn = cast(GNN, as_gnn(model))
        graph = GraphShape.of(batch).for_model(model)
        self.nodes, self.size, adj, first = graph.nodes, graph.size, graph.adj, gnn.convs[0]
        product, cached, computed = self.nodes * gnn.in_features * self.size, False, False
        # The product of a stored graph is computed in pieces, into a file. That with scaled features is not kept.
        if propagates_features(first) and not graph.scaled:
            computed = graph.stored or graph.computed or (adj is not None and first.operator in adj.products)
            cached = not graph.sparse and (computed or product <= largest_cached)
        self.layers = tuple(_sizes(gnn, graph, cached))
        operators, self.preparing = _operators(gnn, graph)
        columns = max(layer.scores for layer in self.layers) + (0 if graph.stored else gnn.out_features)
        self.resident = operators + self.column(columns) + (product if cached and not computed else 0)
        # Without a graph, the most edges into one node are taken to be four times the mean.
        degree = 1 + (adj.pattern.most_entries if adj else 4 * graph.edges // graph.nodes)
        read, rows = READ_ENTRY * graph.stored, -(-self.nodes // _MOST_CHUNKS)
        entries = [degree * max(ENTRY if layer.heads else 0, read) for layer in self.layers]
        pairs = zip(self.layers, entries, strict=True)
        self.least_work = max(rows * layer.row(self.size) + own for layer, own in pairs)
        self.widest = max(layer.sent for layer in self.layers)
        self.narrowest = max(1 if layer.cuts else layer.sent for layer in self.layers)
        self.least = max(self.preparing, self.resident + self.least_work + self.column(self.narrowest))

    def column(self, count: int = 1) -> int:
        """Return the bytes of ``count`` columns of all nodes."""
        return count * self.nodes * self.size

    def features(self, columns: int) -> int:
        """Return the bytes of all features stored at once between steps; see `LayerSizes.features`."""
        return self.column(max(layer.features(columns) for layer in self.layers))


def whole_graph_bytes(model: nn.Module, batch: Batch | GraphShape) -> int:
    """Estimate the peak memory of a forward pass on the whole graph, with the operators."""
    graph = GraphShape.of(batch)
    costs = LayerCosts(model, graph, largest_cached=2**62)
    entries = graph.edges + costs.nodes
    held = (layer.stored + layer.messages + layer.sent + 2 * layer.output for layer in costs.layers)
    heads = (3 * entries * costs.size * layer.heads for layer in costs.layers)
    between = max(costs.column(columns) + own for columns, own in zip(held, heads, strict=True))
    scaled = costs.column(graph.features) if scales_input(model) else 0
    return max(costs.preparing, costs.resident + scaled + between)


def plan_layers(model: nn.Module, batch: Batch | GraphShape, budget: Budget) -> LayerPlan:
    """Choose where features are stored and how large the chunks are; refuse a budget that is too small."""
    costs = LayerCosts(model, batch, budget.compute // 4)
    budget.require(costs.least)
    left = budget.compute - costs.resident
    work = min(max(costs.least_work, min(WORK, left // 4)), left - costs.column(costs.narrowest))
    room = left - work
    if budget.device is None:
        in_file = costs.features(costs.widest) > room
        columns = room // costs.column() if in_file else costs.widest
    else:
        columns = room // costs.column()
        in_file = costs.features(columns) > budget.host
    columns = min(columns, costs.widest)
    return LayerPlan(in_file, columns, work, costs.layers, costs.features(columns) if in_file else 0)


def _sizes(gnn: GNN, graph: GraphShape, cache_product: bool) -> Iterator[LayerSizes]:
    stored, read = 0, gnn.in_features
    for index, module in enumerate(gnn.convs):
        layer, cached = cast(Layer, module), cache_product and index == 0
        if propagates_features(layer) and index == 0 and graph.sparse:
            sent = layer.neighbour_weight.shape[0]
        else:
            own = next(chain(layer.parameters(), layer.buffers()))
            probe = torch.empty(0, read, device=own.device, dtype=own.dtype)
            message = layer.message(probe, graph.adj or _NO_EDGES)
            sends_input = message is probe and is_ours(layer)  # a user's may have changed it
            sent = 0 if sends_input else message.shape[1]
        width = read if cached else sent or read
        messages, out = width if sent and not cached else 0, layer.out_features
        hidden = 0 if index + 1 == len(gnn.convs) else out
        kind = (layer.edge_scores, layer.heads, layer.cuts_messages, layer.update_reads_input)
        whole = index == 0 and not messages and not graph.stored and not graph.scaled
        yield LayerSizes(stored, read, width, messages, out, hidden, *kind, cached, whole)
        stored = read = out


def _operators(gnn: GNN, graph: GraphShape) -> tuple[int, int]:
    """Return the bytes that the operators still to be computed need afterwards, and at the peak."""
    entries, size = graph.edges + graph.nodes, graph.size
    if graph.stored:  # the scale of every row, or where its entries begin
        return (held := (8 + size) * graph.nodes), held
    if graph.computed:
        return 0, 0
    names = {layer.operator if isinstance(layer, Propagation) else "attention" for layer in gnn.convs}
    kept = peak = 0
    for name in names - (graph.adj.__dict__.keys() if graph.adj else set()):  # cached properties that are computed
        lasting, temporary = _OPERATOR_BYTES[name]
        values = 0 if name == "attention" else size
        peak = max(peak, kept + entries * (temporary + values))
        kept += entries * (lasting + values)
    return kept, peak
