"""Baselines run, resume, spread over ranks and refuse as GIST does."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, Loop, Result, Saving
from gistgnn.baselines import DataParallel, Ensemble, LocalSGD
from gistgnn.baselines.registry import METHODS
from gistgnn.distributed import Ranks, Traffic
from gistgnn.layout.axes import named_tensors
from gistgnn.storage.record import Sent
from tests.distributed.launch import on_ranks
from tests.helpers.fitting import quiet
from tests.helpers.refusals import refused
from tests.helpers.resuming import after

from .cases import BATCHES, GRAPH, LOCAL, build, fit, make

BASELINES = ("data-parallel", "local-sgd", "ensemble")
DROPPING = {"dropout": 0.4, "norm": "batch"}


def left(result: Result) -> dict[str, Any]:
    tensors = {name: tensor.clone() for name, tensor in named_tensors(result.model).items()}
    return {
        "tensors": tensors,
        "history": quiet(result.history),
        "test": result.test,
        "validation": result.validation,
    }


def same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, tensor in expected["tensors"].items():
        assert torch.equal(actual["tensors"][name], tensor), name
    assert {**actual, "tensors": None} == {**expected, "tensors": None}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("method", "rounds"), [*((method, 2) for method in BASELINES), ("ensemble", 4)]
)
def test_a_run_that_was_stopped_goes_on_to_the_same_model(
    method: str, rounds: int, tmp_path: Path
) -> None:
    """An ensemble's members have three rounds each: its first or its second one is stopped."""
    unbroken = fit(make(method, 3, **DROPPING))
    saving = Saving(tmp_path / "c")
    cut = fit(make(method, 3, **DROPPING), saving=saving, callbacks=after(rounds))
    assert cut.interrupted
    resumed = fit(make(method, 3, **DROPPING), saving=replace(saving, resume=True))
    same(left(resumed), left(unbroken))


def test_members_that_stop_after_different_rounds_have_a_history_with_their_ends() -> None:
    """The first has all of its twenty rounds, the second six, and every fourth is scored."""
    result = fit(make("ensemble", 2), epochs=20, evaluate_every=4, callbacks=after(26))
    assert result.interrupted
    assert [entry["round"] for entry in result.history] == [4, 20]
    assert result.history[-1]["validation"] == result.validation["accuracy"]


