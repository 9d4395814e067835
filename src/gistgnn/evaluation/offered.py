"""The layers that a model offers, PyG's or a user's."""

import sys
from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.nn.scaling import plain_model

ModelLayer = Callable[..., Tensor]


def layers_of(model: nn.Module) -> list[ModelLayer] | None:
    """Return the layers that a model offers, or None if it offers none.

    It does so by a method ``layers()``, or by being PyG's `BasicGNN`. The model is their
    composition. A layer is a function or a module, and is called as the model's forward: ``layer(x,
    edge_index)`` or ``layer(x, adj)``, with the edge data that its arguments name. A node's row of
    the output depends on its own row of ``x``, on its incoming edges and on the rows of their
    sources; or on what is a few edges away, see `_with_hops` in `choosing.py`. It does not depend
    on the mean of all nodes. The degrees in `GCNConv` are those of the whole graph.
    """
    model = plain_model(model)
    offered = getattr(type(model), "layers", None)
    if callable(offered):
        return list(offered(model))
    if "torch_geometric.nn" not in sys.modules:
        return None
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    if not isinstance(model, BasicGNN):
        return None
    return [_basic_layer(model, number) for number in range(len(model.convs))]


def _basic_layer(model: Any, number: int) -> ModelLayer:
    """Return a model with one layer of a `BasicGNN` alone, which shares its parameters."""
    jumps = hasattr(model, "jk")
    last = number + 1 == len(model.convs)
    layer = copy(model)
    layer._modules = copy(model._modules)  # The children are the model's, the table of them is not.
    layer.convs = nn.ModuleList([model.convs[number]])
    layer.norms = nn.ModuleList([model.norms[number]])
    layer.num_layers = 1 if last else 2  # PyG leaves out norm and activation of the last one
    if jumps:
        del layer.jk
    if hasattr(model, "lin") and (jumps or not last):
        del layer.lin
    if not jumps:
        return layer.forward

    def jumping(
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Any:
        # `x` has the outputs of all layers before, side by side.
        outputs = list(x.split(model.hidden_channels, dim=1)) if number else []
        outputs.append(
            layer.forward(outputs[-1] if outputs else x, edge_index, edge_weight, edge_attr)
        )
        return model.lin(model.jk(outputs)) if last else torch.cat(outputs, dim=1)

    return jumping
