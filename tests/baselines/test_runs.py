"""Baselines run, resume, spread over ranks and refuse as GIST does."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import InputError, Result, Saving
from gistgnn.axes import named_tensors
from gistgnn.baselines import METHODS, DataParallel, Ensemble, LocalSGD
from gistgnn.distributed import Ranks, Traffic
from tests.distributed.launch import on_ranks

from .cases import BATCHES, GRAPH, build, fit, make

BASELINES = ("data-parallel", "local-sgd", "ensemble")
DROPPING = {"dropout": 0.4, "norm": "batch"}


def left(result: Result) -> dict[str, Any]:
    history = [{key: value for key, value in entry.items() if key != "train_seconds"} for entry in result.history]
    tensors = {name: tensor.clone() for name, tensor in named_tensors(result.model).items()}
    return {"tensors": tensors, "history": history, "test": result.test, "validation": result.validation}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, tensor in expected["tensors"].items():
        assert torch.equal(found["tensors"][name], tensor), name
    assert {**found, "tensors": None} == {**expected, "tensors": None}


@pytest.mark.parametrize("method", BASELINES)
def test_a_run_that_was_stopped_goes_on_to_the_same_model(method: str, tmp_path: Path) -> None:
    unbroken = left(fit(make(method, 3, **DROPPING)))
    asked = iter(range(1, 100))
    stopped = fit(make(method, 3, **DROPPING), saving=Saving(tmp_path / "c"), stop=lambda: next(asked) == 2)
    assert stopped.interrupted
    same(left(fit(make(method, 3, **DROPPING), saving=Saving(tmp_path / "c", resume=True))), unbroken)


@pytest.mark.parametrize("method", ["local-sgd", "ensemble"])
def test_runners_agree(method: str) -> None:
    """Fused where the batches are shared: the ensemble; local SGD has batches for each worker."""
    sampler = BATCHES if method == "local-sgd" else None
    found = [left(fit(make(method, 3), runner=runner, sampler=sampler)) for runner in ("in-turn", "fused")]
    for name, tensor in found[0]["tensors"].items():
        torch.testing.assert_close(found[1]["tensors"][name], tensor, rtol=1e-3, atol=1e-4)


CASES = [("local-sgd", "memory"), ("local-sgd", "sharded"), ("ensemble", "memory"), ("data-parallel", "memory")]


def train_all(ranks: Ranks) -> list[dict[str, Any]]:
    found = []
    for method, store in CASES:
        ranks.traffic = Traffic()
        gist = make(method, 4, ranks, store, **({} if method == "data-parallel" else DROPPING))
        result = fit(gist)
        every = {"communication": result.communication, "history": result.history, "test": result.test}
        found.append({**left(result), **every} if ranks.leads else every)
    return found


def test_ranks_end_as_one_process_does() -> None:
    every = on_ranks(2, train_all)
    for k, (method, store) in enumerate(CASES):
        found, other = (each[k] for each in every)
        assert found["test"] == other["test"]
        expected = left(fit(make(method, 4, **({} if method == "data-parallel" else DROPPING))))
        if method == "data-parallel":  # torch sums the gradients in another order
            for name, tensor in expected["tensors"].items():
                torch.testing.assert_close(found["tensors"][name], tensor, rtol=1e-4, atol=1e-6)
            assert found["communication"]["by_formula"]
        elif store == "memory":
            found["history"] = [{k: v for k, v in e.items() if k != "train_seconds"} for e in found["history"]]
            same({key: found[key] for key in expected}, expected)
        else:
            assert found["test"] == expected["test"]
        sent = found["communication"]["sent"]
        assert (sent == [0, 0]) == (method == "ensemble"), (method, sent)


def test_what_a_worker_sends_in_a_round() -> None:
    sent = {method: fit(make(method, 4)).traffic["bytes_per_round"] for method in METHODS}
    theta = sum(p.nbytes for p in make("gist", 1).theta.tensors.values())
    assert sent["local-sgd"] == pytest.approx(2 * 3 / 4 * theta)
    assert sent["data-parallel"] == pytest.approx(2 * sent["local-sgd"])  # two steps in a round
    assert sent["ensemble"] == 0
    assert 0 < sent["gist"] < sent["local-sgd"] / 2


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("local-sgd", {"sampler": None}, "local-sgd gives each worker batches of its own, but the sampler is full"),
        ("data-parallel", {"sampler": None}, "data-parallel gives each worker"),
        ("data-parallel", {"runner": "best"}, "runner is 'best'"),
        ("ensemble", {"lr": -1.0}, "lr is -1.0"),
    ],
)
def test_a_run_that_cannot_be_is_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(make(method, 2), **options)


def test_a_trainer_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="workers is 0, expected"):
        DataParallel(build, (8, 7), 0)
    with pytest.raises(InputError, match="store is host, but every worker holds all of Θ"):
        DataParallel(build, (8, 7), 2, store="host")
    with pytest.raises(InputError, match="sub_gcns is 0"):
        LocalSGD(build, (8, 7), 0)
    with pytest.raises(InputError, match="store is host, but an ensemble's members are in memory"):
        Ensemble(build, (8, 7), 2, store="host")
    with pytest.raises(InputError, match="an ensemble's members see all of them"):
        Ensemble(build, (GRAPH.num_features, 8, 7), 2, input_axis=0)


def test_members_may_be_of_unequal_widths_and_are_scored_in_any_way() -> None:
    from gistgnn.inference import Evaluation

    whole = left(fit(make("ensemble", 3)))
    layers = fit(make("ensemble", 3), evaluation=Evaluation("layers"))
    assert layers.evaluation["method"] == "layers"
    assert left(layers)["history"] == whole["history"]
