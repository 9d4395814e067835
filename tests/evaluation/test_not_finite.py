"""Outputs that are not finite.

Such nodes count as wrong, and are never a class, a temperature or a prediction.
"""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor, nn

from gistgnn import GIST, Graph, Metric
from gistgnn.baselines import Ensemble
from gistgnn.errors import DivergedError
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import Predictions, evaluate, mean_f1
from gistgnn.evaluation.temperature import fitted_temperature
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.runs.prediction_files import renumbered_outputs, write_predictions
from gistgnn.sampling import ClusterSampling
from tests.helpers.facts import facts_of
from tests.helpers.logs import logged
from tests.helpers.models import C, F, tiny_graph
from tests.helpers.refusals import refused

from .test_scores import constant

BAD = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}
NODES = 60


def spoilt(logits: Tensor, nodes: Tensor, bad_value: str, column: int | None) -> Tensor:
    """The logits with a value that is not finite in the rows of some nodes.

    The value is in all columns of these rows, or in one.
    """
    result = logits.clone()
    result[nodes.nonzero().squeeze(1), slice(None) if column is None else column] = BAD[bad_value]
    return result


bad = st.sampled_from(sorted(BAD))
columns = st.sampled_from([None, 0, 1, 2])


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.booleans(), bad, columns, st.floats(0, 0.9))
def test_nodes_without_a_finite_output_count_as_wrong(
    seed: int, several: bool, bad_value: str, column: int | None, share: float
) -> None:
    rng = torch.Generator().manual_seed(seed)
    graph = tiny_graph(NODES, multi_label=several)
    logits = torch.randn(NODES, C, generator=rng)
    nodes = torch.rand(NODES, generator=rng) < share
    scores = evaluate(constant(spoilt(logits, nodes, bad_value, column)), graph)
    for split, mask in (("train", graph.train), ("validation", graph.val), ("test", graph.test)):
        truth = graph.y[mask].long().numpy()
        empty = nodes[mask].numpy()
        guess = (logits > 0).long().numpy() if several else logits.argmax(dim=1).numpy()
        guess = guess[mask.numpy()].copy()
        if several:
            guess[empty] = 0  # no label
            right = (guess == truth).all(axis=1) & ~empty
            expected = [
                f1_score(truth, guess, average=kind, zero_division=0) for kind in ("micro", "macro")
            ]
        else:
            guess[empty] = C  # a class that there is not
            right = guess == truth
            classes = sorted({*truth.tolist(), *guess.tolist()} - {C})
            macro = f1_score(truth, guess, labels=classes, average="macro", zero_division=0)
            expected = [accuracy_score(truth, guess), macro]
        assert scores[split]["accuracy"] == pytest.approx(right.mean())
        assert [scores[split]["f1_micro"], scores[split]["f1_macro"]] == pytest.approx(expected)


@pytest.mark.parametrize("several", [False, True])
def test_micro_f1_of_parts_counts_nodes_without_a_label_as_wrong(several: bool) -> None:
    truth = torch.tensor([[1, 0], [1, 1]]) if several else torch.tensor([0, 1])
    guess = truth.clone()
    guess[0] = -1
    assert mean_f1(guess, truth, torch.tensor([0, 1])) == 0.5


