"""`GIST.fit`: how long it trains, what it returns, what it refuses."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST, DivergedError, Training
from gistgnn.evaluation.scores import evaluate
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.graphs import load
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same, theta
from tests.helpers.models import PYG, C, F, tiny_graph
from tests.helpers.refusals import refused

# How many steps are taken.


class Counting(nn.Module):
    """Counts the calls in training mode."""

    calls = 0

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += self.training
        return self.leave(self.enter(x).relu())


_gists = {m: GIST(Counting, (8,), m) for m in range(1, 6)}


@settings(deadline=None, max_examples=40)
@given(
    epochs=st.integers(1, 30),
    m=st.integers(1, 5),
    local=st.integers(1, 12),
    training=st.sampled_from(["split", "each"]),
    every=st.integers(1, 4),
)
def test_step_counts(epochs: int, m: int, local: int, training: str, every: int) -> None:
    Counting.calls = 0
    result = fit(_gists[m], epochs=epochs, local_steps=local, training=training, evaluate_every=every)
    own = epochs if training == "each" else max(1, round(epochs / m))
    rounds = math.ceil(own / local)
    p = result.progress
    assert Counting.calls == p.steps == m * own
    assert p.rounds == _gists[m].next_round == rounds
    evaluated = sorted({*range(every, rounds + 1, every), rounds})
    assert [entry["round"] for entry in p.history] == evaluated
    assert [entry["step"] for entry in p.history] == [min(r * local, own) for r in evaluated]
    assert p.history[-1]["epoch"] == epochs
    assert not result.interrupted


def test_the_schedule_follows_the_whole_run() -> None:
    result = fit(GIST(gcn(), (8, 7), 2), epochs=16, local_steps=2, schedule="step", lr=0.1)
    assert [entry["lr"] for entry in result.progress.history] == pytest.approx([0.1, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("optimizer", [{"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9}], ids=str)
def test_carrying_the_optimizer_state(m: int, optimizer: dict[str, Any]) -> None:
    results = []
    for state in ("reset", "carry"):
        gist = GIST(gcn(), (8, 7), m)
        fit(gist, optimizer_state=state, **optimizer)
        results.append(theta(gist))
    assert same(*results) == (m == 1)


# What a run returns.


def test_the_model_is_the_one_of_the_best_validation_score() -> None:
    gist = GIST(gcn(dropout=0.2), (8, 7), 2)
    result = fit(gist, epochs=80, lr=0.3)  # so large that the scores jump
    p = result.progress
    scores = [entry["validation"] for entry in p.history]
    assert p.best_round == p.history[scores.index(max(scores))]["round"]  # the first of the best
    assert p.best_round < p.rounds
    assert p.best_score == max(scores)
    found = evaluate(result.model, GRAPH, ("validation", "test"))
    assert {split: s.as_dict() for split, s in found.items()} == p.best
    assert not result.model.training
    last = evaluate(gist.model(), GRAPH, ("validation", "test"))
    assert {split: s.as_dict() for split, s in last.items()} == p.last
    shapes = {n: t.shape for n, t in result.model.state_dict().items()}
    assert shapes == {n: t.shape for n, t in gcn()((8, 7)).state_dict().items()}


def test_as_dict() -> None:
    record = fit(GIST(gcn(), (8, 7), 2)).as_dict()
    assert record["rounds"] == 3
    assert record["steps"] == 12
    assert set(record["test"]) == set(record["validation"]) == {"accuracy", "f1_micro", "f1_macro"}
    assert record["peak_memory_bytes"] > 2**20
    assert record["stopped_early"] is False


@pytest.mark.parametrize("every", [1, 2])
def test_patience(every: int) -> None:
    gist = GIST(gcn(), (8, 7), 2)
    full = fit(gist, epochs=200, lr=0.05, evaluate_every=every)
    result = fit(gist, epochs=200, lr=0.05, evaluate_every=every, patience=3)
    p, scores = result.progress, [entry["validation"] for entry in full.progress.history]
    best, expected = -1.0, len(scores)
    waited = 0
    for k, score in enumerate(scores):
        waited = 0 if score > best else waited + 1
        best = max(best, score)
        if waited == 3:
            expected = k + 1
            break
    assert expected < len(scores)
    assert len(p.history) == expected
    assert p.stopped_early
    assert p.rounds == expected * every
    assert quiet(p.history) == quiet(full.progress.history[:expected])


def test_patience_that_runs_out_at_the_end_stops_nothing() -> None:
    options: dict[str, Any] = {"lr": 1e-9, "patience": 2}  # no score is better than the first
    assert fit(GIST(gcn(), (8, 7), 2), epochs=16, **options).progress.stopped_early
    whole = fit(GIST(gcn(), (8, 7), 2), epochs=12, **options).progress
    assert (whole.rounds, whole.evaluations_since_best, whole.stopped_early) == (3, 2, False)


@pytest.mark.parametrize("m", [1, 2])
def test_several_labels(m: int) -> None:
    graph = tiny_graph(60, multi_label=True)
    gist = GIST(gcn(), (32, 32), m)
    result = fit(gist, graph, epochs=200, lr=0.03, local_steps=10)
    losses = [entry["loss"] for entry in result.progress.history]
    assert losses[-1] < 0.8 * losses[0]
    assert evaluate(result.model, graph)["validation"].f1_micro == result.progress.best_score


def test_several_labels_train_on_binary_cross_entropy() -> None:
    graph = tiny_graph(multi_label=True)
    gist = GIST(gcn(), (8, 7), 1)
    with torch.no_grad():
        out = gist.model()(graph.x, graph.edge_index)[graph.train]
        expected = nn.functional.binary_cross_entropy_with_logits(out, graph.y[graph.train])
    assert fit(gist, graph, epochs=1).progress.history[0]["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_pyg_data_is_taken() -> None:
    data = Data(
        x=GRAPH.x,
        edge_index=GRAPH.edge_index,
        y=GRAPH.y,
        train_mask=GRAPH.train,
        val_mask=GRAPH.val,
        test_mask=GRAPH.test,
    )
    gist = GIST(gcn(), (8, 7), 2)
    ours = fit(gist)
    theirs = fit(gist, data)  # type: ignore[arg-type]
    assert quiet(ours.progress.history) == quiet(theirs.progress.history)


@pytest.mark.parametrize("name", ["gcn", "graphsage", "gat", "gin"])
def test_pyg_models_train_with_every_norm(name: str) -> None:
    for norm in ("layer_norm", "batch_norm"):
        gist = GIST(lambda w, norm=norm: PYG[name](w, norm=norm, jk="cat", dropout=0.1), 12, 3)
        history = fit(gist, epochs=60, lr=0.02, local_steps=5).progress.history
        assert history[-1]["loss"] < history[0]["loss"]


def test_pyg_graphsage_learns_the_digits() -> None:
    graph = load("digits")
    gist = GIST(lambda w: pyg.models.GraphSAGE(graph.num_features, w, 2, graph.num_classes), 64, 4)
    result = fit(gist, graph, epochs=80, local_steps=5, lr=0.02)
    assert result.progress.best["test"]["accuracy"] > 0.8
    assert isinstance(result.model, pyg.models.GraphSAGE)


def test_a_partition_of_the_inputs_trains() -> None:
    gist = GIST(lambda w: GCN(w[0], w[1:], C), (F, 8), 3, input_axis=0)
    result = fit(gist, epochs=60)
    assert result.progress.rounds == 10
    assert result.model.in_features == F


def test_whole_axes_and_the_categorical_partition_train() -> None:
    for options in ({"whole": [1]}, {"partition": "categorical"}):
        gist = GIST(gcn(), (24, 24), 2, **options)  # type: ignore[arg-type]
        assert fit(gist).progress.rounds == 3


# What is refused.


def settings_that_diverge() -> list[tuple[int, dict[str, Any]]]:
    """With the round, from 0, in which they do: by a loss, and by the parameters of a last step."""
    return [(0, {"lr": 9e5, "local_steps": 20}), (1, {"lr": 9e5, "local_steps": 1})]


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize(("round_number", "options"), settings_that_diverge())
def test_divergence_keeps_theta_from_before_the_round(m: int, round_number: int, options: dict[str, Any]) -> None:
    class Steep(nn.Module):
        """Each step multiplies the parameters by about the learning rate to a power."""

        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.enter, self.leave = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave((self.enter(x) ** 7).relu())

    gist = GIST(Steep, (8,), m)
    graph = tiny_graph()
    if round_number == 0:
        before = theta(gist)
    else:
        fit(gist, graph, epochs=40, optimizer="sgd", callbacks=[InterruptWhen(lambda: True)], **options)
        before = theta(gist)
    with refused(f"round {round_number + 1}", "learning rate", error=DivergedError):
        fit(gist, graph, epochs=40, optimizer="sgd", **options)
    assert all(bool(torch.isfinite(t).all()) for t in gist.theta.tensors.values())
    assert same(before, theta(gist))
    with pytest.raises(DivergedError) as caught:
        fit(gist, graph, epochs=40, optimizer="sgd", **options)
    assert caught.value.round_number == round_number
    assert caught.value.result.progress.rounds == round_number
    assert same({n: t.detach() for n, t in named_tensors(caught.value.result.model).items()}, before)


def test_a_model_that_does_not_fit_the_graph_is_refused() -> None:
    with refused("4 classes", "graph has 3"):
        fit(GIST(lambda w: GCN(F, w, 4), (8,), 2))
    with refused(f"[24, {F}]"):
        fit(GIST(lambda w: pyg.models.GCN(F + 1, w, 2, C), 8, 2))
    with refused("[24, 7]"):
        fit(GIST(lambda w: GCN(F + 1, w, C), (8,), 2))


@pytest.mark.parametrize("error", [ValueError, AssertionError, TypeError])
def test_a_model_that_checks_its_features_itself_is_refused(error: type[Exception]) -> None:
    class Checked(nn.Module):
        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(F + 1, widths[0]), nn.ReLU(), nn.Linear(widths[0], C))

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] != F + 1:
                raise error("expected eight features")
            return self.net(x)

    with refused("x [24, 7]", "eight features"):
        fit(GIST(Checked, (8,), 2))


def test_bad_arguments_are_refused() -> None:
    for widths in ((), (8, 0), (-1,), (8.0,), (8, True), (np.float64(8),), "ab", True, 0, 8.5, None, {"a": 1}):
        with refused("widths is", repr(widths) if widths != () else "()"):
            GIST(gcn(), widths, 2)  # type: ignore[arg-type]
    for axis in (2, -1, "0", True, 1.0):
        with refused("input_axis is", repr(axis), "0 to 1"):
            GIST(gcn(), (8, 7), 2, input_axis=axis)  # type: ignore[arg-type]
    with refused("sub_gcns is 8", "7 features of axis 1"):
        GIST(gcn(), (8, 7), 8)
    with refused("seed is -1"):
        GIST(gcn(), (8, 7), 2, seed=-1)
    with refused("epochs is missing"):
        GIST(gcn(), (8, 7), 2).fit(GRAPH)
    with pytest.raises(TypeError, match="unexpected keyword argument 'epoch'"):
        GIST(gcn(), (8, 7), 2).fit(GRAPH, epoch=3)  # type: ignore[call-arg]
    with refused("lr is given beside a Training"):
        GIST(gcn(), (8, 7), 2).fit(GRAPH, Training(epochs=1), lr=0.1)
    with refused("Data"):
        GIST(gcn(), (8, 7), 2).fit("graph", epochs=1)  # type: ignore[arg-type]
