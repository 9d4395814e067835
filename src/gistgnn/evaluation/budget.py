"""The memory that a model needs on a graph, in one pass over it or layer by layer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import NamedTuple, TypeGuard, cast

import torch
from torch import nn

from gistgnn.errors import InputError
from gistgnn.nn import Adjacency
from gistgnn.nn.convolutions import SAGELayer
from gistgnn.nn.gat import AttentionLayer
from gistgnn.nn.gnn import GNN, Layer, Propagation, as_gnn, is_ours, propagates_features
from gistgnn.nn.scaling import scales_input
from gistgnn.sampling import Batch
from gistgnn.utils import formats

_WORK = 2**26  # bytes of a block; a larger one is not faster
# The same for a block with copies of its sources. In a larger one, few more nodes share a source.
_WORK_WITH_SOURCES = 2**30
_NO_EDGES = Adjacency(torch.empty(2, 0, dtype=torch.int64), 1)
_NODE = 24  # bytes of a node in the structure: its degree and its places
_EDGE = 80  # bytes of an edge while a block is found, and its operator is computed
_ATTENTION = 48  # bytes of an edge and head: scores, maxima, coefficients, rows

# Bytes per entry of an operator beside its values: kept afterwards, and only while it is computed.
_OPERATOR_BYTES = {"gcn": (16, 40), "mean": (8, 16), "sum": (16, 40), "attention": (12, 40)}


class Budget(NamedTuple):
    """Bytes that an evaluation may use.

    Args:
        host: in memory.
        device: on the model's GPU, or None where the model runs on the host.
    """

    host: int
    device: int | None = None

    @property
    def compute(self) -> int:
        """Bytes on the device of the model."""
        return self.host if self.device is None else self.device

    def require(self, least: int) -> None:
        """Refuse a model that needs more on its device."""
        if self.compute < least:
            available = formats.size(self.compute)
            needed = formats.size(least)
            raise InputError(
                f"evaluation has {available} of memory, layer by layer this model needs {needed} "
                "on this graph: allow more, or evaluate by parts"
            )


@dataclass(frozen=True)
class GraphShape:
    """The numbers of a graph that decide what an evaluation on it takes.

    Args:
        nodes, edges, features: how many there are.
        size: bytes of a number.
        sparse: few features are not zero.
        stored: features and edges are read from files.
        adj: knows what is computed already, or None where there is no graph yet.
        computed: all operators and Ā x are computed already.
    """

    nodes: int
    edges: int
    features: int
    size: int = 4
    sparse: bool = False
    stored: bool = False
    adj: Adjacency | None = None
    computed: bool = False

    @classmethod
    def of(cls, batch: "Batch | GraphShape") -> "GraphShape":
        if isinstance(batch, GraphShape):
            return batch
        nodes, features = batch.x.shape
        edges = batch.adj.num_edges
        return cls(
            nodes,
            edges,
            features,
            batch.dtype.itemsize,
            batch.is_sparse,
            batch.is_stored,
            batch.adj,
        )

    def for_model(self, model: nn.Module) -> "GraphShape":
        """Return the shape as layers see it: scaled features, and those in files, are dense."""
        return replace(self, sparse=self.sparse and not self.stored and not scales_input(model))

    @property
    def most_entries(self) -> int:
        """The most edges into one node; without a graph, four times the mean."""
        return self.adj.pattern.most_entries if self.adj else 4 * self.edges // self.nodes

    def has_product(self, layer: Propagation) -> bool:
        """Tell whether the layer's operator times the features needs no memory any more."""
        return (
            self.stored
            or self.computed
            or (self.adj is not None and layer.operator in self.adj.products)
        )


@dataclass(frozen=True)
class LayerCosts:
    """What a layer takes for a block of nodes, beside its whole input and output.

    Args:
        width: columns of its output.
        messages: columns of what all nodes send, computed before the blocks; 0 where they send the
            layer's input.
        row: bytes of each node of the block.
        source: bytes of each of their sources; 0 where the messages are multiplied where they are.
        edge: bytes of each edge.
        uses_product: the nodes of the block receive their rows of Ā x, and no edges are read.
        kept: bytes of Ā x, and of its computation, if it is to be computed.
        hops: how many edges away a node may be that a row of the output depends on.
    """

    width: int
    messages: int
    row: int
    source: int
    edge: int
    uses_product: bool = False
    kept: int = 0
    hops: int = 1

    def bytes(self, rows: int, sources: int, edges: int) -> int:
        """Return the bytes of a block."""
        return self.row * rows + self.source * sources + self.edge * edges

    def most(self, nodes: int, edges: int) -> int:
        """Return the bytes of one block of all nodes."""
        return self.row * nodes if self.uses_product else self.bytes(nodes, nodes, edges)

    def least(self, nodes: int, edges: int, most_entries: int) -> int:
        """Return the bytes of one node at most.

        Args:
            nodes, edges: of the graph.
            most_entries: edges into the node with the most of them.
        """
        if self.uses_product:
            return self.row
        sources = min((1 + most_entries) ** self.hops, nodes)
        entries = min((1 + most_entries) ** self.hops, nodes + edges)
        return self.bytes(1, sources, entries)


