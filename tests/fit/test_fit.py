"""`GIST.fit`: how long it trains, what it returns, what it refuses, what it holds."""

import gc
import math
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn import GIST, DivergedError
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import evaluate
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling import ClusterSampling
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same, theta
from tests.helpers.models import OURS, C, F, tiny_graph


class Counting(nn.Module):
    """Counts the calls in training mode."""

    calls = 0

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter = nn.Linear(F, widths[0])
        self.leave = nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += self.training
        return self.leave(self.enter(x).relu())


_gists = {m: GIST(Counting, (8,), m, width_scaling="none") for m in range(1, 6)}


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from(["split", "each"]),
    st.integers(1, 4),
)
def test_a_run_takes_the_steps_and_scores_the_rounds_of_its_settings(
    epochs: int, m: int, local_steps: int, training: str, evaluate_every: int
) -> None:
    Counting.calls = 0
    result = fit(
        _gists[m],
        epochs=epochs,
        local_steps=local_steps,
        training=training,
        evaluate_every=evaluate_every,
    )
    steps = epochs if training == "each" else max(1, round(epochs / m))
    rounds = math.ceil(steps / local_steps)
    p = result.progress
    assert Counting.calls == p.steps == m * steps
    assert p.rounds == _gists[m].next_round == rounds
    evaluated = sorted({*range(evaluate_every, rounds + 1, evaluate_every), rounds})
    assert [entry["round"] for entry in p.history] == evaluated
    assert [entry["step"] for entry in p.history] == [
        min(r * local_steps, steps) for r in evaluated
    ]
    assert p.history[-1]["epoch"] == epochs
    assert not result.interrupted


def test_the_model_is_the_one_of_the_best_validation_score() -> None:
    gist = GIST(gcn(dropout=0.2), (8, 7), 2)
    result = fit(gist, epochs=80, lr=0.3)  # With so large a rate the scores jump.
    p = result.progress
    scores = [entry["validation"] for entry in p.history]
    first_of_the_best = p.history[scores.index(max(scores))]
    assert p.best_round == first_of_the_best["round"]
    assert p.best_round < p.rounds
    assert p.best_score == max(scores)
    scores_of_model = evaluate(result.model, GRAPH, ("validation", "test"))
    assert scores_of_model == p.best
    assert not result.model.training
    last = evaluate(gist.model(), GRAPH, ("validation", "test"))
    assert last == p.last
    shapes = {name: tensor.shape for name, tensor in result.model.state_dict().items()}
    full_model = gcn()((8, 7))
    assert shapes == {name: tensor.shape for name, tensor in full_model.state_dict().items()}


def test_patience_ends_a_run_after_so_many_evaluations_without_a_better_score() -> None:
    evaluate_every = 2
    gist = GIST(gcn(), (8, 7), 2)
    full = fit(gist, epochs=200, lr=0.05, evaluate_every=evaluate_every)
    result = fit(gist, epochs=200, lr=0.05, evaluate_every=evaluate_every, patience=3)
    scores = [entry["validation"] for entry in full.history]
    without_better = [
        k for k in range(3, len(scores)) if max(scores[: k - 2]) >= max(scores[k - 2 : k + 1])
    ]
    expected = without_better[0] + 1
    assert expected < len(scores)
    assert result.progress.stopped_early
    assert result.progress.rounds == expected * evaluate_every
    assert quiet(result.history) == quiet(full.history[:expected])


def test_a_run_whose_patience_ends_with_its_last_round_is_not_stopped_early() -> None:
    """At so small a rate no score is better than the first."""
    progress = fit(GIST(gcn(), (8, 7), 2), epochs=12, lr=1e-9, patience=2).progress
    assert progress.rounds == 3
    assert progress.scores.evaluations_since_best == 2
    assert not progress.stopped_early


class Steep(Counting):
    """Each step multiplies the parameters by about the learning rate to a power."""

    def forward(self, x: Tensor) -> Tensor:
        return self.leave((self.enter(x) ** 7).relu())


