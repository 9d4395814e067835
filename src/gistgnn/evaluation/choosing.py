"""The choice between evaluation by layers and on the whole graph, and what layers take."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import chain

import torch
from torch import nn

from gistgnn.errors import InputError, reason
from gistgnn.evaluation.blocks import Block, RequiredNodes
from gistgnn.evaluation.budget import (
    Budget,
    LayerCosts,
    LayerPlan,
    layer_costs,
    least_bytes,
    plan_layers,
    whole_graph_bytes,
)
from gistgnn.evaluation.by_layers import (
    ByLayers,
    NodeFeatures,
    OfferedLayer,
    features_of,
    structure_on_host,
)
from gistgnn.evaluation.inference import Inference, WholeGraph
from gistgnn.evaluation.offered import ModelLayer, layers_of
from gistgnn.graphs.features import rows_of
from gistgnn.nn.gnn import as_gnn, is_ours, only_reads, row_wise
from gistgnn.nn.scaling import uncompiled
from gistgnn.sampling import Batch, forward
from gistgnn.utils import formats
from gistgnn.utils.process_memory import PeakBytes

log = logging.getLogger(__name__)

# Tensors of the widest layer, for every node and edge: no model has as many at a time.
_MANY = 1000
# How far layers in blocks may be from the model's forward, as a share of the largest output. Of a
# layer that looks over several hops, the last of them may have little weight.
_CLOSE = 1e-3
_CLOSE_OVER_HOPS = 1e-5
_MOST_HOPS = 3  # More hops reach most nodes of a graph.


def prepare_layers(
    model: nn.Module,
    batch: Batch,
    budget: Budget,
    wanted: torch.Tensor | None,
    *,
    always: bool,
    limit: int,
) -> Inference:
    """Prepare evaluation by layers, or on the whole graph where that fits or there are no layers.

    Args:
        model, batch: the model and the graph.
        budget: what the evaluation may use.
        wanted: mask [N] of the nodes whose output is wanted, or None for all nodes.
        always: run by layers also where the whole graph fits.
        limit: bytes above which a note says what the whole graph takes.

    Raises:
        InputError: the model cannot run by layers, or the memory is too little.
    """
    costs = list[LayerCosts]()
    try:
        costs, why = _costs_or_reason(model, batch, budget, always=always)
    except Exception as error:  # The user's model may raise anything.
        why = f"cannot run layer by layer: {reason(error)}"
    if costs and not why:
        return ByLayers(model, batch, costs, plan_layers(costs, batch, budget), wanted)
    if not always:
        if why:
            note_whole(
                model, batch, limit, f"as the model is a {type(model).__name__}, which {why}"
            )
        return WholeGraph(batch)
    raise InputError(
        f"the model is a {type(model).__name__}, which {why}; evaluation by layers is for the "
        "models of gistgnn.nn and PyG's BasicGNN, with norms that treat each node alone, and "
        "models with a method layers(): add it, or choose the method parts, or whole"
    )


def _costs_or_reason(
    model: nn.Module, batch: Batch, budget: Budget, *, always: bool
) -> tuple[list[LayerCosts], str]:
    """Return what a model's layers take, and why it cannot run by layers.

    Both are empty where the whole graph fits.
    """
    gnn = row_wise(model)
    if gnn is not None:
        if not always and not batch.is_stored and whole_graph_bytes(model, batch) <= budget.compute:
            return [], ""
        costs = layer_costs(model, batch, budget)
    else:
        layers = layers_of(model)
        if layers is None:
            return [], "offers no layers()"
        if not layers or not (always or _whole_bytes(model, batch) > budget.compute):
            return [], ""
        costs = _measured(model, batch, layers)
    if only_reads(model):
        return costs, ""
    costs = _with_hops(model, batch, costs)
    if not costs:
        layers_name = "layers()" if gnn is None else "layers"
        return [], f"has {layers_name} that do not give, row by row, what forward gives"
    over_hops = max(layer.hops for layer in costs) > 1
    if over_hops and not always and least_bytes(costs, batch) > budget.compute:
        return [], "has a layer over several hops, for which the memory is too little"
    return costs, ""


def note_whole(model: nn.Module, batch: Batch, limit: int, why: str) -> None:
    """Log a note if a pass over the whole graph takes more than ``limit`` bytes.

    ``why`` says in the note why the evaluation runs the whole graph.
    """
    model = uncompiled(model)
    widest = max((max(p.shape, default=1) for p in model.parameters()), default=1)
    if _MANY * widest * (len(batch.x) + batch.adj.num_edges) * batch.dtype.itemsize < limit:
        return  # It surely fits, and measuring takes a while.
    needed = 0
    tensors = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        # A copy, with the same tensors: a layer may keep what it computes of its first graph. The
        # model may need the graph itself, and then raises anything.
        needed = _whole_bytes(deepcopy(model, dict(tensors)), batch)
    if needed > limit:
        log.warning(
            "evaluation runs the whole graph at once, %s: that takes about %s, and evaluation may "
            "take %s; choose the "
            "method parts, or layers for a model that can",
            why, formats.size(needed), formats.size(limit),
        )  # fmt: skip


def small_batch(batch: Batch, nodes: int = 24, edges: int = 72) -> Batch:
    """Return a small random graph, with features and edge data taken from a graph."""
    rng = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(batch.x), (nodes,), generator=rng)
    x = rows_of(batch.x, chosen.to(batch.x.device)).to_dense().to(batch.device, batch.dtype)
    edge_index = torch.randint(nodes, (2, edges * bool(batch.adj.num_edges)), generator=rng)
    entries = torch.randint(max(batch.adj.num_edges, 1), (edge_index.shape[1],), generator=rng)
    data = {
        name: value[entries.to(value.device)].to(batch.device)
        for name, value in batch.edge_data.items()
    }
    y = torch.zeros(nodes, device=batch.device)
    return Batch(x, edge_index.to(batch.device), y, torch.arange(0), edge_data=data)


def _probes(batch: Batch) -> list[Batch]:
    """Return the two graphs that `_per_node_and_edge` needs: with few edges, and with many."""
    return [small_batch(batch, 64, 1), small_batch(batch, 8, 256)]


def _per_node_and_edge(few_edges: int, many_edges: int) -> tuple[int, int]:
    """Return the bytes of a node and of an edge, from those of the two graphs of `_probes`."""
    node = -(-few_edges // 64)
    return node, max(-(-(many_edges - 8 * node) // 256), 1)


def _whole_bytes(model: nn.Module, batch: Batch) -> int:
    """Return about what a pass over the whole graph takes."""
    peaks = []
    for probe in _probes(batch):
        with PeakBytes() as counted:
            forward(model, probe)
        peaks.append(counted.peak)
    node, edge = _per_node_and_edge(*peaks)
    is_copied = batch.is_csr or (batch.is_stored and batch.x.dtype != batch.dtype)
    copied = batch.x.numel() * batch.dtype.itemsize * is_copied
    return node * len(batch.x) + edge * batch.adj.num_edges + copied


def _measured(model: nn.Module, batch: Batch, layers: Sequence[ModelLayer]) -> list[LayerCosts]:
    """Return what layers that a model offers take, measured on two small graphs."""
    peaks = [list[int](), list[int]()]
    widths = list[int]()
    for measured, probe in zip(peaks, _probes(batch), strict=True):
        widths.clear()
        required = RequiredNodes(structure_on_host(model, probe), len(probe.x))
        h = features_of(model, probe)
        for layer in layers:
            with PeakBytes() as counted:
                block = Block(required, slice(0, len(required)))
                out = OfferedLayer(model, layer, probe).output(block, h)
            h = NodeFeatures(out, probe.device, probe.dtype)
            measured.append(counted.peak)
            widths.append(out.shape[1])
    costs = []
    for few_edges, many_edges, width in zip(*peaks, widths, strict=True):
        node, edge = _per_node_and_edge(few_edges, many_edges)
        costs.append(LayerCosts(width, 0, 0, node, edge))
    return costs


def _with_hops(model: nn.Module, batch: Batch, costs: Sequence[LayerCosts]) -> list[LayerCosts]:
    """Return what the layers take, with the hops that each layer needs; empty, if none suffice.

    With these hops the layers give, row by row, what the model's forward gives; that is tried on a
    small graph. A user's layer may sum over more than one hop, or may read its sources' degrees,
    for which it needs the edges into them.
    """
    probe = small_batch(batch)
    with suppress(Exception):  # A sum over two hops may not fit into the edges of one.
        if _is_same(model, probe, costs, _CLOSE):
            return list(costs)
    gnn = as_gnn(model)
    needed = [
        layer if gnn is not None and is_ours(gnn.convs[number]) else replace(layer, hops=_MOST_HOPS)
        for number, layer in enumerate(costs)
    ]
    if not _is_same(model, probe, needed, _CLOSE_OVER_HOPS):
        return []
    for number, layer in enumerate(needed):
        for hops in range(1, layer.hops):
            fewer = [*needed]
            fewer[number] = replace(layer, hops=hops)
            with suppress(Exception):
                if _is_same(model, probe, fewer, _CLOSE_OVER_HOPS):
                    needed = fewer
                    break
    return needed


def _is_same(model: nn.Module, probe: Batch, costs: Sequence[LayerCosts], tolerance: float) -> bool:
    """Tell whether the layers give, row by row on a small graph, what the model's forward gives."""
    expected = forward(model, probe)
    actual = ByLayers(model, probe, costs, LayerPlan(False, 0, 0, 0)).logits(model)
    most = float(expected.nan_to_num().abs().max())
    return torch.allclose(actual, expected, rtol=0, atol=tolerance * most, equal_nan=True)
