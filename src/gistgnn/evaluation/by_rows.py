"""The exact output of a model that offers its layers, PyG's or a user's: layer by layer, in blocks of rows."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.evaluation.budget import Budget, LayerPlan
from gistgnn.evaluation.by_layers import ByLayers, NodeFeatures, Pass, RequiredNodes, required_nodes
from gistgnn.evaluation.inference import Inference, WholeGraph
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.features import rows_of
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.pyg_layers import layers_on_rows, normalises
from gistgnn.nn.scaling import plain_model, scaled
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.call import signature
from gistgnn.utils import formats
from gistgnn.utils.process_memory import PeakBytes

log = logging.getLogger(__name__)

ModelLayer = Callable[..., Tensor]

_MOST = 2**30  # bytes of a block: in a larger one, few more nodes share their sources
_MANY = 1000  # tensors of the widest layer, for every node and edge: no model has as many at a time
_CLOSE = 1e-3  # of the largest output: how far layers in blocks may be from the model's forward


def layers_of(model: nn.Module) -> list[ModelLayer] | None:
    """Return the layers of a model that offers them, by a method ``layers()`` or as PyG's `BasicGNN`; else None.

    The model is their composition. A layer is a function or a module, and is called as the model's forward:
    ``layer(x, edge_index)`` or ``layer(x, adj)``, with the edge data that its arguments name. A node's row of the
    output depends on its own row of ``x``, on its incoming edges and on the rows of their sources, and on nothing else:
    not on the mean of all nodes, nor on a source's degree. Only the degrees in `GCNConv` are those of the whole graph.
    """
    model = plain_model(model)
    if callable(offered := getattr(type(model), "layers", None)):
        return list(offered(model))
    if "torch_geometric.nn" not in sys.modules:
        return None
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    return [_basic_layer(model, n) for n in range(len(model.convs))] if isinstance(model, BasicGNN) else None


def _basic_layer(model: Any, number: int) -> ModelLayer:
    """Return a layer of a `BasicGNN`, which is a model that has this layer alone. It shares the parameters."""
    jumps, last, layer = hasattr(model, "jk"), number + 1 == len(model.convs), copy(model)
    layer._modules = {name: module for name, module in model._modules.items() if name not in ("jk", "lin")}
    for name in ("convs", "norms"):
        layer._modules[name] = nn.ModuleList([model._modules[name][number]])
    layer.num_layers = 1 if last else 2  # PyG leaves out norm and activation of the last one
    if not jumps:
        if last and hasattr(model, "lin"):
            layer._modules["lin"] = model.lin
        return layer.forward

    def jumping(
        x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Any:
        kept = list(x.split(model.hidden_channels, dim=1)) if number else []  # the outputs of all layers before
        kept.append(layer.forward(kept[-1] if kept else x, edge_index, edge_weight, edge_attr))
        return model.lin(model.jk(kept)) if last else torch.cat(kept, dim=1)

    return jumping


class RowCosts(NamedTuple):
    """What a layer takes, measured."""

    node: int  # bytes of each node of a block and each source
    edge: int  # bytes of each edge
    width: int  # columns of the output

    def bytes(self, nodes: int, edges: int) -> int:
        return self.node * nodes + self.edge * edges


class _Block(NamedTuple):
    """Some rows of a layer's output, and what they are computed from."""

    nodes: Tensor  # their nodes and the sources of their edges, by place in the layer's input: [n], ascending
    own: Tensor  # where the rows' own nodes are among these
    edges: Tensor  # [2, e], between these
    entries: slice | Tensor  # the index of the edges in the graph


