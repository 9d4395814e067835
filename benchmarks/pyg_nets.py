"""Small models that hold one of PyG's layers, for `benchmarks.pyg_modules`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import Linear

F = 7  # features of a node
C = 3  # classes
D = 2  # features of an edge
TYPES = 3  # of edges

Call = Callable[..., Any]  # (layer, h, x, edge_index, edge data ...) -> features


def plain(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor, *data: Tensor) -> Any:
    """Call a layer as PyG's layers are usually called."""
    return layer(h, edge_index, *data)


class Net(nn.Module):
    """Layers in a row."""

    def __init__(self, layers: Sequence[nn.Module], call: Call = plain) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.call = call

    def run(self, x: Tensor, edge_index: Tensor, *data: Tensor) -> Tensor:
        """Return the output of the last layer. Linear layers see no edges."""
        h = x
        for k, layer in enumerate(self.layers):
            h = layer(h) if isinstance(layer, Linear) else self.call(layer, h, x, edge_index, *data)
            if k + 1 < len(self.layers):
                h = h.relu()
        return h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.run(x, edge_index)


def _net_of(forward: Callable[..., Any]) -> type[Net]:
    """Return the class of layers that take edge data: a forward's arguments say which."""
    return type("Net", (Net,), {"forward": forward})


NETS = {
    "": Net,
    "edge_weight": _net_of(
        lambda self, x, edge_index, edge_weight: self.run(x, edge_index, edge_weight)
    ),
    "edge_attr": _net_of(lambda self, x, edge_index, edge_attr: self.run(x, edge_index, edge_attr)),
    "edge_type": _net_of(lambda self, x, edge_index, edge_type: self.run(x, edge_index, edge_type)),
}


class LastOf(nn.Module):
    """A model in which the outputs of two layers are joined by jumping knowledge."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(F, width), pyg.GCNConv(width, width)])
        self.jump = pyg.JumpingKnowledge("cat")
        self.out = Linear(2 * width, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.convs[0](x, edge_index).relu()
        second = self.convs[1](first, edge_index).relu()
        return self.out(self.jump([first, second]))


class EdgeUpdate(nn.Module):
    """The model of edges for MetaLayer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = Linear(2 * width + D, D)

    def forward(self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: Any, batch: Any) -> Tensor:
        return self.net(torch.cat([src, dst, edge_attr], dim=1))


class NodeUpdate(nn.Module):
    """The model of nodes for MetaLayer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = Linear(width + D, width)
        self.mean = pyg.MeanAggregation()

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Any, batch: Any
    ) -> Tensor:
        received = self.mean(edge_attr, edge_index[1], dim_size=len(x))
        return self.net(torch.cat([x, received], dim=1))


class Typed(nn.Module):
    """A model whose layer takes dictionaries of types of nodes and edges."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.out = Linear(width, C)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.out(self.layer(x_dict, edge_index_dict)["node"])
