"""Scores over a sample of the parts."""

import pytest
import torch

from gistgnn import GIST
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import evaluate, predict
from gistgnn.graphs.clustering import cluster
from gistgnn.sampling import whole_graph
from gistgnn.training.metric import NAMED
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused

from .cases import random_model

GRAPH = tiny_graph(nodes=60)
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
    for split, mask in {"train": GRAPH.train, "validation": GRAPH.val, "test": GRAPH.test}.items():
        found = dict(scored[split])
        assert found.pop("f1_parts") <= 1.0
        for name, value in found.items():
            assert value == NAMED[name](all_parts[mask & nodes], GRAPH.y[mask & nodes])
    assert inference.describe() == {
        "method": "parts",
        "exact": False,
        "parts": 6,
        "sample": 3,
        "nodes": {
            "train": int((GRAPH.train & nodes).sum()),
            "validation": int((GRAPH.val & nodes).sum()),
            "test": int((GRAPH.test & nodes).sum()),
        },
    }
    assert SAMPLE.approximation == {"parts": 6, "sample": 3}


def test_the_sample_follows_from_the_seed() -> None:
    model = random_model("gcn", [6]).float()
    clusters = cluster(GRAPH.edge_index, 60, 6, "metis", 0)
    chosen = [SAMPLE.prepare(model, BATCH, seed).nodes for seed in (0, 0, 1)]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])
    assert clusters.assignment[chosen[0]].unique().numel() == 3
    assert clusters.assignment[~chosen[0]].unique().numel() == 3


def test_a_sample_of_all_parts_is_all_nodes() -> None:
    model = random_model("gcn", [6]).float()
    all_parts = evaluate(model, GRAPH, evaluation=Evaluation("parts", parts=6))
    assert evaluate(model, GRAPH, evaluation=Evaluation("parts", parts=6, sample=6)) == all_parts


def test_every_node_is_not_predicted_from_a_sample() -> None:
    with refused("most nodes have no output", "leave out the sample"):
        predict(random_model("gcn", [6]).float(), BATCH, SAMPLE)


def test_a_sample_without_a_node_to_score() -> None:
    model = random_model("gcn", [6]).float()
    none = torch.zeros(60, dtype=torch.bool)
    lonely = none.clone()
    nodes = SAMPLE.prepare(model, BATCH).nodes
    lonely[(~nodes).nonzero()[0]] = True
    for split, name in (("val", "validation"), ("test", "test")):
        graph = tiny_graph(nodes=60)
        object.__setattr__(graph, split, lonely)
        with refused(f"the sample of 3 of 6 parts has no {name} node", "raise the sample"):
            SAMPLE.prepare(model, whole_graph(graph))
        with refused(f"no {name} node is in the sample"):  # for a batch without splits
            evaluate(model, graph, [name], evaluation=SAMPLE.prepare(model, BATCH))


def test_fit_scores_the_same_nodes_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fit(GIST(gcn(), (8,), 2), GRAPH, evaluation=SAMPLE)
    actual = result.as_dict()["evaluation"]
    assert (actual["parts"], actual["sample"], actual["exact"]) == (6, 3, False)
    assert actual["nodes"]["validation"] > 0
    again = evaluate(result.model, GRAPH, ["test"], evaluation=SAMPLE)
    assert again["test"].as_dict() == result.test
