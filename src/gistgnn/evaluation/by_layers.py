"""The exact output of a model, one layer after the other, within a memory budget."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.evaluation.blocks import Block, BlockAdjacency, required_nodes
from gistgnn.evaluation.budget import (
    LayerCosts,
    LayerPlan,
    sums_by_attention,
    sums_by_operator,
)
from gistgnn.evaluation.inference import Inference, Output
from gistgnn.evaluation.offered import ModelLayer, layers_of
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.functional import activate
from gistgnn.nn.gnn import GNN, Layer, Propagation, as_gnn, is_ours
from gistgnn.nn.pyg_layers import layers_on_rows, normalises
from gistgnn.nn.scaling import ScaledModel, uncompiled
from gistgnn.sampling import Batch
from gistgnn.sampling.call import signature
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.utils.process_memory import return_freed_memory
from gistgnn.utils.tensors import row_pieces


class NodeFeatures:
    """The features of nodes, [n, f], in memory, in a file, or as a sparse matrix.

    Args:
        values: the matrix.
        device: of the model.
        dtype: of the model.
        scale: scales rows as the model does. Defaults to features as they are.
    """

    def __init__(
        self,
        values: Tensor | SparseMatrix,
        device: torch.device,
        dtype: torch.dtype,
        scale: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._values: Tensor | SparseMatrix | None = values
        self._device = device
        self._dtype = dtype
        self._scale = scale
        self.width = values.shape[1]

    @classmethod
    def empty(cls, nodes: int, width: int, batch: Batch, *, in_file: bool) -> "NodeFeatures":
        """Return features on the host that are still to be set."""
        shape = torch.Size([nodes, width])
        if in_file and shape.numel():
            values = temporary_tensors({"x": (shape, batch.dtype)})["x"]
        else:
            values = torch.empty(shape, dtype=batch.dtype)
        return cls(values, batch.device, batch.dtype)

    def rows(self, nodes: slice | Tensor) -> Tensor | SparseMatrix:
        """Return the rows of some nodes on the model's device; of a range perhaps a view.

        Args:
            nodes: a range, or [k] by number.
        """
        values = self._values
        assert values is not None
        if isinstance(nodes, Tensor):
            nodes = nodes.to(values.device)
        if isinstance(values, SparseMatrix):
            return values.rows(nodes)
        rows = values[nodes] if isinstance(nodes, slice) else values.index_select(0, nodes)
        rows = rows.to(self._device, self._dtype)
        return rows if self._scale is None else self._scale(rows)

    def all_rows(self) -> Tensor:
        """Return all rows without a copy, for features that are neither scaled nor elsewhere."""
        assert isinstance(self._values, Tensor)
        assert self._scale is None
        return self._values

    def write(self, nodes: slice, values: Tensor) -> None:
        """Write the rows of some nodes."""
        assert isinstance(self._values, Tensor)
        self._values[nodes] = values

    def close(self) -> None:
        """Give up the memory or the file."""
        self._values = None


class GNNLayer:
    """A layer of a `GNN`, with the norm and activation that follow, for some nodes at a time.

    Args:
        gnn: the model.
        number: of the layer.
        batch: the graph.
        in_place: the messages are multiplied where they are, without a copy of a block's sources.
    """

    def __init__(self, gnn: GNN, number: int, batch: Batch, *, in_place: bool) -> None:
        layer = gnn.convs[number]
        assert isinstance(layer, Layer)
        self._layer = layer
        self._norm = gnn.norms[number] if number < len(gnn.norms) else None
        self._activation = gnn.activation
        self._batch = batch
        self._is_ours = is_ours(layer)
        self._in_place = in_place

    @property
    def operator(self) -> Operator:
        """The name of Ā, for a layer that receives Ā x."""
        assert isinstance(self._layer, Propagation)
        return self._layer.operator

    def message(self, x: Tensor | SparseMatrix) -> Tensor:
        """Return what some nodes send, for layers whose costs have columns of messages."""
        message = self._layer.message(self._safe_to_write(x), self._batch.adj)
        return self._layer.add_scores(message) if sums_by_attention(self._layer) else message

    def output(self, block: Block, h: NodeFeatures, z: NodeFeatures) -> Tensor:
        """Return the output of a block: [k, width].

        Args:
            block: the nodes and edges.
            h: the layer's input.
            z: the messages, or the input where this is sent.
        """
        return self._update(h.rows(block.places), self._received(block, z))

    def _received(self, block: Block, z: NodeFeatures) -> Tensor:
        """Return what the nodes of a block receive: [k, ·]."""
        layer = self._layer
        if self._in_place and sums_by_operator(layer):
            return block.rows_of_inputs(layer.operator) @ z.all_rows()
        if self._in_place and sums_by_attention(layer):
            return layer.sums_of_block(
                z.all_rows(),
                self._dense(z.rows(block.places)),
                block.attention_of_inputs(),
                in_place=True,
            )
        adj = BlockAdjacency(block, self._batch.dtype, self._batch.device)
        sources = self._dense(z.rows(block.nodes))
        if sums_by_attention(layer):
            targets = sources[: block.count]
            return layer.sums_of_block(sources, targets, adj.attention, in_place=False)
        return layer.aggregate(sources, adj)[: block.count]

    def output_from_product(
        self, x: Tensor | SparseMatrix, product: Tensor | SparseMatrix
    ) -> Tensor:
        """Return the output of nodes with features ``x``, given their rows of Ā x."""
        return self._update(x, self._dense(self._safe_to_write(product)))

    def _update(self, x: Tensor | SparseMatrix, received: Tensor) -> Tensor:
        """Return the layer's output, after norm and activation, of nodes with features ``x``."""
        out = self._layer.update(self._safe_to_write(x), received)
        if self._norm is None:
            return out
        return activate(self._norm, out, activation=self._activation, overwrite=self._is_ours)

    def _safe_to_write(self, rows: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
        """Return rows that a step of the layer may write into, as a user's layer might."""
        return rows.clone() if isinstance(rows, Tensor) and not self._is_ours else rows

    @staticmethod
    def _dense(rows: Tensor | SparseMatrix) -> Tensor:
        assert isinstance(rows, Tensor)
        return rows


class OfferedLayer:
    """A layer that a model offers, PyG's or a user's, for some nodes at a time; see `layers_of`.

    Args:
        model: the model.
        layer: is called with the features of a block's nodes and the edges between them.
        batch: the graph.
    """

    def __init__(self, model: nn.Module, layer: ModelLayer, batch: Batch) -> None:
        takes = signature(model)
        names = inspect.signature(
            layer.forward if isinstance(layer, nn.Module) else layer
        ).parameters
        self._model = model
        self._layer = layer
        self._device = batch.device
        self._takes_adj = takes.structure == "adj"
        self._edge_data = {
            name: value.cpu()
            for name, value in batch.edge_data.items()
            if name in takes.edge_data and name in names
        }
        weight = batch.edge_data.get("edge_weight") if self._takes_adj else None
        self._weight = None if weight is None else weight.to("cpu", batch.dtype)

    def output(self, block: Block, h: NodeFeatures) -> Tensor:
        """Return the output of a block, for the layer's input ``h``: [k, width]."""
        x = h.rows(block.nodes)
        assert isinstance(x, Tensor)
        normalised = None
        if self._takes_adj or normalises(self._model):
            matrix = block.rows("gcn")
            normalised = matrix.pattern.edge_index().to(self._device), matrix.value.to(self._device)
        edges: Any = block.pattern.edge_index().to(self._device)
        if self._takes_adj:
            edges = self._adjacency(edges, x, block, normalised)
        data = {
            name: value[block.entries].to(self._device) for name, value in self._edge_data.items()
        }
        with layers_on_rows(self._model, x, normalised):
            out: Tensor = self._layer(x, edges, **data)
        return out[: block.count]

    def _adjacency(
        self, edges: Tensor, x: Tensor, block: Block, normalised: tuple[Tensor, Tensor] | None
    ) -> Adjacency:
        """Return the structure of a block.

        Its operator has the whole graph's rows for the nodes that are computed.
        """
        weight = None if self._weight is None else self._weight[block.entries].to(self._device)
        adj = Adjacency(edges, len(x), x.dtype, weight)
        assert normalised is not None
        (source, target), value = normalised
        adj.__dict__["gcn"] = SparseMatrix(target, source, value, (len(x), len(x)))
        return adj


def features_of(model: nn.Module, batch: Batch) -> NodeFeatures:
    """Return a graph's features, scaled as a model does."""
    outer = uncompiled(model)
    if isinstance(outer, ScaledModel):
        return NodeFeatures(batch.dense, batch.device, batch.dtype, outer.scale)
    features = batch.dense if as_gnn(model) is None else batch.features
    return NodeFeatures(features, batch.device, batch.dtype)


def structure_on_host(model: nn.Module, batch: Batch) -> Adjacency:
    """Return the edges of a graph, with the weights that a model reads."""
    takes = signature(model)
    reads_weight = takes.structure == "adj" or "edge_weight" in takes.edge_data
    weight = batch.edge_data.get("edge_weight") if reads_weight else None
    if (weight is None and batch.adj.edge_weight is not None) or batch.adj.device.type != "cpu":
        weight = None if weight is None else weight.cpu()
        return Adjacency.from_csr(batch.adj.pattern.to("cpu"), batch.dtype, weight)
    return batch.adj  # Its operators may be computed already.


class ByLayers(Inference):
    """Runs one layer for all nodes, then the next.

    Between layers, features are on the host, in memory or in files. What nodes send is computed
    first, for a piece of the nodes after another. Then every block of nodes reads the rows of its
    sources. A layer that a model offers is called on a block's nodes and sources, and rows of the
    sources are thrown away.

    Args:
        model: decides what is read of the graph; those that are evaluated have the same shapes.
        batch: the graph.
        costs: of the model's layers.
        plan: where features are stored, and how large a block is.
        wanted: mask [N] of the nodes whose output is wanted. Defaults to all.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        costs: Sequence[LayerCosts],
        plan: LayerPlan,
        wanted: Tensor | None = None,
    ) -> None:
        super().__init__(len(batch.x))
        self._batch = batch
        self._costs = costs
        self._plan = plan
        adj = structure_on_host(model, batch)
        hops = [layer.hops for layer in costs]
        self._required = required_nodes(hops, adj, wanted if batch.is_stored else None)
        if (last := self._required[-1].nodes) is not None:
            nodes = torch.zeros(len(batch.x), dtype=torch.bool)
            nodes[last] = True
            self.nodes = nodes.to(batch.device)

    def describe(self) -> dict[str, Any]:
        return {"method": "layers", "exact": True, "disk_bytes": self._plan.disk}

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        return_freed_memory()
        h = features_of(model, self._batch)
        *hidden, last = self._layers(model)
        for number, layer in enumerate(hidden):
            out = self._empty(len(self._required[number]), self._costs[number].width)
            for rows, values in self._run(layer, number, h):
                out.write(rows, values)
            h = out
        required = self._required[-1]
        for rows, values in self._run(last, len(hidden), h):
            yield required.numbers(rows), values

    def _layers(self, model: nn.Module) -> Sequence[GNNLayer | OfferedLayer]:
        gnn = as_gnn(model)
        if gnn is not None:
            gnn.check_input(self._batch.x)
            return [
                GNNLayer(gnn, number, self._batch, in_place=not costs.source)
                for number, costs in enumerate(self._costs)
            ]
        return [OfferedLayer(model, layer, self._batch) for layer in layers_of(model) or []]

    def _empty(self, nodes: int, width: int) -> NodeFeatures:
        return NodeFeatures.empty(nodes, width, self._batch, in_file=self._plan.in_file)

    def _run(
        self, layer: GNNLayer | OfferedLayer, number: int, h: NodeFeatures
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield a layer's output for one range of its nodes after another; then close its input."""
        costs = self._costs[number]
        required = self._required[number]
        work = self._plan.work
        if isinstance(layer, OfferedLayer):
            for rows, block in required.blocks(costs, work):
                yield rows, layer.output(block, h)
        elif costs.uses_product:
            product = self._product(layer)
            for rows in required.pieces(costs, work):
                inputs = required.places_of(rows)
                yield rows, layer.output_from_product(h.rows(inputs), product.rows(inputs))
        else:
            z = self._messages(layer, costs, h, required.inputs) if costs.messages else h
            for rows, block in required.blocks(costs, work):
                yield rows, layer.output(block, h, z)
            z.close()
        h.close()

    def _messages(
        self, layer: GNNLayer, costs: LayerCosts, h: NodeFeatures, inputs: int
    ) -> NodeFeatures:
        """Return what all nodes of a layer's input send."""
        z = self._empty(inputs, costs.messages)
        for rows in row_pieces(inputs, costs.row, self._plan.work):
            z.write(rows, layer.message(h.rows(rows)))
        return z

    def _product(self, layer: GNNLayer) -> NodeFeatures:
        """Return Ā x."""
        batch = self._batch
        product = batch.adj.cached_product(layer.operator, batch.x)
        assert product is not None
        return NodeFeatures(product, batch.device, batch.dtype)
