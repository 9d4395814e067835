"""Evaluation of parts: alone, several in one forward pass, and a sample of them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation import inference as parts_module
from gistgnn.evaluation.inference import ByParts
from gistgnn.evaluation.scores import evaluate, mean_f1, predict
from gistgnn.graphs import Graph
from gistgnn.graphs.clustering import cluster
from gistgnn.nn import MODELS as OURS
from gistgnn.sampling import Batch, whole_graph
from gistgnn.training.metric import NAMED
from tests.helpers.edges import MODELS as EDGE_MODELS
from tests.helpers.edges import edge_graph
from tests.helpers.models import C, Features, Stack, tiny_graph
from tests.helpers.refusals import refused

from .cases import random_model, whole_graph_output

GRAPH = tiny_graph(nodes=60)
SPLITS = {"train": GRAPH.train, "validation": GRAPH.val, "test": GRAPH.test}
MODELS = {
    "ours": lambda: random_model("graphsage", [6], "batch").float(),
    "PyG's": lambda: Stack((6,), GCNConv).eval(),
    "without a graph": lambda: Features((6,)).eval(),
}


@pytest.fixture(params=[True, False], ids=["kept", "made anew"])
def _batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "available_bytes", lambda _: 2**40 * request.param)


@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize("name", MODELS)
def test_one_part_is_the_whole_graph(name: str) -> None:
    model = MODELS[name]()
    batch = whole_graph(GRAPH)
    inference = Evaluation("parts", parts=1).prepare(model, batch)
    assert inference.describe() == {"method": "parts", "exact": False, "parts": 1}
    for _ in range(2):
        torch.testing.assert_close(
            predict(model, batch, inference), whole_graph_output(model, batch)
        )


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize("name", ["gcn", *EDGE_MODELS])
def test_edges_between_parts_are_left_out(name: str) -> None:
    graph = edge_graph(60)
    model = random_model("gcn", [6, 6]).float() if name == "gcn" else EDGE_MODELS[name]((6,)).eval()
    clusters = cluster(graph.edge_index, 60, 5, "metis", 3)
    batch = whole_graph(graph)
    inside = clusters.assignment[graph.edge_index[0]] == clusters.assignment[graph.edge_index[1]]
    assert 0 < inside.sum() < len(inside)
    data = {key: value[inside] for key, value in graph.edge_data.items()}
    alone = Batch(graph.x, graph.edge_index[:, inside], graph.y, batch.loss_nodes, edge_data=data)
    inference = Evaluation("parts", parts=5).prepare(model, batch, seed=3)
    torch.testing.assert_close(predict(model, batch, inference), whole_graph_output(model, alone))
    if name == "gcn":
        torch.testing.assert_close(
            predict(model, batch, Evaluation("layers")), whole_graph_output(model, batch)
        )


def f1_parts(logits: Tensor, graph: Graph, mask: Tensor, parts: Tensor) -> float:
    """The mean of the micro F1 of all parts that have a node of the mask."""
    scores = []
    for part in parts[mask].unique():
        nodes = mask & (parts == part)
        scores.append(NAMED["f1_micro"](logits[nodes], graph.y[nodes]))
    return sum(scores) / len(scores)


@pytest.mark.parametrize("several", [False, True])
def test_the_f1_of_the_parts_is_averaged(several: bool) -> None:
    graph = tiny_graph(nodes=60, multi_label=several)
    model = nn.Linear(graph.num_features, C)
    chosen = Evaluation("parts", parts=7)
    logits = predict(model, whole_graph(graph), chosen)
    parts = cluster(graph.edge_index, 60, 7, "metis", 0).assignment
    scores = evaluate(model, graph, evaluation=chosen)
    expected = evaluate(model, graph)
    for split, mask in {"train": graph.train, "validation": graph.val, "test": graph.test}.items():
        assert scores[split].pop("f1_parts") == pytest.approx(f1_parts(logits, graph, mask, parts))
    assert scores == expected  # the model looks at no edge
    # The four nodes have no label at all.
    assert mean_f1(torch.zeros(4, C), torch.zeros(4, C), torch.arange(4)) == 0


DOUBLE = replace(whole_graph(GRAPH), x=GRAPH.x.double())


def by_parts(model: nn.Module, at_once: int) -> tuple[torch.Tensor, list[int]]:
    """Return the output, and the number of nodes in each forward pass."""
    sizes: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    with torch.no_grad():
        actual = ByParts(DOUBLE, 6, 0, at_once=at_once).logits(model)
    hook.remove()
    return actual, sizes


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", [*OURS, "PyG's"])
@pytest.mark.usefixtures("_batches")
def test_parts_together_are_parts_alone(name: str) -> None:
    if name == "PyG's":
        model = Stack((6, 6), GCNConv).double().eval()
    else:
        model = random_model(name, [6, 6], "batch")
    alone, part_sizes = by_parts(model, 1)
    assert len(part_sizes) == 6
    for at_once, forwards in ((max(part_sizes), None), (60, 1)):
        together, sizes = by_parts(model, at_once)
        assert sum(sizes) == 60
        assert max(sizes) <= at_once
        assert forwards in (None, len(sizes))
        torch.testing.assert_close(together, alone)


BATCH = whole_graph(GRAPH)
SAMPLE = Evaluation("parts", parts=6, sample=3)


def test_the_sample_is_scored_as_all_parts_score_it() -> None:
    model = random_model("gcn", [6]).float()
    all_parts = predict(model, BATCH, Evaluation("parts", parts=6))
    inference = SAMPLE.prepare(model, BATCH)
    with torch.no_grad():
        actual = inference.logits(model)
    nodes = inference.nodes
    torch.testing.assert_close(actual[nodes], all_parts[nodes])
    assert actual[~nodes].isnan().all()
    scored = evaluate(model, GRAPH, evaluation=inference)
    parts = cluster(GRAPH.edge_index, 60, 6, "metis", 0).assignment
    for split, mask in SPLITS.items():
        scores = scored[split]
        expected = f1_parts(all_parts, GRAPH, mask & nodes, parts)
        assert scores.pop("f1_parts") == pytest.approx(expected)
        for name, value in scores.items():
            assert value == NAMED[name](all_parts[mask & nodes], GRAPH.y[mask & nodes])
    counted = {split: int((mask & nodes).sum()) for split, mask in SPLITS.items()}
    assert inference.describe() == {
        "method": "parts",
        "exact": False,
        "parts": 6,
        "sample": 3,
        "nodes": counted,
    }
    assert SAMPLE.approximation == {"parts": 6, "sample": 3}
    chosen = [SAMPLE.prepare(model, BATCH, seed).nodes for seed in (0, 1)]
    assert torch.equal(chosen[0], nodes)
    assert not torch.equal(chosen[1], nodes)
    assert parts[nodes].unique().numel() == parts[~nodes].unique().numel() == 3


def test_what_has_no_parts_or_no_score_is_refused() -> None:
    model = random_model("gcn", [6]).float()
    with refused("parts is 61", "1 to 60"):
        Evaluation("parts", parts=61).prepare(model, BATCH)
    with refused("most nodes have no output", "leave out the sample"):
        predict(model, BATCH, SAMPLE)
    inference = SAMPLE.prepare(model, BATCH)
    lonely = torch.arange(60) == int((~inference.nodes).nonzero()[0])
    for split, name in (("val", "validation"), ("test", "test")):
        graph = replace(GRAPH, **{split: lonely})
        with refused(f"the sample of 3 of 6 parts has no {name} node", "raise the sample"):
            SAMPLE.prepare(model, whole_graph(graph))
        with refused(f"no {name} node is in the sample"):  # for a batch without splits
            evaluate(model, graph, [name], evaluation=inference)