@pytest.mark.parametrize("m", [1, 2])
# A loss diverges in the first case, and parameters after the last step in the second.
@pytest.mark.parametrize(("round_number", "local_steps"), [(0, 20), (1, 1)])
def test_divergence_keeps_theta_from_before_the_round(
    m: int, round_number: int, local_steps: int
) -> None:
    gist = GIST(Steep, (8,), m)
    options: dict[str, Any] = {
        "lr": 9e5,
        "local_steps": local_steps,
        "epochs": 40,
        "optimizer": "sgd",
    }
    if round_number:
        fit(gist, callbacks=[InterruptWhen(lambda: True)], **options)
    before = theta(gist)
    for _ in range(2):
        with pytest.raises(
            DivergedError, match=rf"round {round_number + 1}.*learning rate"
        ) as caught:
            fit(gist, **options)
        assert same(before, theta(gist))
        assert caught.value.round_number == caught.value.result.progress.rounds == round_number
        assert same(
            {n: t.detach() for n, t in named_tensors(caught.value.result.model).items()}, before
        )
    assert all(bool(torch.isfinite(t).all()) for t in gist.theta.place.tensors.values())


SETTINGS: dict[str, dict[str, Any]] = {
    "whole graph": {"epochs": 2},
    "clusters": {"epochs": 2, "sampler": ClusterSampling(8, 2), "inductive": True},
    "shown": {"epochs": 2, "progress": True},
    "layers": {"epochs": 2, "evaluation": Evaluation("layers"), "runner": "fused"},
    "carry": {"epochs": 6, "optimizer_state": "carry", "runner": "in-turn", "evaluate_every": 2},
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_finished_run_holds_no_memory(settings: dict[str, Any]) -> None:
    graph = tiny_graph()
    gist = GIST(OURS["gcn"], (8, 8), 2)
    gc.collect()
    gc.disable()
    try:
        result = gist.fit(graph, **{"local_steps": 2, "progress": False, **settings})
        references = [weakref.ref(value) for value in (graph.x, gist, gist.theta, result)]
        del graph, gist, result
        assert [reference() for reference in references] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize("runner", RUNNERS)
def test_products_are_halved_and_all_else_is_not(runner: str) -> None:
    seen: set[tuple[bool, torch.dtype]] = set()

    class Watched(nn.Module):
        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            # A bias would be added in float32 by vmap, outside the product.
            self.enter = nn.Linear(F, widths[0], bias=False)
            self.out = nn.Linear(widths[0], C)

        def forward(self, x: Tensor) -> Tensor:
            h = self.enter(x)
            if x.dtype == torch.float32 and x.device.type != "meta":
                seen.add((self.training, h.dtype))
            return self.out(h.relu())

    losses = {}
    gist = GIST(Watched, (8,), 2)
    for precision in ("float32", "bf16"):
        seen.clear()
        options: dict[str, Any] = {
            "epochs": 120,
            "local_steps": 10,
            "lr": 0.02,
            "optimizer_state": "carry",
        }
        history = fit(gist, runner=runner, precision=precision, **options).history
        losses[precision] = [entry["loss"] for entry in history]
    assert (True, torch.bfloat16) in seen
    assert {kind for training, kind in seen if not training} == {torch.float32}, "of scores"
    tensors = [*theta(gist).values(), *gist.theta.place.moments.values()]
    assert {tensor.dtype for tensor in tensors if tensor.is_floating_point()} == {torch.float32}
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.1)
    assert losses["bf16"] != losses["float32"]


class First(Counting):
    """Finds class 0 in every node."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.01 * super().forward(x) + 10 * torch.eye(C)[0]


def test_classes_that_are_never_found_are_named(caplog: pytest.LogCaptureFixture) -> None:
    classes = ", ".join(map(str, range(1, C)))
    for model, expected in (
        (First, [f"no node of classes {classes} is found"]),
        (Counting, []),
    ):
        caplog.clear()
        fit(GIST(model, (8,), 2, width_scaling="none"), epochs=200)
        assert [text.split(" (")[0] for text in caplog.messages if "no node" in text] == expected