class LayerPlan(NamedTuple):
    """How to evaluate a model layer by layer.

    Args:
        in_file: the features between layers are in temporary files, not in memory.
        work: bytes of a block.
        disk: bytes of the temporary files.
        memory: bytes that all of it takes at most.
    """

    in_file: bool
    work: int
    disk: int
    memory: int


def layer_costs(
    model: nn.Module, batch: Batch | GraphShape, budget: Budget | None = None
) -> list[LayerCosts]:
    """Return what the layers of a model of `gistgnn.nn` take.

    Args:
        model: the model.
        batch: the graph.
        budget: where the model runs, and of which Ā x may take a quarter, if that is to be computed
            and kept. Defaults to nothing, on the host.
    """
    graph = GraphShape.of(batch)
    if budget is not None:
        costs = _layer_costs(model, graph, budget.compute // 4, on_host=budget.device is None)
        if least_bytes(costs, graph) <= budget.compute:
            return costs
    return _layer_costs(model, graph, 0, on_host=budget is None or budget.device is None)


def sums_by_operator(layer: nn.Module) -> TypeGuard[Propagation]:
    """Tell whether a layer's ``aggregate`` only multiplies Ā by the messages."""
    return isinstance(layer, Propagation) and type(layer).aggregate is Propagation.aggregate


def sums_by_attention(layer: nn.Module) -> TypeGuard[AttentionLayer]:
    """Tell whether a layer's ``aggregate`` is the attention of `gistgnn.nn`."""
    return isinstance(layer, AttentionLayer) and is_ours(layer)


def _layer_costs(
    model: nn.Module, graph: GraphShape, most_kept: int, *, on_host: bool
) -> list[LayerCosts]:
    """Return what the layers take; ``most_kept``: bytes that Ā x may take with its computation."""
    gnn = cast(GNN, as_gnn(model))
    graph = graph.for_model(model)
    # Ā x is computed from dense features alone, which the model does not scale.
    has_dense_product = not graph.sparse and not scales_input(model)
    costs = list[LayerCosts]()
    for index, (layer, read, sent) in enumerate(_columns_of_layers(gnn, graph)):
        uses_product = False
        product_bytes = 0
        if index == 0 and has_dense_product and propagates_features(layer):
            if not graph.has_product(layer):
                operator_memory = max(operator_bytes([layer.operator], graph))
                product_bytes = graph.nodes * graph.features * graph.size + operator_memory
            uses_product = product_bytes <= most_kept
        received = read if uses_product else sent or read
        is_scaled = index == 0 and not sent and scales_input(model)
        is_in_place = (
            on_host and not is_scaled and (sums_by_operator(layer) or sums_by_attention(layer))
        )
        # What a node has read and received, and its output before and after the norm.
        columns = read + (1 if uses_product else 2) * received + 2 * layer.out_features
        costs.append(
            LayerCosts(
                width=layer.out_features,
                messages=0 if uses_product else sent,
                row=graph.size * columns,
                source=0 if is_in_place else graph.size * 2 * received,
                edge=_EDGE + _ATTENTION * layer.heads,
                uses_product=uses_product,
                kept=product_bytes if uses_product else 0,
            )
        )
    return costs


def _resident_bytes(costs: Sequence[LayerCosts], graph: GraphShape) -> int:
    """Return the bytes that stay from the first layer to the last.

    They are of the structure, of Ā x, and of the output.
    """
    numbers = _NODE if graph.stored else _NODE + graph.size * (1 + costs[-1].width)
    return graph.nodes * numbers + costs[0].kept


def least_bytes(costs: Sequence[LayerCosts], batch: Batch | GraphShape) -> int:
    """Return the bytes without which layers cannot be evaluated, one node at a time."""
    graph = GraphShape.of(batch)
    most = max(layer.least(graph.nodes, graph.edges, graph.most_entries) for layer in costs)
    return _resident_bytes(costs, graph) + most


def plan_layers(
    costs: Sequence[LayerCosts], batch: Batch | GraphShape, budget: Budget
) -> LayerPlan:
    """Choose where features are stored between layers, and how large the blocks are.

    Raises:
        InputError: the budget is too small.
    """
    graph = GraphShape.of(batch)
    least = least_bytes(costs, graph)
    budget.require(least)
    resident = _resident_bytes(costs, graph)
    available = budget.compute - resident
    # The columns that are stored between layers: none before the first and after the last.
    widths = [0, *(layer.width for layer in costs[:-1]), 0]
    stored = [
        before + layer.messages + after
        for layer, (before, after) in zip(costs, pairwise(widths), strict=True)
    ]
    features = graph.nodes * graph.size * max(stored)
    least_work = least - resident
    most_features = budget.host
    if budget.device is None:
        most_features = min(available // 2, available - least_work)
    in_file = features > most_features
    in_memory = 0 if in_file or budget.device is not None else features
    largest = _WORK_WITH_SOURCES if any(layer.source for layer in costs) else _WORK
    work = min((available - in_memory) // 2, largest)  # Half: the heap of C keeps some more.
    work = max(work, least_work)
    largest_layer = max(layer.most(graph.nodes, graph.edges) for layer in costs)
    return LayerPlan(
        in_file, work, features if in_file else 0, resident + in_memory + min(work, largest_layer)
    )


def whole_graph_bytes(model: nn.Module, batch: Batch | GraphShape) -> int:
    """Estimate the peak memory of a forward pass on the whole graph, with the operators."""
    graph = GraphShape.of(batch).for_model(model)
    gnn = cast(GNN, as_gnn(model))
    names = [
        layer.operator if isinstance(layer, Propagation) else "attention" for layer in gnn.convs
    ]
    operators, preparing = operator_bytes(dict.fromkeys(names), graph)
    entries = graph.edges + graph.nodes
    most = 0
    first = gnn.convs[0]
    keeps_product = not graph.sparse and not scales_input(model) and propagates_features(first)
    for index, (layer, read, sent) in enumerate(_columns_of_layers(gnn, graph)):
        if index == 0 and keeps_product:
            columns = read + 2 * layer.out_features
        else:
            stored = read if index else 0
            columns = stored + sent + (sent or read) + 2 * layer.out_features
        most = max(
            most, graph.nodes * columns * graph.size + 3 * entries * graph.size * layer.heads
        )
    resident = operators + graph.nodes * graph.size * gnn.out_features
    if keeps_product and not graph.has_product(cast(Propagation, first)):
        product = graph.nodes * graph.features * graph.size
        resident += product
        if type(first) is SAGELayer:  # It joins x and Ā x, as [N, 2F], while Ā x is there.
            preparing = max(preparing, operators + 3 * product)
    if scales_input(model):
        resident += graph.nodes * graph.features * graph.size
    return max(preparing, resident + most)


def _columns_of_layers(gnn: GNN, graph: GraphShape) -> list[tuple[Layer, int, int]]:
    """Return every layer, how many columns it reads, and how many its messages have.

    The latter is 0 where the messages are the input.
    """
    sizes = list[tuple[Layer, int, int]]()
    read = gnn.in_features
    for index, module in enumerate(gnn.convs):
        layer = cast(Layer, module)
        if index == 0 and graph.sparse and propagates_features(layer):
            sent = layer.neighbour_weight.shape[0]
        else:
            weight = next(chain(layer.parameters(), layer.buffers()))
            probe = torch.empty(0, read, device=weight.device, dtype=weight.dtype)
            message = layer.message(probe, graph.adj or _NO_EDGES)
            if sums_by_attention(layer):
                message = layer.add_scores(message)
            is_input = message is probe and is_ours(layer)  # A user's layer may have changed it.
            sent = 0 if is_input else message.shape[1]
        sizes.append((layer, read, sent))
        read = layer.out_features
    return sizes


def operator_bytes(names: Iterable[str], graph: GraphShape) -> tuple[int, int]:
    """Return the bytes that operators take once they are computed, and while they are.

    Operators that the graph has already do not count.
    """
    if graph.stored or graph.computed:
        return 0, 0
    entries = graph.edges + graph.nodes
    computed = graph.adj.__dict__ if graph.adj else {}
    afterwards = 0
    peak = 0
    for name in names:
        if name in computed:
            continue
        lasting, temporary = _OPERATOR_BYTES[name]
        values = 0 if name == "attention" else graph.size
        peak = max(peak, afterwards + entries * (temporary + values))
        afterwards += entries * (lasting + values)
    return afterwards, peak
