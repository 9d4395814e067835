"""`fit` with a loss, a metric, an optimiser, a schedule or a trained model that the user brings."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST, Graph, Metric, Phase, Result, load_run
from gistgnn.evaluation import Evaluation, evaluate, predict
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import SaintNodeSampling, whole_graph
from gistgnn.training.metric import NAMED
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, theta
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused
from tests.theta.stores import store

ALMOST = {"rtol": 1e-4, "atol": 1e-6}


def wrong(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.argmax(dim=1) != targets).float().mean()


def gist(m: int = 2, **options: Any) -> GIST:
    return GIST(gcn(), (8, 8), m, **options)


def run(m: int = 2, **options: Any) -> tuple[dict[str, Tensor], Result]:
    own = gist(m)
    result = fit(own, **options)
    return theta(own), result


def test_a_sampler_that_weights_its_nodes_takes_a_loss_for_each_node() -> None:
    saint = SaintNodeSampling(batch_size=10)
    expected, _ = run(sampler=saint)
    for loss in (F.cross_entropy, nn.CrossEntropyLoss(), lambda *both: F.cross_entropy(*both, reduction="none")):
        torch.testing.assert_close(run(sampler=saint, loss=loss)[0], expected, **ALMOST)


LARGER = tiny_graph(300)


def data(y: Tensor) -> Data:
    masks = {f"{name}_mask": getattr(LARGER, name) for name in ("train", "val", "test")}
    return Data(x=LARGER.x, edge_index=LARGER.edge_index, y=y, **masks)


def one_output(widths: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(7, widths[0]), nn.ReLU(), nn.Linear(widths[0], 1))


@pytest.mark.parametrize("loss", ["mse", F.smooth_l1_loss])
def test_regression(loss: Any) -> None:
    """The target is a feature, which a model without noise learns."""
    y = LARGER.x[:, 0] * 2 + 0.3
    result = fit(GIST(one_output, (16,), 2), data(y), loss=loss, epochs=400, local_steps=20)
    assert set(result.test) == {"r2", "mae", "rmse"}
    assert result.test["r2"] > 0.8
    assert result.metric["name"] == "r2"
    graph = Graph.from_pyg(data(y), regression=True)
    assert evaluate(result.model, graph)["test"] == result.test
    residual = predict(result.model, whole_graph(graph))[LARGER.test] - y[LARGER.test, None]
    assert result.test["rmse"] == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-4)


def test_regression_needs_finite_targets_where_they_count() -> None:
    y = LARGER.x[:, 0].clone()
    y[LARGER.train.nonzero()[0, 0]] = torch.nan
    with refused("is not finite", "take it out of train"):
        Graph.from_pyg(data(y), regression=True)
    with refused("expected an integer label"):
        fit(gist(), data(LARGER.x[:, 0]))


def test_the_metric_selects_the_model_and_names_the_history() -> None:
    _, result = run(metric=Metric(wrong, "error rate", higher_is_better=False), evaluate_every=1)
    history = result.history
    assert {entry["metric"] for entry in history} == {"error rate"}
    assert result.validation["error rate"] == min(entry["validation"] for entry in history)
    assert result.validation["accuracy"] == pytest.approx(1 - result.validation["error rate"])
    plain = quiet(run()[1].history)
    assert [1 - entry["validation"] for entry in history] == pytest.approx([entry["validation"] for entry in plain])


def test_a_metric_is_computed_over_a_split_at_once_however_the_output_is() -> None:
    for how in (Evaluation("whole"), Evaluation("layers"), Evaluation("parts", parts=3)):
        result = fit(gist(), LARGER, metric="roc_auc", evaluation=how)
        logits = predict(result.model, whole_graph(LARGER), how)[LARGER.test]
        assert result.test["roc_auc"] == pytest.approx(NAMED["roc_auc"](logits, LARGER.y[LARGER.test]))


def test_a_graph_without_a_test_set_has_no_test_scores(tmp_path: Path) -> None:
    given = data(LARGER.y)
    del given.test_mask
    result = fit(gist(), given, metric="roc_auc", evaluation=Evaluation("layers"))
    assert (result.test, {entry["test"] for entry in result.history}) == ({}, {None})
    assert "validation" in result.summary()
    assert load_run(result.save(tmp_path / "run"), gcn()).validation == result.validation
    assert evaluate(result.model, Graph.from_pyg(given)).keys() == {"train", "validation"}


def test_loss_and_metric_of_the_user_allow_any_number_of_outputs() -> None:
    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[:, 0], (targets > 0).float())

    def hits(logits: Tensor, targets: Tensor) -> Tensor:
        return ((logits[:, 0] > 0) == (targets > 0)).float().mean()

    result = fit(GIST(one_output, (8,), 2), loss=loss, metric=hits, epochs=60)
    assert list(result.test) == ["hits"]
    with refused("the model gives 1 classes, the graph has 3"):
        fit(GIST(one_output, (8,), 2), loss=loss)


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_run_begins_with_a_trained_model(tmp_path: Path, kind: str) -> None:
    trained, own = fit(gist(1), epochs=30).model, gist(2, store=store(kind, tmp_path))
    before = evaluate(trained, GRAPH)["validation"]
    phases = [Phase(2, 1)]  # Θ is the mean of its sub-GCNs, so the scores stay at first
    result = own.fit(GRAPH, phases=phases, init=trained, lr=1e-9, progress=False)
    assert evaluate(result.model, GRAPH)["validation"] == before
    for name, tensor in named_tensors(result.model).items():
        torch.testing.assert_close(tensor, named_tensors(trained)[name], rtol=0, atol=1e-6)
    if kind == "memory":  # a run without it begins anew
        again = fit(own)
        assert quiet(again.history) == quiet(fit(gist()).history)
        own.fit(GRAPH, phases=phases, init=trained.state_dict(), lr=1e-9, progress=False)