@pytest.mark.parametrize("method", ["local-sgd", "ensemble"])
def test_runners_train_the_same_baseline(method: str) -> None:
    """Fused where the batches are shared: the ensemble; local SGD has batches for each worker."""
    sampler = BATCHES if method == "local-sgd" else None
    runs = [
        left(fit(make(method, 3), runner=runner, sampler=sampler))
        for runner in ("in-turn", "fused")
    ]
    for name, tensor in runs[0]["tensors"].items():
        torch.testing.assert_close(runs[1]["tensors"][name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["local-sgd", "data-parallel"])
def test_every_worker_has_batches_of_its_own_whatever_the_sampler_says(method: str) -> None:
    samplers = (BATCHES, replace(BATCHES, batches="shared"))
    independent, shared = (left(fit(make(method, 2), sampler=sampler)) for sampler in samplers)
    same(shared, independent)


CASES = [
    ("local-sgd", 4, "memory", DROPPING),
    ("local-sgd", 4, "sharded", DROPPING),
    ("ensemble", 4, "memory", DROPPING),
    # Running statistics are those of worker 0.
    ("data-parallel", 4, "memory", {"norm": "batch"}),
    ("data-parallel", 3, "memory", {"dropout": 0.4}),
]
# Adam makes a large step of a gradient that is zero but for rounding.
BY_SGD = {"optimizer": "sgd", "momentum": 0.9}


def fitted(case: Any, ranks: Ranks | None = None) -> tuple[GIST, Result]:
    method, m, store, options = case
    gist = make(method, m, ranks, store if ranks else "memory", **options)
    return gist, fit(gist, **(BY_SGD if method == "data-parallel" else {}))


def train_all(ranks: Ranks) -> list[dict[str, Any]]:
    runs = []
    for case in CASES:
        ranks.traffic = Traffic()
        gist, result = fitted(case, ranks)
        known_to_all = {
            "communication": result.communication,
            "history": result.history,
            "test": result.test,
        }
        if case[0] == "data-parallel":
            known_to_all["theta"] = gist.theta.place.tensors.copy()
        runs.append({**left(result), **known_to_all} if ranks.leads else known_to_all)
    return runs


@pytest.mark.long
def test_ranks_end_as_one_process_does() -> None:
    runs_of_ranks = on_ranks(2, train_all)
    for k, (method, _, store, _) in enumerate(CASES):
        first, second = (runs[k] for runs in runs_of_ranks)
        assert first["test"] == second["test"]
        gist, result = fitted(CASES[k])
        expected = left(result)
        if method == "data-parallel":
            # Gradients are summed in another order.
            torch.testing.assert_close(first["tensors"], expected["tensors"], rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(second["theta"], first["theta"], rtol=1e-5, atol=1e-7)
            losses = [entry["loss"] for entry in first["history"]]
            assert losses == pytest.approx(
                [entry["loss"] for entry in expected["history"]], rel=1e-5
            )
            gradients = sum(p.nbytes for p in gist.model().parameters())
            # A ring of two ranks sends all gradients.
            assert first["communication"]["sent"] == [pytest.approx(gradients * LOCAL)] * 2
        elif store == "memory":
            first["history"] = quiet(first["history"])
            same({key: first[key] for key in expected}, expected)
        else:
            assert first["test"] == expected["test"]
        if method == "ensemble":
            assert first["communication"] is None, "nothing is exchanged between rounds"
            assert quiet(second["history"]) == expected["history"]
        else:
            assert min(first["communication"]["sent"]) > 0


def test_what_a_worker_sends_follows_from_the_method() -> None:
    traffic = {method: fit(make(method, 4)).traffic for method in METHODS}
    theta = sum(p.nbytes for p in make("gist", 1).theta.place.tensors.values())
    average = 2 * 3 / 4 * theta
    assert traffic["local-sgd"] == Sent(workers=4, bytes_per_round=pytest.approx(average))
    assert traffic["data-parallel"] == Sent(workers=4, bytes_per_step=pytest.approx(average))
    assert traffic["ensemble"] == Sent(workers=4)
    assert 0 < traffic["gist"].bytes_per_round < average / 2


def test_what_a_baseline_cannot_do_is_refused() -> None:
    needs_batches = "gives each worker its own batches, but the sampler is full"
    for message, call in (
        (f"local-sgd {needs_batches}", lambda: fit(make("local-sgd", 2), sampler=None)),
        (f"data-parallel {needs_batches}", lambda: fit(make("data-parallel", 2), sampler=None)),
        *(
            (
                f"budget is given, but the method is {method}: use gist",
                partial(make(method, 2).fit, GRAPH, budget=5, progress=False),
            )
            for method in BASELINES
        ),
        ("an ensemble has no rounds", lambda: next(make("ensemble", 2).rounds(1))),
        ("an ensemble has no rounds", lambda: next(iter(Loop(make("ensemble", 2), 1)))),
        ("workers is 0, expected", lambda: DataParallel(build, (8, 7), 0)),
        (
            "store is host, but data-parallel holds all",
            lambda: DataParallel(build, (8, 7), 2, store="host"),
        ),
        ("sub_gcns is 0", lambda: LocalSGD(build, (8, 7), 0)),
        (
            "store is host, but ensemble holds all of Θ in memory",
            lambda: Ensemble(build, (8, 7), 2, store="host"),
        ),
        (
            "every part sees all: leave their axis out",
            lambda: Ensemble(build, (GRAPH.num_features, 8, 7), 2, input_axis=0),
        ),
    ):
        with refused(message):
            call()
