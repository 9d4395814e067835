import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation import by_parts as parts_module
from gistgnn.evaluation.scores import evaluate, predict
from gistgnn.graphs.clustering import cluster
from gistgnn.nn import GCN
from gistgnn.sampling import whole_graph
from gistgnn.training.metric import NAMED
from tests.helpers.models import C, Features, Stack, tiny_graph
from tests.helpers.refusals import refused

from .cases import random_model, whole

GRAPH = tiny_graph(nodes=60)
MODELS = {
    "ours": lambda: random_model("graphsage", [6], "batch").float(),
    "PyG's": lambda: Stack((6,), GCNConv).eval(),
    "without a graph": lambda: Features((6,)).eval(),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kept", [True, False])
def test_one_part_is_the_whole(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "available_bytes", lambda _: 2**40 * kept)
    model, batch = MODELS[name](), whole_graph(GRAPH)
    inference = Evaluation("parts", parts=1).prepare(model, batch)
    assert inference.describe() == {"method": "parts", "exact": False, "parts": 1}
    for _ in range(2):
        torch.testing.assert_close(predict(model, batch, inference), whole(model, batch))


@pytest.mark.parametrize("kept", [True, False])
def test_edges_between_parts_are_left_out(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "available_bytes", lambda _: 2**40 * kept)
    model = random_model("gcn", [6, 6]).float()
    clusters = cluster(GRAPH.edge_index, 60, 5, "metis", 3)
    inside = clusters.assignment[GRAPH.edge_index[0]] == clusters.assignment[GRAPH.edge_index[1]]
    assert 0 < inside.sum() < len(inside)
    with torch.no_grad():
        expected = model(GRAPH.x, GRAPH.edge_index[:, inside])
    inference = Evaluation("parts", parts=5).prepare(model, whole_graph(GRAPH), seed=3)
    torch.testing.assert_close(predict(model, whole_graph(GRAPH), inference), expected)


def test_metis_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GCN(GRAPH.num_features, (4,), C)
    inference = Evaluation("parts", parts=3).prepare(model, whole_graph(GRAPH))
    monkeypatch.setattr(parts_module, "cluster", None)
    for _ in range(2):
        inference.logits(model)


def test_several_labels() -> None:
    graph = tiny_graph(nodes=60, multi_label=True)
    model = nn.Linear(graph.num_features, C)
    actual = evaluate(model, graph, evaluation=Evaluation("parts", parts=7))
    assert all(scores.pop("f1_parts") <= 1.0 for scores in actual.values())
    assert actual == evaluate(model, graph)


@pytest.mark.parametrize("several", [False, True])
def test_the_f1_of_the_parts_is_averaged(several: bool) -> None:
    graph = tiny_graph(nodes=60, multi_label=several)
    model, chosen = nn.Linear(graph.num_features, C), Evaluation("parts", parts=7)
    logits = predict(model, whole_graph(graph), chosen)
    parts = cluster(graph.edge_index, 60, 7, "metis", 0).assignment
    for split, mask in {"train": graph.train, "validation": graph.val, "test": graph.test}.items():
        each = [NAMED["f1_micro"](logits[inside], graph.y[inside]) for inside in _nodes_by_part(mask, parts)]
        found = evaluate(model, graph, [split], evaluation=chosen)[split]
        assert found["f1_parts"] == pytest.approx(sum(each) / len(each))
    assert "f1_parts" not in evaluate(model, graph)["test"]


def _nodes_by_part(mask: torch.Tensor, parts: torch.Tensor) -> list[torch.Tensor]:
    """The nodes of a split, as one mask for each part that has any."""
    every = [mask & (parts == part) for part in parts.unique()]
    return [inside for inside in every if inside.any()]


def test_more_parts_than_nodes() -> None:
    with refused("parts is 61, expected 1 to 60, the nodes of the graph"):
        Evaluation("parts", parts=61).prepare(nn.Linear(7, C), whole_graph(GRAPH))
