"""Evaluation by rows equals the whole graph's forward pass.

The models are PyG's, and users' with layers().
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv, SGConv, SimpleConv, TAGConv
from torch_geometric.nn.models import GAT, GCN, GIN, PNA, EdgeCNN, GraphSAGE

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.by_layers import ByLayers
from gistgnn.evaluation.scores import evaluate, predict
from gistgnn.graphs import Standardisation, load
from gistgnn.nn.convolutions import GCNLayer
from gistgnn.nn.scaling import scaled_model
from gistgnn.sampling import Batch
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.models import C, F, tiny_graph
from tests.helpers.refusals import refused

from .cases import random_batch, whole_graph_output

DEGREES: dict[str, Any] = {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"]}
DEGREES["deg"] = torch.tensor([1, 4, 8, 4, 2])
PYG = {
    "gcn": (GCN, {"norm": "batch", "act_first": True}),
    "gcn cat": (GCN, {"jk": "cat", "norm": "layer_norm", "norm_kwargs": {"mode": "node"}}),
    "sage": (GraphSAGE, {"jk": "last"}),
    "sage lstm": (GraphSAGE, {"jk": "lstm", "aggr": "max"}),
    "gin": (GIN, {"norm": "batch", "jk": "max"}),
    "gat": (GAT, {"heads": 2, "act": "elu", "edge_dim": 2}),
    "gatv2": (GAT, {"heads": 2, "v2": True, "residual": True}),
    "pna": (PNA, {**DEGREES, "edge_dim": 2}),
    "edge": (EdgeCNN, {"act": None}),
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    kind, options = PYG[name]
    return kind(F, 8, 3, C, dropout=0.5, **options).double()


def with_data(batch: Batch, *names: str) -> Batch:
    torch.manual_seed(0)
    edges = batch.edge_index.shape[1]
    data = {"edge_weight": torch.rand(edges).double(), "edge_attr": torch.rand(edges, 2).double()}
    return replace(batch, edge_data={name: data[name] for name in names})


class Own(nn.Module):
    """A user's model that offers its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(F, 8)
        self.second = GCNConv(8, 8)
        self.out = SAGEConv(8, C)

    def layers(self) -> list[Any]:
        return [lambda x, edge_index: self.first(x).relu(), self.hidden, self.out]

    def hidden(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return x + self.second(x, edge_index, edge_weight).relu()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.out(self.hidden(self.first(x).relu(), edge_index, edge_weight), edge_index)


class OfAdjacency(nn.Module):
    """A user's model of our layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one = GCNLayer(F, 8)
        self.two = GCNLayer(8, C)

    def layers(self) -> list[Any]:
        return [self.one, self.two]

    def forward(self, x: Tensor, adj: Any) -> Tensor:
        return self.two(self.one(x, adj), adj)


class OverHops(nn.Module):
    """A user's model whose first layer needs the edges into the sources, too."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = SAGEConv(8, C)

    def layers(self) -> list[Any]:
        return [self.hidden, self.second]

    def hidden(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.first(x, edge_index).relu()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.hidden(x, edge_index), edge_index)


class SumsOverTwoHops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * F, 8)
        self.sum = SimpleConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(torch.cat([x, self.sum(self.sum(x, edge_index), edge_index)], dim=1))


OVER_HOPS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "sums over two hops": (SumsOverTwoHops, 2),
    "degrees of the sources": (partial(GCNConv, F, 8, improved=True), 2),
    "SGConv": (partial(SGConv, F, 8, K=2), 3),
    "TAGConv": (partial(TAGConv, F, 8, K=2), 3),
    "GCNConv": (partial(GCNConv, F, 8), 1),
}
MODELS: dict[str, Callable[[], nn.Module]] = (
    {name: partial(build, name) for name in PYG}
    | {"a function, a method and a module": Own, "with an adj": OfAdjacency}
    | {name: lambda layer=layer: OverHops(layer()) for name, (layer, _) in OVER_HOPS.items()}
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_rows_give_the_output_of_the_whole_graph(name: str, weighted: bool) -> None:
    model = MODELS[name]().double()
    features = ["edge_attr"] * ("edge_dim" in PYG.get(name, ("", {}))[1])
    batch = with_data(random_batch(), *["edge_weight"] * weighted, *features)
    scaling = Standardisation(torch.rand(F).double(), torch.rand(F).double() + 0.5)
    model = scaled_model(model, scaling)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
    expected = whole_graph_output(model.eval(), batch)
    model.train()
    with refused("1 bytes of memory"):
        method = "layers" if name in OVER_HOPS else "auto"
        predict(model, batch, Evaluation(method, memory=1))
    inference = Evaluation("layers").prepare(model, batch)
    assert isinstance(inference, ByLayers)
    for pieces in (
        {"in_file": True, "work": 0},
        {"in_file": False, "work": 5000},
        {"in_file": True},
    ):
        inference._plan = inference._plan._replace(**pieces)
        logits = predict(model, batch, inference)
        assert not logits.requires_grad
        torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    assert Evaluation(memory=2**24).prepare(model, batch).describe()["method"] == "whole"
    assert model.training


@pytest.mark.parametrize("name", OVER_HOPS)
def test_a_layer_gets_the_hops_that_it_needs(name: str) -> None:
    layer, hops = OVER_HOPS[name]
    torch.manual_seed(0)
    inference = Evaluation("layers").prepare(OverHops(layer()).double().eval(), random_batch())
    assert isinstance(inference, ByLayers)
    assert [costs.hops for costs in inference._costs] == [hops, 1]


def test_too_many_hops_are_refused() -> None:
    batch = random_batch()
    torch.manual_seed(0)
    model = OverHops(TAGConv(F, 8, K=4)).double().eval()
    with refused("OverHops", "layers()"):
        Evaluation("layers").prepare(model, batch)
    # In a graph where a node's neighbourhood may be all of it, the whole graph takes less.
    model = OverHops(TAGConv(F, 8, K=2)).double().eval()
    with refused("layer by layer this model needs"):
        Evaluation("layers", memory=1).prepare(model, batch)
    assert Evaluation(memory=1).prepare(model, batch).describe()["method"] == "whole"


@pytest.mark.parametrize("name", ["gcn", "gat", "pna", "TAGConv"])
def test_a_folder_is_scored_as_in_memory(name: str, tmp_path: Path) -> None:
    graph = tiny_graph(90)
    torch.manual_seed(0)
    model = MODELS[name]().float().eval()
    graph = replace(
        graph, train=torch.arange(90) > 2, val=torch.arange(90) == 0, test=torch.arange(90) == 1
    )
    if "edge_dim" in PYG.get(name, ("", {}))[1]:
        graph = replace(graph, edge_attr=torch.rand(graph.num_edges, 2))
    same, _ = make_clustered(graph, 9, tmp_path / "graph")
    stored = load(str(tmp_path / "graph"))
    expected = evaluate(model, same, evaluation=Evaluation("whole"))
    for splits in (["train", "validation", "test"], ["validation"]):
        scores = evaluate(model, stored, splits, evaluation=Evaluation("layers", 2**20))
        assert scores == {split: expected[split] for split in splits}
