"""`fit` with a loss, a metric, a model, callbacks or a time limit that the user brings."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST, Callback, Graph, Metric, Result, Saving
from gistgnn.evaluation import Evaluation, evaluate, predict
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import SaintNodeSampling, whole_graph
from gistgnn.training.metric import NAMED
from tests.fit.test_resume import wrong
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same, theta
from tests.helpers.logs import logged
from tests.helpers.models import C, tiny_graph
from tests.helpers.refusals import refused
from tests.theta.stores import store

ALMOST = {"rtol": 1e-4, "atol": 1e-6}


def gist(m: int = 2, **options: Any) -> GIST:
    return GIST(gcn(), (8, 8), m, **options)


def run(m: int = 2, **options: Any) -> tuple[dict[str, Tensor], Result]:
    trainer = gist(m)
    result = fit(trainer, **options)
    return theta(trainer), result


def test_a_sampler_that_weights_its_nodes_takes_a_loss_for_each_node() -> None:
    saint = SaintNodeSampling(batch_size=10)
    expected, _ = run(sampler=saint)
    for loss in (
        F.cross_entropy,
        nn.CrossEntropyLoss(),
        lambda logits, targets: F.cross_entropy(logits, targets, reduction="none"),
    ):
        torch.testing.assert_close(run(sampler=saint, loss=loss)[0], expected, **ALMOST)


LARGER = tiny_graph(300)
TWO_CLASSES = replace(GRAPH, y=GRAPH.y.clamp(max=1), num_classes=2)


def data(y: Tensor) -> Data:
    masks = {f"{name}_mask": getattr(LARGER, name) for name in ("train", "val", "test")}
    return Data(x=LARGER.x, edge_index=LARGER.edge_index, y=y, **masks)


def one_output(widths: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(7, widths[0]), nn.ReLU(), nn.Linear(widths[0], 1))


@pytest.mark.parametrize("loss", ["mse", F.smooth_l1_loss])
def test_a_loss_of_numbers_trains_a_regression(loss: Any) -> None:
    """The target is a feature, which a model without noise learns."""
    y = LARGER.x[:, 0] * 2 + 0.3
    result = fit(GIST(one_output, (16,), 2), data(y), loss=loss, epochs=400, local_steps=20)
    assert set(result.test) == {"r2", "mae", "rmse"}
    assert result.test["r2"] > 0.8
    assert result.metric.name == "r2"
    graph = Graph.from_pyg(data(y), regression=True)
    assert evaluate(result.model, graph)["test"] == result.test
    residual = predict(result.model, whole_graph(graph))[LARGER.test] - y[LARGER.test, None]
    assert result.test["rmse"] == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-4)


def test_float_labels_are_classes_and_outputs_that_are_no_logits_are_noted() -> None:
    trainer = GIST(
        lambda widths: nn.Sequential(one_output(widths)[:2], nn.Linear(*widths, 3), nn.Softmax(1)),
        (16,),
        2,
    )
    with logged(logging.WARNING) as notes:
        assert "accuracy" in fit(trainer, data(LARGER.y.float()), loss=nn.CrossEntropyLoss()).test
    assert "leave a sigmoid or softmax at its end out" in "".join(notes)


def test_the_metric_selects_the_model_and_names_the_history() -> None:
    _, result = run(metric=Metric(wrong, "error rate", higher_is_better=False), evaluate_every=1)
    history = result.history
    assert {entry["metric"] for entry in history} == {"error rate"}
    assert result.validation["error rate"] == min(entry["validation"] for entry in history)
    assert result.validation["accuracy"] == pytest.approx(1 - result.validation["error rate"])
    plain = quiet(run()[1].history)
    assert [1 - entry["validation"] for entry in history] == pytest.approx(
        [entry["validation"] for entry in plain]
    )


def test_a_metric_is_computed_over_a_split_at_once_however_the_output_is() -> None:
    for evaluation in (Evaluation("whole"), Evaluation("layers"), Evaluation("parts", parts=3)):
        result = fit(gist(), LARGER, metric="roc_auc", evaluation=evaluation)
        logits = predict(result.model, whole_graph(LARGER), evaluation)[LARGER.test]
        assert result.test["roc_auc"] == pytest.approx(
            NAMED["roc_auc"](logits, LARGER.y[LARGER.test])
        )


def above_zero(logits: Tensor, targets: Tensor) -> Tensor:
    """A loss of the decision between class 0 and the others."""
    return F.binary_cross_entropy_with_logits(logits[:, 0], (targets > 0).float())


def hits(logits: Tensor, targets: Tensor) -> Tensor:
    return ((logits[:, 0] > 0) == (targets > 0)).float().mean()


@pytest.mark.parametrize("graph", [GRAPH, TWO_CLASSES], ids=["three classes", "two classes"])
def test_loss_and_metric_of_the_user_allow_any_number_of_outputs(graph: Graph) -> None:
    result = fit(GIST(one_output, (8,), 2), graph, loss=above_zero, metric=hits, epochs=60)
    assert list(result.test) == ["hits"]
    # These are the same functions by name, as on the command line.
    names = {"loss": f"{__name__}:above_zero", "metric": f"{__name__}:hits"}
    by_name = fit(GIST(one_output, (8,), 2), graph, **names, epochs=60)
    assert [list(scores.values()) for scores in (by_name.validation, by_name.test)] == [
        list(scores.values()) for scores in (result.validation, result.test)
    ]
    assert same(dict(by_name.model.state_dict()), dict(result.model.state_dict()))
    with refused("the model gives 1 output, and the graph needs 3"):
        fit(GIST(one_output, (8,), 2), loss=above_zero)


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_run_begins_with_a_trained_model(tmp_path: Path, kind: str) -> None:
    trained = fit(gist(1), epochs=30).model
    trainer = gist(2, store=store(kind, tmp_path))
    before = evaluate(trained, GRAPH)["validation"]
    # At so small a rate the scores stay as they are.
    result = trainer.fit(GRAPH, epochs=2, init=trained, lr=1e-9, progress=False)
    assert evaluate(result.model, GRAPH)["validation"] == before
    for name, tensor in named_tensors(result.model).items():
        torch.testing.assert_close(tensor, named_tensors(trained)[name], rtol=0, atol=1e-6)
    if kind == "memory":
        # A run without `init` begins anew.
        again = fit(trainer)
        assert quiet(again.history) == quiet(fit(gist()).history)
        trainer.fit(GRAPH, epochs=2, init=trained.state_dict(), lr=1e-9, progress=False)
        for name, tensor in theta(trainer).items():
            torch.testing.assert_close(
                tensor, named_tensors(trained)[name].detach(), rtol=0, atol=1e-6
            )


class Recorder(Callback):
    def __init__(self, stop_after: int = 99) -> None:
        self.events = list[Any]()
        self.stop_after = stop_after

    def on_round_end(self, run: Any, loss: float) -> None:
        self.events.append(("round", run.round, run.rounds))
        assert loss > 0
        assert same({n: t.clone() for n, t in named_tensors(run.model()).items()}, theta(run.gist))
        if run.round == self.stop_after:
            run.stop()

    def on_evaluation(self, run: Any, entry: dict[str, Any]) -> None:
        assert run.history[-1] == entry
        assert run.best_score == max(e["validation"] for e in run.history)
        self.events.append(("evaluation", entry["round"]))

    def on_fit_end(self, run: Any, result: Result) -> None:
        self.events.append(("end", result.progress.rounds))


def test_callbacks_are_told_in_order_and_may_stop() -> None:
    recorder = Recorder()
    run(callbacks=[recorder], evaluate_every=2)
    assert recorder.events == [
        ("round", 1, 3), ("evaluation", 2), ("round", 2, 3), ("evaluation", 3), ("round", 3, 3),
        ("end", 3),
    ]  # fmt: skip
    stopping = Recorder(stop_after=1)
    _, result = run(callbacks=[stopping], evaluate_every=3)
    assert stopping.events[-1] == ("end", 1)
    assert (result.progress.stopped_early, result.progress.stopped_by) == (True, "callback")
    assert not result.interrupted
    # The last round is evaluated if none was before.
    assert result.test == evaluate(result.model, GRAPH)["test"]


def test_a_run_ends_in_time_with_its_best_model_and_may_go_on(tmp_path: Path) -> None:
    begun = time.perf_counter()
    _, result = run(max_seconds=0.6, epochs=10**9, local_steps=1, evaluate_every=10**9)
    # A busy machine may be late, but all rounds would take days.
    assert time.perf_counter() - begun < 60
    assert result.progress.stopped_by == "max_seconds"
    assert len(result.history) == 1
    assert result.test == evaluate(result.model, GRAPH)["test"]
    saving = Saving(tmp_path / "checkpoints", resume=True)
    assert run(saving=saving, max_seconds=1e-6)[1].progress.rounds == 1
    resumed_theta, resumed = run(saving=saving, max_seconds=1000)
    unbroken_theta, _ = run()
    assert (resumed.progress.rounds, resumed.progress.stopped_by) == (3, None)
    assert same(resumed_theta, unbroken_theta)


def test_a_resumed_run_leaves_time_for_its_next_score(tmp_path: Path) -> None:
    class Watch(Callback):
        seconds = 0.0

        def on_fit_begin(self, run: Any) -> None:
            self.seconds = run._evaluation_seconds

    saving = Saving(tmp_path / "checkpoints", every=1, resume=True)
    run(saving=saving, max_seconds=1e-6)
    watch = Watch()
    _, result = run(saving=saving, callbacks=[watch], max_seconds=1000)
    assert result.progress.rounds == 3
    assert watch.seconds > 0


class Looking(nn.Module):
    """Looks its first feature up in a table."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Embedding(GRAPH.num_nodes, widths[0])
        self.leave = nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.table(x[:, 0].long().clamp(0, GRAPH.num_nodes - 1)).relu())


def test_numbers_that_a_model_looks_up_are_not_scaled() -> None:
    ids = replace(GRAPH, x=torch.arange(GRAPH.num_nodes)[:, None].float())
    assert not fit(GIST(Looking, (8,), 2), ids, standardise=None).standardised
    assert fit(GIST(Looking, (8,), 2), replace(ids, x=ids.x + 0.5), standardise=None).standardised
