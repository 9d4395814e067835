"""Evaluation by layers equals a plain forward pass.

Features are dense or mostly zero, in memory or in a folder.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import models as pyg

from gistgnn import GIST, load
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import layer_costs, least_bytes
from gistgnn.evaluation.scores import predict
from gistgnn.graphs import Graph, Standardisation
from gistgnn.nn import GAT, GCN, GIN, GATv2, GraphSAGE
from gistgnn.nn.gnn import GNN
from gistgnn.nn.scaling import scaled_model
from gistgnn.sampling import whole_graph
from tests.helpers.clustered_folders import make_clustered

FEATURES = 12
CLASSES = 3
NODES = 60

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "gcn": lambda width: GCN(FEATURES, (width, width), CLASSES, norm="layer"),
    "graphsage": lambda width: GraphSAGE(FEATURES, (width, 5), CLASSES, norm="batch"),
    "gin": lambda width: GIN(FEATURES, (width, 5), CLASSES),
    "gat": lambda width: GAT(FEATURES, (width, 6), CLASSES, heads=2),
    "gatv2": lambda width: GATv2(FEATURES, (width, 6), CLASSES, heads=2),
    "PyG's GCN": lambda width: pyg.GCN(FEATURES, width, 3, CLASSES),
    "PyG's GraphSAGE": lambda width: pyg.GraphSAGE(FEATURES, width, 3, CLASSES),
    "PyG's GIN": lambda width: pyg.GIN(FEATURES, width, 3, CLASSES),
    "PyG's GAT": lambda width: pyg.GAT(FEATURES, width, 3, CLASSES, heads=2),
}


def some_graph(*, sparse: bool) -> Graph:
    rng = torch.Generator().manual_seed(3)
    x = torch.rand(NODES, FEATURES, generator=rng) + 0.5
    if sparse:
        x = x * (torch.rand(NODES, FEATURES, generator=rng) < 0.05)
    # The last node has no edge.
    edge_index = torch.randint(NODES - 1, (2, 4 * NODES), generator=rng)
    order = torch.randperm(NODES, generator=rng)
    y = torch.randint(CLASSES, (NODES,), generator=rng)
    splits = {"train": order[:20], "val": order[20:40], "test": order[40:]}
    return Graph.build(x, edge_index, y, num_classes=CLASSES, **splits)


def plain(model: nn.Module, graph: Graph) -> Tensor:
    """The output of the model for dense features in double precision, from its forward alone."""
    with torch.no_grad():
        return deepcopy(model).double()(graph.x.double(), graph.edge_index).float()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("location", ["memory", "folder of clusters"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_layers_give_the_plain_output(
    name: str, sparse: bool, location: str, scaled: bool, tmp_path: Path
) -> None:
    graph = some_graph(sparse=sparse)
    if location != "memory":
        graph, _ = make_clustered(graph, 5, tmp_path / "graph")
    batch = whole_graph(graph if location == "memory" else load(tmp_path / "graph"))
    for width in (4, FEATURES, 32):
        torch.manual_seed(width)
        model = MODELS[name](width).eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.normal_()
        ours = isinstance(model, GNN)
        if scaled:
            model = scaled_model(
                model, Standardisation(torch.rand(FEATURES), torch.rand(FEATURES) + 0.5)
            )
        expected = plain(model, graph)
        memories = [2**20]
        if ours:
            memories.append(least_bytes(layer_costs(model, batch), batch))
        for memory in memories:
            logits = predict(model, batch, Evaluation("layers", memory))
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_a_run_on_a_folder_of_sparse_features_scores_as_in_memory(tmp_path: Path) -> None:
    """All is by default but the evaluation's memory.

    Hidden layers are wider than the features, which are mostly zero.
    """
    graph, _ = make_clustered(some_graph(sparse=True), 5, tmp_path / "graph")
    results: list[Any] = []
    for source in (load(tmp_path / "graph"), graph):
        gist = GIST(lambda widths: GCN(FEATURES, widths, CLASSES), (32, 32), 2)
        results.append(gist.fit(source, epochs=2, progress=False, evaluation=Evaluation("layers")))
    assert results[0].test == results[1].test


def test_a_model_that_scales_keeps_to_its_memory(tmp_path: Path) -> None:
    """The scaled features of a folder are never all in memory.

    No tensor of all nodes and features is made.
    """
    graph, _ = make_clustered(some_graph(sparse=False), 5, tmp_path / "graph")
    scaling = Standardisation(torch.rand(FEATURES), torch.rand(FEATURES) + 0.5)
    model = scaled_model(GCN(FEATURES, (4,), CLASSES).eval(), scaling)
    stored = whole_graph(load(tmp_path / "graph"))
    inference = Evaluation("layers", 2**20).prepare(model, stored)
    assert not any(layer.uses_product for layer in inference._costs)
    replaced = replace(graph, x=(graph.x - scaling.mean) / scaling.std)
    torch.testing.assert_close(
        predict(model, stored, inference), plain(model.model, replaced), rtol=1e-4, atol=1e-5
    )
