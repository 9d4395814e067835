"""PyG's layers and models in small models for GIST, as a user would write them.

`benchmarks.pyg_table` tries them. A layer with two sizes stands twice in a stack, with one width
(an axis of its own). A layer whose two sizes are equal stands between two linear layers, and all
layers share one integer width. Positions of nodes are three of their features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import Linear

from benchmarks.pyg_nets import (
    NETS,
    TYPES,
    C,
    Call,
    D,
    EdgeUpdate,
    F,
    LastOf,
    NodeUpdate,
    Typed,
    plain,
)

POSITIONS = slice(0, 3)  # columns of x


@dataclass(frozen=True)
class Case:
    """A module in a model: how it is built, at which widths, and which edge data it takes."""

    build: Callable[[Any], nn.Module]
    widths: int | tuple[int, ...]
    form: str  # of the model around it, as the table says it


def stack(layer: Callable[[int, int], nn.Module], data: str = "", call: Call = plain) -> Case:
    """Return the case of a layer with two sizes."""
    return Case(
        lambda w: NETS[data]([layer(F, w[0]), layer(w[0], C)], call), (8,), _form_of("stack", data)
    )


def three(layer: Callable[[int, int], nn.Module], data: str = "") -> Case:
    """Return the case of a layer with two sizes between two widths that may differ."""
    return Case(
        lambda w: NETS[data]([layer(F, w[0]), layer(*w), layer(w[1], C)]),
        (8, 8),
        _form_of("stack of 3", data),
    )


def between(
    layer: Callable[[int], nn.Module], data: str = "", call: Call = plain, copies: int = 1
) -> Case:
    """Return the case of a layer that multiplies the number of features by ``copies``."""
    return Case(
        lambda w: NETS[data]([Linear(F, w), layer(w), Linear(copies * w, C)], call),
        8,
        _form_of("between linear", data),
    )


def model(build: Callable[[Any], nn.Module], widths: int | tuple[int, ...] = 8) -> Case:
    """Return the case of a model that is used as it is."""
    return Case(build, widths, "as it is")


def _form_of(kind: str, data: str) -> str:
    return f"{kind}, `{data}`" if data else kind


def _with_first(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor, *data: Tensor) -> Any:
    return layer(h, h, edge_index, *data)  # The layer's own input also stands for its argument x_0.


def _with_positions(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor) -> Any:
    return layer(h, x[:, POSITIONS], edge_index)


def _with_normals(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor) -> Any:
    return layer(h, x[:, POSITIONS], x[:, 3:6], edge_index)


def _first_output(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor, *data: Tensor) -> Any:
    return layer(h, edge_index, *data)[0]


def _signed(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
    positive = edge_type == 0
    return layer(h, edge_index[:, positive], edge_index[:, ~positive])


def _of_layers(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor) -> Any:
    return layer(torch.stack([h, h.relu()], dim=1), edge_index)


def _by_kinds(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
    kinds = x.new_zeros(len(x), dtype=torch.long)
    return layer(h, edge_index, kinds, edge_type, x.new_zeros(len(edge_type), D))


KIND = ("node", "to", "node")
METADATA = (["node"], [KIND])
DEGREES = torch.tensor([0, 4, 8, 12, 8, 4, 2, 1])  # a histogram of in-degrees, for PNA
PNA: dict[str, Any] = {
    "aggregators": ["mean", "max"],
    "scalers": ["identity", "amplification"],
    "deg": DEGREES,
}

LAYERS: dict[str, Case] = {
    "SimpleConv": between(lambda w: pyg.SimpleConv("mean"), "edge_weight"),
    "GCNConv": stack(pyg.GCNConv, "edge_weight"),
    "ChebConv": stack(partial(pyg.ChebConv, K=3), "edge_weight"),
    "SAGEConv": stack(pyg.SAGEConv),
    "GraphConv": stack(pyg.GraphConv, "edge_weight"),
    "GravNetConv": between(
        lambda w: pyg.GravNetConv(w, w, 3, 4, 5), call=lambda layer, h, *_: layer(h)
    ),
    "GatedGraphConv": between(lambda w: pyg.GatedGraphConv(w, 2), "edge_weight"),
    "ResGatedGraphConv": stack(partial(pyg.ResGatedGraphConv, edge_dim=D), "edge_attr"),
    "GATConv": stack(partial(pyg.GATConv, edge_dim=D), "edge_attr"),
    "GATv2Conv": stack(partial(pyg.GATv2Conv, edge_dim=D), "edge_attr"),
    "TransformerConv": stack(partial(pyg.TransformerConv, edge_dim=D), "edge_attr"),
    "AGNNConv": between(lambda w: pyg.AGNNConv()),
    "TAGConv": stack(pyg.TAGConv, "edge_weight"),
    "GINConv": stack(lambda a, b: pyg.GINConv(Linear(a, b))),
    "GINEConv": stack(lambda a, b: pyg.GINEConv(Linear(a, b), edge_dim=D), "edge_attr"),
    "ARMAConv": stack(pyg.ARMAConv, "edge_weight"),
    "SGConv": stack(pyg.SGConv, "edge_weight"),
    "SSGConv": stack(partial(pyg.SSGConv, alpha=0.1), "edge_weight"),
    "APPNP": between(lambda w: pyg.APPNP(2, 0.1), "edge_weight"),
    "MFConv": stack(pyg.MFConv),
    "RGCNConv": stack(partial(pyg.RGCNConv, num_relations=TYPES), "edge_type"),
    "FastRGCNConv": stack(partial(pyg.FastRGCNConv, num_relations=TYPES), "edge_type"),
    "RGATConv": stack(partial(pyg.RGATConv, num_relations=TYPES), "edge_type"),
    "SignedConv": between(lambda w: pyg.SignedConv(w, w, True), "edge_type", _signed, copies=2),
    "DNAConv": between(pyg.DNAConv, call=_of_layers),
    "PointNetConv": between(lambda w: pyg.PointNetConv(Linear(w + 3, w)), call=_with_positions),
    "GMMConv": stack(partial(pyg.GMMConv, dim=D, kernel_size=2), "edge_attr"),
    "SplineConv": stack(partial(pyg.SplineConv, dim=D, kernel_size=2), "edge_attr"),
    "NNConv": stack(lambda a, b: pyg.NNConv(a, b, Linear(D, a * b)), "edge_attr"),
    "NNConv with two widths": three(lambda a, b: pyg.NNConv(a, b, Linear(D, a * b)), "edge_attr"),
    "CGConv": between(partial(pyg.CGConv, dim=D), "edge_attr"),
    "EdgeConv": stack(lambda a, b: pyg.EdgeConv(Linear(2 * a, b))),
    "DynamicEdgeConv": stack(
        lambda a, b: pyg.DynamicEdgeConv(Linear(2 * a, b), 4), call=lambda layer, h, *_: layer(h)
    ),
    "XConv": stack(
        lambda a, b: pyg.XConv(a, b, 3, 4), call=lambda layer, h, x, _: layer(h, x[:, POSITIONS])
    ),
    "PPFConv": between(lambda w: pyg.PPFConv(Linear(w + 4, w)), call=_with_normals),
    "FeaStConv": stack(pyg.FeaStConv),
    "PointTransformerConv": stack(
        lambda a, b: pyg.PointTransformerConv(a, b, pos_nn=Linear(3, b)), call=_with_positions
    ),
    "HypergraphConv": stack(pyg.HypergraphConv),
    "LEConv": stack(pyg.LEConv, "edge_weight"),
    "PNAConv": stack(partial(pyg.PNAConv, edge_dim=D, **PNA), "edge_attr"),
    "ClusterGCNConv": stack(pyg.ClusterGCNConv),
    "GENConv": between(lambda w: pyg.GENConv(w, w)),
    "GENConv with two sizes": three(pyg.GENConv),
    "GCN2Conv": between(lambda w: pyg.GCN2Conv(w, 0.1), "edge_weight", _with_first),
    "PANConv": stack(partial(pyg.PANConv, filter_size=2), call=_first_output),
    "WLConv": between(lambda w: pyg.WLConv()),
    "WLConvContinuous": between(lambda w: pyg.WLConvContinuous(), "edge_weight"),
    "FiLMConv": stack(partial(pyg.FiLMConv, num_relations=TYPES), "edge_type"),
    "SuperGATConv": stack(pyg.SuperGATConv),
    "FAConv": between(pyg.FAConv, call=_with_first),
    "EGConv": between(lambda w: pyg.EGConv(w, w, num_heads=1, num_bases=2)),
    "EGConv with two heads": between(lambda w: pyg.EGConv(w, w, num_heads=2, num_bases=2)),
    "PDNConv": stack(partial(pyg.PDNConv, edge_dim=D, hidden_channels=4), "edge_attr"),
    "GeneralConv": stack(partial(pyg.GeneralConv, in_edge_channels=D), "edge_attr"),
    "HGTConv": Case(lambda w: Typed(pyg.HGTConv(F, w[0], METADATA), w[0]), (8,), "with `x_dict`"),
    "HEATConv": stack(lambda a, b: pyg.HEATConv(a, b, 1, TYPES, 4, D, 4), "edge_type", _by_kinds),
    "HeteroConv": Case(
        lambda w: Typed(pyg.HeteroConv({KIND: pyg.SAGEConv(F, w[0])}), w[0]), (8,), "with `x_dict`"
    ),
    "HANConv": Case(lambda w: Typed(pyg.HANConv(F, w[0], METADATA), w[0]), (8,), "with `x_dict`"),
    "LGConv": between(lambda w: pyg.LGConv(), "edge_weight"),
    "PointGNNConv": between(
        lambda w: pyg.PointGNNConv(Linear(w, 3), Linear(w + 3, w), Linear(w, w)),
        call=_with_positions,
    ),
    "GPSConv": between(lambda w: pyg.GPSConv(w, pyg.GCNConv(w, w), heads=1)),
    "GPSConv with two heads": between(lambda w: pyg.GPSConv(w, pyg.GCNConv(w, w), heads=2)),
    "AntiSymmetricConv": between(pyg.AntiSymmetricConv),
    "DirGNNConv": stack(lambda a, b: pyg.DirGNNConv(pyg.SAGEConv(a, b))),
    "MixHopConv": between(lambda w: pyg.MixHopConv(w, w, [0, 1]), "edge_weight", copies=2),
    "MeshCNNConv": stack(pyg.MeshCNNConv),
}


def _in_place(layer: nn.Module, h: Tensor, x: Tensor, edge_index: Tensor) -> Any:
    return layer(h.clone(), edge_index)  # The layer frees its input.


BASIC = {
    "GCN": pyg.models.GCN,
    "GraphSAGE": pyg.models.GraphSAGE,
    "GIN": pyg.models.GIN,
    "GAT": pyg.models.GAT,
    "EdgeCNN": pyg.models.EdgeCNN,
    "PNA": partial(pyg.models.PNA, **PNA),
}

MODELS: dict[str, Case] = {
    **{name: model(lambda w, kind=kind: kind(F, w, 2, C)) for name, kind in BASIC.items()},
    "MLP": model(lambda w: pyg.models.MLP([F, w, C])),
    "JumpingKnowledge": Case(LastOf, 8, "after two GCNConv"),
    "MetaLayer": between(
        lambda w: pyg.MetaLayer(EdgeUpdate(w), NodeUpdate(w)), "edge_attr", _first_output
    ),
    "DeepGCNLayer": between(
        lambda w: pyg.DeepGCNLayer(pyg.GCNConv(w, w), pyg.LayerNorm(w), nn.ReLU())
    ),
    "GroupAddRev": between(
        lambda w: pyg.GroupAddRev(pyg.SAGEConv(w // 2, w // 2), num_groups=2), call=_in_place
    ),
    "GraphUNet": model(lambda w: pyg.models.GraphUNet(F, w, C, 2)),
    "AttentiveFP": model(lambda w: pyg.models.AttentiveFP(F, w, C, D, 2, 2)),
    "RECT_L": model(lambda w: pyg.models.RECT_L(F, w)),
    "LINKX": model(lambda w: pyg.models.LINKX(40, F, w, C, 2)),
    "LightGCN": model(lambda w: pyg.models.LightGCN(40, w, 2)),
    "PMLP": model(lambda w: pyg.models.PMLP(F, w, C, 2)),
    "NeuralFingerprint": model(lambda w: pyg.models.NeuralFingerprint(F, w, C, 2)),
    "SignedGCN": model(lambda w: pyg.models.SignedGCN(F, w, 2)),
    "GAE": model(lambda w: pyg.models.GAE(pyg.models.GCN(F, w, 2, C))),
    "DeepGraphInfomax": model(
        lambda w: pyg.models.DeepGraphInfomax(
            w, pyg.GCNConv(F, w), lambda z, *_: z.mean(0), lambda *a: a
        )
    ),
    "SGFormer": model(lambda w: pyg.models.SGFormer(F, w, C)),
    "Polynormer": model(lambda w: pyg.models.Polynormer(F, w, C)),
    "SchNet": model(lambda w: pyg.models.SchNet(hidden_channels=w)),
}