class Spoils(nn.Module):
    """A small model whose output is not finite for nodes without an edge.

    So is that of a mean that divides by 0.
    """

    def __init__(self, width: int, value: float = torch.nan, outputs: int = C) -> None:
        super().__init__()
        self.hidden = nn.Linear(F, width)
        self.out = nn.Linear(width, outputs)
        self.value = value

    def layers(self) -> list[Any]:
        return [lambda x, edge_index: self.hidden(x).relu(), self.last]

    def last(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = torch.zeros(len(x)).index_add(0, edge_index[1], torch.ones(edge_index.shape[1]))
        return self.out(x) + torch.where(degree > 0, 0.0, self.value).unsqueeze(1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.hidden(x).relu(), edge_index)


def isolated(split: str, count: int = 3, **options: Any) -> tuple[Graph, Tensor]:
    """A graph with some nodes without an edge into them, in a split or in none; and these nodes."""
    graph = tiny_graph(NODES, **options)
    if split == "none":
        nodes = graph.val.nonzero().squeeze(1)[:count]
        graph = replace(graph, val=graph.val & ~torch.isin(torch.arange(NODES), nodes))
    else:
        nodes = getattr(graph, split).nonzero().squeeze(1)[:count]
    edge_index = graph.edge_index[:, ~torch.isin(graph.edge_index[1], nodes)]
    masks = {name: getattr(graph, name) for name in ("train", "val", "test")}
    return Graph.build(graph.x, edge_index, graph.y, num_classes=C, **masks), nodes


@pytest.mark.parametrize(
    "evaluation", [Evaluation("whole"), Evaluation("layers"), Evaluation("parts", parts=1)]
)
@pytest.mark.parametrize("split", ["val", "test", "none"])
def test_a_run_says_which_nodes_have_no_finite_output(split: str, evaluation: Evaluation) -> None:
    graph, nodes = isolated(split)
    with logged() as messages:
        result = GIST(lambda width: Spoils(width), 8, 2).fit(
            graph, epochs=6, evaluation=evaluation, progress=False
        )
    notes = [message for message in messages if "not finite" in message]
    assert len(notes) == 1
    assert "3 of 60 nodes" in notes[0]
    assert f"node {int(nodes[0])}" in notes[0]
    assert np.isfinite(result.temperature)
    with torch.no_grad():
        logits = result.model(graph.x, graph.edge_index)
    for name, mask in (("validation", graph.val), ("test", graph.test)):
        labels = logits.nan_to_num(-torch.inf).argmax(dim=1)
        right = (labels == graph.y) & logits.isfinite().all(dim=1)
        assert result.progress.best[name]["accuracy"] == pytest.approx(
            float(right[mask].float().mean())
        )


def test_the_temperature_is_that_of_the_nodes_with_a_finite_output() -> None:
    graph, nodes = isolated("val")
    result = GIST(lambda width: Spoils(width), 8, 1).fit(graph, epochs=6, progress=False)
    with torch.no_grad():
        logits = result.model(graph.x, graph.edge_index)
    finite = graph.val.clone()
    finite[nodes] = False
    assert result.temperature == pytest.approx(
        fitted_temperature(logits[finite], graph.y[finite]), rel=1e-3
    )


@pytest.mark.parametrize("value", list(BAD.values()))
def test_a_loss_that_is_nan_says_which_outputs_are_not_finite(value: float) -> None:
    graph, nodes = isolated("train")
    with pytest.raises(DivergedError) as caught:
        GIST(lambda width: Spoils(width, value), 8, 2).fit(graph, epochs=6, progress=False)
    text = str(caught.value)
    assert "3 of 20 training nodes" in text
    assert f"node {int(nodes[0])}," in text
    assert "learning rate" not in text
    explodes = {
        "loss": lambda logits, targets: 1e30 * nn.functional.cross_entropy(logits, targets),
        "lr": 1e4,
    }
    # Now the nodes are not to blame.
    with pytest.raises(DivergedError, match="a smaller learning rate"):
        GIST(lambda width: Spoils(width, 0.0), 8, 2).fit(
            graph, epochs=9, optimizer="sgd", progress=False, **explodes
        )


def test_a_loss_that_is_nan_in_a_batch_says_that_outputs_are_not_finite() -> None:
    """Every node has an edge from its own cluster to another one, and none within the cluster."""
    nodes = torch.arange(NODES)
    graph = tiny_graph(NODES)
    masks = {name: getattr(graph, name) for name in ("train", "val", "test")}
    far = Graph.build(
        graph.x, torch.stack([nodes, nodes.roll(NODES // 2)]), graph.y, num_classes=C, **masks
    )
    with pytest.raises(DivergedError, match="training nodes of a batch"):
        GIST(lambda width: Spoils(width), 8, 2).fit(
            far, epochs=6, sampler=ClusterSampling(30, 1, method="random"), progress=False
        )


def test_a_member_without_a_finite_output_leaves_the_ensemble_without_one() -> None:
    graph, nodes = isolated("test")
    model = EnsembleModel([Spoils(4), Spoils(4, 0.0)])
    scores = evaluate(model, graph)
    with torch.no_grad():
        right = model(graph.x, graph.edge_index).nan_to_num(0).argmax(dim=1) == graph.y
    right[nodes] = False
    assert scores["test"]["accuracy"] == pytest.approx(float(right[graph.test].float().mean()))
    result = Ensemble(lambda width: Spoils(width), 8, 2).fit(graph, epochs=6, progress=False)
    assert result.test["accuracy"] is not None
    assert result.test["accuracy"] <= 1 - 3 / int(graph.test.sum())


def regression(split: str) -> Graph:
    graph, _ = isolated(split)
    y = graph.x[:, :1] * 2
    masks = {name: getattr(graph, name) for name in ("train", "val", "test")}
    return Graph.build(graph.x, graph.edge_index, y, regression=True, **masks)


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_regression_has_no_score_where_outputs_are_not_finite(split: str) -> None:
    with logged() as messages:
        result = GIST(lambda width: Spoils(width, outputs=1), 8, 1).fit(
            regression(split), epochs=6, progress=False
        )
    name, other = ("validation", "test") if split == "val" else ("test", "validation")
    assert result.progress.best[name] == {"r2": None, "mae": None, "rmse": None}
    assert None not in result.progress.best[other].values()
    assert result.history[-1][name] is None
    assert sum("no r2" in message for message in messages) == 1
    if split == "val":  # the latest model is the result, as nothing says which is the best
        assert result.progress.best_round == result.progress.rounds


def entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return -nn.functional.cross_entropy(logits, targets)


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", Metric(entropy)])
def test_a_metric_of_outputs_has_no_score_where_they_are_not_finite(metric: Any) -> None:
    graph, _ = isolated("test")
    with logged() as messages:
        result = GIST(lambda width: Spoils(width), 8, 1).fit(
            graph, epochs=6, metric=metric, progress=False
        )
    name = "entropy" if isinstance(metric, Metric) else metric
    assert result.test[name] is None
    assert result.test["accuracy"] is not None
    assert result.validation[name] is not None
    assert sum(f"no {name} of the test nodes" in message for message in messages) == 1
    assert json.dumps(result.as_dict(), default=str)


def outputs_of(logits: Tensor, pieces: int) -> list[tuple[slice, Tensor]]:
    bounds = torch.linspace(0, len(logits), pieces + 1).long().tolist()
    return [(slice(a, b), logits[a:b]) for a, b in pairwise(bounds)]


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.booleans(), bad, columns, st.integers(1, 4))
def test_predictions_of_nodes_without_a_finite_output_are_empty(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    several: bool,
    bad_value: str,
    column: int | None,
    pieces: int,
) -> None:
    path = tmp_path_factory.getbasetemp()
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(12, C, generator=rng)
    nodes = torch.rand(12, generator=rng) < 0.4
    nodes[5] = False
    outputs = outputs_of(spoilt(logits, nodes, bad_value, column), pieces)
    graph = facts_of(C, multi_label=several, class_names=["a", "b", "c"])
    with logged() as messages:
        for name in ("p.csv", "p.npz"):
            write_predictions(path / name, outputs, 12, graph)
    notes = [message for message in messages if "not finite" in message]
    assert len(notes) == 2 * bool(nodes.any())
    for note in notes:
        first = int(nodes.nonzero()[0])
        assert f"for {int(nodes.sum())} of 12 nodes (the first is node {first})" in note
    rows = [line.split(",") for line in (path / "p.csv").read_text().splitlines()[1:]]
    saved = np.load(path / "p.npz")
    assert len(rows) == 12
    for node, (_, *cells) in enumerate(rows):
        is_bad = bool(nodes[node])
        assert all(cell == "" for cell in cells) == is_bad
        assert any(cell == "" for cell in cells) == is_bad
        assert bool((saved["classes"][node] == -1).all()) == is_bad
        assert bool(np.isnan(saved["probabilities"][node]).all()) == is_bad
        if not is_bad and not several:
            assert cells[0] == "abc"[int(logits[node].argmax())]
    (path / "p.csv").unlink()
    with refused("not finite for any node"):
        write_predictions(path / "p.csv", outputs_of(logits * torch.nan, pieces), 12, graph)
    assert not (path / "p.csv").exists()


def test_a_node_without_a_finite_output_has_no_label() -> None:
    graph = tiny_graph(NODES)
    logits = torch.randn(NODES, C)
    logits[7] = torch.nan
    predictions = Predictions.of(outputs_of(logits, 3), graph)
    assert predictions.labels is not None
    assert predictions.not_finite is not None
    assert predictions.labels[7] == -1
    assert predictions.not_finite.nonzero().flatten().tolist() == [7]


def test_a_graph_that_lacks_a_class_is_told_how_to_be_scored() -> None:
    graph = tiny_graph(NODES)
    two = graph.y < 2
    masks = {name: getattr(graph, name) & two for name in ("train", "val", "test")}
    fewer = Graph.build(graph.x, graph.edge_index, graph.y.clamp(max=1), **masks)
    with refused("the model gives 3 outputs", "num_classes=3"):
        evaluate(Spoils(4, 0.0), fewer)


def test_prediction_files_and_notes_have_the_numbers_of_renumbered_nodes(tmp_path: Path) -> None:
    """Without names of classes, and with numbers of nodes that differ."""
    logits = torch.randn(6, C)
    logits[2] = torch.nan
    order = torch.tensor([5, 4, 3, 2, 1, 0])
    with logged() as messages:
        outputs = renumbered_outputs(outputs_of(logits, 2), order)
        write_predictions(tmp_path / "p.csv", outputs, 6, facts_of(C, multi_label=False))
    assert "the first is node 3" in messages[0]
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[4] == "3,,"
    assert lines[1].startswith(f"0,{int(logits[5].argmax())},")