class ByRows(ByLayers):
    """Runs the layers that a model offers, one for all nodes, then the next, in blocks of rows; see `layers_of`."""

    def __init__(
        self, model: nn.Module, batch: Batch, plan: LayerPlan, costs: list[RowCosts], wanted: Tensor | None = None
    ) -> None:
        takes, given = signature(model), batch.edge_data
        self._takes_adj, self._names = takes.structure == "adj", takes.edge_data.keys() & given.keys()
        weight = given.get("edge_weight") if self._takes_adj or "edge_weight" in self._names else None
        weight, edges = None if weight is None else weight.cpu(), batch.adj.pattern.to("cpu")
        self._adj, self._costs = Adjacency.from_csr(edges, batch.dtype, weight, by_rows=True), costs
        self._edge_data = {name: given[name].cpu() for name in self._names}
        super().__init__(batch, plan, required_nodes(costs, self._adj, wanted if batch.is_stored else None))

    def _begin(self, model: nn.Module) -> tuple[NodeFeatures, list[tuple[Pass, int]]]:
        layers = zip(layers_of(model) or [], self._costs, strict=True)
        return self.input(model), [(partial(self.run, model, layer, costs), costs.width) for layer, costs in layers]

    def input(self, model: nn.Module) -> NodeFeatures:
        """Return the graph's features, scaled as the model does."""
        scale: Any = partial(scaled, model)
        return NodeFeatures([self._batch.dense], self._batch.device, self._batch.dtype, scale)

    def run(
        self, model: nn.Module, layer: ModelLayer, costs: RowCosts, required: RequiredNodes, h: NodeFeatures
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the layer's output for a block of rows after another."""
        count, work, start, step = len(required), self._plan.work, 0, len(required)
        ends = (required.rowptr.long() + torch.arange(count + 1)).numpy()  # of the rows with their edges
        while start < count:
            fits = int(ends.searchsorted(ends[start] + work // costs.edge, side="right")) - 1
            rows = slice(start, max(min(start + step, fits, count), start + 1))
            block, step = _block(required, rows), rows.stop - rows.start
            if step > 1 and costs.bytes(len(block.nodes), block.edges.shape[1]) > work:
                step //= 2
                continue
            yield rows, self._output(model, layer, h, required, rows, block)
            start, step = rows.stop, 2 * step

    def _output(
        self, model: nn.Module, layer: Any, h: NodeFeatures, required: RequiredNodes, rows: slice, block: _Block
    ) -> Tensor:
        x, device, normalised = h.rows(block.nodes), self._batch.device, None
        assert isinstance(x, Tensor)
        edges: Any = block.edges.to(device)
        names = inspect.signature(layer.forward if isinstance(layer, nn.Module) else layer).parameters
        data = {name: value[block.entries].to(device) for name, value in self._edge_data.items() if name in names}
        if self._takes_adj or normalises(model):
            matrix = required.rows("gcn", rows)
            normalised = _edges(block.nodes, block.nodes[block.own], matrix.pattern).to(device), matrix.value.to(device)
        if self._takes_adj:
            weight = None if self._adj.edge_weight is None else self._adj.edge_weight[block.entries].to(device)
            edges, size = Adjacency(edges, len(x), x.dtype, weight), (len(x), len(x))
            if normalised is not None:
                edges.__dict__["gcn"] = SparseMatrix(normalised[0][1], normalised[0][0], normalised[1], size)
        with layers_on_rows(model, x, normalised):
            out = layer(x, edges, **data)
        return out[block.own.to(device)]


def _block(required: RequiredNodes, rows: slice) -> _Block:
    pattern, entries = required.edges(rows)
    own = torch.arange(rows.start, rows.stop) if required.own is None else required.own[rows]
    nodes = torch.cat([own, pattern.col.long()]).unique()
    return _Block(nodes, torch.searchsorted(nodes, own), _edges(nodes, own, pattern), entries)


def _edges(nodes: Tensor, own: Tensor, pattern: CSR) -> Tensor:
    """Return the entries of some rows, whose nodes are ``own``, between the places of nodes: [2, e]."""
    return torch.stack([torch.searchsorted(nodes, each.long()) for each in (pattern.col, pattern.repeated(own))])


def prepare_rows(
    model: nn.Module, batch: Batch, budget: Budget, wanted: Tensor | None, *, always: bool, limit: int
) -> Inference:
    """Prepare evaluation by rows; of the whole graph, unless ``always``, where that fits or there are no layers."""
    # ``limit``: bytes above which a note says what the whole graph takes.
    # An InputError says that the model cannot run by layers, or that the memory is too little.
    costs = list[RowCosts]()
    try:
        layers = layers_of(model)
        why = "offers no layers()" if layers is None else ""
        if layers and (always or _whole_bytes(model, batch) > budget.compute):
            costs = _costs(model, batch, layers)
            why = "" if _same(model, batch, costs) else "has layers() that do not give, row by row, what forward gives"
    except Exception as error:  # of the user's model, which may raise anything
        why = f"cannot run layer by layer: {reason(error)}"
    if costs and not why:
        return ByRows(model, batch, _plan(costs, batch, budget), costs, wanted)
    if not always:
        if why:
            note_whole(model, batch, limit, f"as the model is a {type(model).__name__}, which {why}")
        return WholeGraph(batch)
    raise InputError(
        f"the model is a {type(model).__name__}, which {why}; evaluation by layers is for the models of gistgnn.nn "
        "and PyG's BasicGNN, with norms that treat each node alone, and models with a method layers(): add it, or "
        "choose the method parts, or whole"
    )


_ALL = 2**31  # columns: features are never cut into blocks of them
_WIDE, _ANY = LayerPlan(in_file=False, columns=_ALL, work=2**62, layers=(), disk=0), RowCosts(1, 1, 0)


def _plan(costs: list[RowCosts], batch: Batch, budget: Budget) -> LayerPlan:
    """Choose where features are stored and how large the blocks are; refuse a budget that is too small."""
    nodes, size, most = len(batch.x), batch.dtype.itemsize, 1 + batch.adj.pattern.most_entries
    resident = nodes * (16 + size * (0 if batch.is_stored else 1 + costs[-1].width))
    widths = [0, *(each.width for each in costs[:-1]), 0]
    features = nodes * size * max(one + other for one, other in pairwise(widths))
    least = resident + max(each.bytes(min(most, nodes), most) for each in costs)
    budget.require(least)
    room = budget.compute - resident
    in_file = features > (room // 2 if budget.device is None else budget.host)
    work = (room if in_file or budget.device is not None else room - features) * 3 // 4  # C's heap keeps some more
    return LayerPlan(in_file, _ALL, min(max(work, least - resident), _MOST), (), features * in_file)


def note_whole(model: nn.Module, batch: Batch, limit: int, why: str) -> None:
    """Log a note if a pass over the whole graph takes more than ``limit`` bytes; ``why`` it takes the whole."""
    model = getattr(model, "_orig_mod", model)
    widest = max((max(p.shape, default=1) for p in model.parameters()), default=1)
    if _MANY * widest * (len(batch.x) + batch.adj.num_edges) * batch.dtype.itemsize < limit:
        return  # nothing to measure, which takes a while
    needed = 0
    tensors = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    with suppress(Exception), torch.random.fork_rng(devices=[]):  # a model may need the graph itself
        # A copy, with the same tensors: a layer may keep what it computes of its first graph.
        needed = _whole_bytes(deepcopy(model, dict(tensors)), batch)
    if needed > limit:
        log.warning(
            "evaluation runs the whole graph at once, %s: that takes about %s, and evaluation may take %s; choose the "
            "method parts, or layers for a model that can",
            why, formats.size(needed), formats.size(limit),
        )  # fmt: skip


def _whole_bytes(model: nn.Module, batch: Batch) -> int:
    """Return about what a pass over the whole graph takes."""
    peaks = []
    for probe in (small_batch(batch, 64, 1), small_batch(batch, 8, 256)):
        with PeakBytes() as counted:
            forward(model, probe)
        peaks.append(counted.peak)
    is_copied = batch.is_csr or (batch.is_stored and batch.x.dtype != batch.dtype)
    copied = batch.x.numel() * batch.dtype.itemsize * is_copied
    return _rates(*peaks).bytes(len(batch.x), batch.adj.num_edges) + copied


def _costs(model: nn.Module, batch: Batch, layers: list[ModelLayer]) -> list[RowCosts]:
    peaks = list[list[tuple[int, int]]]()
    for probe in (small_batch(batch, 64, 1), small_batch(batch, 8, 256)):
        runner, found = ByRows(model, probe, _WIDE, [_ANY]), list[tuple[int, int]]()
        h = runner.input(model)
        for layer in layers:
            with PeakBytes() as counted:
                ((_, out),) = runner.run(model, layer, _ANY, runner._required[0], h)
            h = NodeFeatures([out], probe.device, probe.dtype)
            found.append((counted.peak, out.shape[1]))
        peaks.append(found)
    return [_rates(one[0], other[0], one[1]) for one, other in zip(*peaks, strict=True)]


def _rates(few_edges: int, many_edges: int, width: int = 0) -> RowCosts:
    """Return the bytes of a node and an edge, from those of 64 nodes, and of 8 nodes with 256 edges."""
    node = -(-few_edges // 64)
    return RowCosts(node, max(-(-(many_edges - 8 * node) // 256), 1), width)


def small_batch(batch: Batch, nodes: int = 24, edges: int = 72) -> Batch:
    """Return a small random graph with nodes and edge data of a graph."""
    rng = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(batch.x), (nodes,), generator=rng)
    x = rows_of(batch.x, chosen.to(batch.x.device)).to_dense().to(batch.device, batch.dtype)
    edge_index = torch.randint(nodes, (2, edges * bool(batch.adj.num_edges)), generator=rng)
    entries = torch.randint(max(batch.adj.num_edges, 1), (edge_index.shape[1],), generator=rng)
    data = {name: value[entries.to(value.device)].to(batch.device) for name, value in batch.edge_data.items()}
    y = torch.zeros(nodes, device=batch.device)
    return Batch(x, edge_index.to(batch.device), y, torch.arange(0), edge_data=data)


def _same(model: nn.Module, batch: Batch, costs: list[RowCosts]) -> bool:
    """Tell whether the layers give, row by row on a small graph, what the model's forward gives."""
    probe = small_batch(batch)
    expected = forward(model, probe)
    actual = ByRows(model, probe, replace(_WIDE, work=0), costs).logits(model)
    most = float(expected.nan_to_num().abs().max())
    return torch.allclose(actual, expected, rtol=0, atol=_CLOSE * most, equal_nan=True)
