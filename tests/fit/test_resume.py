"""Runs that are stopped at any round and resumed: they end as unbroken ones in memory."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from gistgnn import Saving
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.sampling import ClusterSampling
from gistgnn.storage.checkpoints import VERSION, Checkpoints
from gistgnn.storage.json_files import write_json
from tests.helpers.fitting import focal
from tests.helpers.refusals import refused
from tests.helpers.resuming import RICH, ROUNDS, after, fit, make, state
from tests.theta.stores import store, values


def wrong(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.argmax(dim=1) != targets).float().mean()


CARRY: dict[str, Any] = {"optimizer_state": "carry", "optimizer": "sgd", "momentum": 0.9}
OWN = {"loss": focal, "metric": wrong, "schedule": lambda p: 1 - p, "optimizer": torch.optim.NAdam}
HALVED = {"precision": "bf16", "clip_norm": 0.5, "optimizer_state": "carry"}
OWN_BATCHES = ClusterSampling(4, 2, batches="independent")
FOUR = {"m": 4, **RICH}
ON_DISK = {**FOUR, "store": "disk"}
EVERY_ROUND = [1] * (ROUNDS - 1)
RUNS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "reset": ({}, [2, 1, 2]),
    "carry, m = 1": ({"m": 1, "optimizer_state": "carry"}, [5]),
    "momentum": ({**CARRY, "schedule": "cosine"}, [2, 1, 2]),
    "functions of the user": (OWN, [1]),
    "clusters": ({**FOUR, "optimizer_state": "reset"}, EVERY_ROUND),
    "clusters, carry": (FOUR, EVERY_ROUND),
    "clusters, disk": ({**ON_DISK, **CARRY}, EVERY_ROUND),
    "clusters of METIS, disk": ({**ON_DISK, "sampler": ClusterSampling(4, 2)}, [2, 3]),
    "own clusters, host": ({**FOUR, "store": "host", **HALVED, "sampler": OWN_BATCHES}, [5]),
    "clusters, disk, fused": ({**ON_DISK, "runner": "fused"}, EVERY_ROUND),
    "batches without training nodes": ({"epochs": 12, "sampler": ClusterSampling(24, 1)}, [1]),
}


def run(folder: Path | None, *, m: int = 3, **options: Any) -> dict[str, Any]:
    kind = options.pop("store", "memory")
    gist = make(m, store=store(kind, folder)) if folder else make(m)
    return state(gist, fit(gist, **options))


@cache
def unbroken() -> dict[str, Any]:
    return run(None)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path, name: str) -> None:
    options, stops = RUNS[name]
    saving = Saving(tmp_path / "checkpoints", resume=True)
    completed = 0
    for rounds in stops:
        completed += rounds
        so_far = run(tmp_path, saving=saving, callbacks=after(rounds), **options)["rest"]
        assert (so_far[0], so_far[-1]) == (completed, True)
    if name == "functions of the user":
        with refused("is of another run", "loss was 'focal', now None"):
            run(tmp_path, saving=saving, **{**options, "loss": None})
    assert run(tmp_path, saving=saving, **options) == run(None, **{**options, "store": "memory"})


@pytest.mark.parametrize(
    ("save_every", "options"), [(1, {"epochs": 600, "patience": 2}), (ROUNDS, {})]
)
def test_resuming_a_finished_run_returns_it(
    tmp_path: Path, save_every: int, options: dict[str, Any]
) -> None:
    path = tmp_path / "checkpoints"
    expected = run(None, saving=Saving(path, every=save_every), **options)
    assert expected["rest"][-2] == bool(options)
    assert run(None, saving=Saving(path, resume=True), **options) == expected


def test_a_stop_at_the_very_end_is_no_interruption() -> None:
    assert run(None, callbacks=after(ROUNDS)) == unbroken()


def test_without_resume_a_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(seed=5), callbacks=after(5), saving=Saving(path, every=1))
    assert run(None, callbacks=after(3), saving=Saving(path, every=2))["rest"][0] == 3
    assert [checkpoint.name for checkpoint in Checkpoints(path).complete_folders()] == [
        "round-00000002",
        "round-00000003",
    ]
    assert run(None, saving=Saving(path, resume=True)) == unbroken()


def test_the_best_model_survives_the_interruption(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    options = {"epochs": 60, "lr": 0.3, "evaluate_every": 1, "local_steps": 1, "m": 2}
    expected = run(None, **options)
    rounds, _, best = expected["rest"][:3]
    assert best < rounds
    run(None, callbacks=after(best), saving=Saving(path), **options)
    checkpoint = Checkpoints(path).newest()
    assert checkpoint
    with safe_open(next(checkpoint.glob("*.safetensors")), "pt") as file:
        assert any(name.startswith("best/") for name in file.keys())  # noqa: SIM118
    assert run(None, saving=Saving(path, resume=True), **options) == expected


def test_moments_are_carried_on_or_begin_anew_with_the_blocks() -> None:
    """The step counts of the optimisers show it. With one sub-GCN the blocks stay."""

    def ages(m: int, state: str) -> list[set[float]]:
        gist = make(m)
        ages_of_rounds = list[set[float]]()

        def look() -> None:
            tensors = values(gist.theta)
            counts = [tensor for name, tensor in tensors.items() if name.endswith("/step")]
            ages_of_rounds.append({float(count) for count in counts})

        fit(gist, callbacks=[InterruptWhen(look)], optimizer_state=state)
        return ages_of_rounds[-ROUNDS:]

    assert ages(4, "reset") == [set()] * ROUNDS
    carried: list[set[float]] = [{2}, {4}, {6}, {8}, {10}, {11}]
    assert ages(4, "carry") == carried
    assert ages(1, "carry") == carried
    assert ages(1, "reset") == carried


@pytest.mark.parametrize(
    ("version", "entries", "message"),
    [
        (5, {"best_round": 2, "best_score": 0.5}, "has the form 5"),
        (VERSION, {"best_round": 2}, "it has best_round, which this gistgnn does not know"),
        (VERSION, {"rounds": "2"}, "Expected `int`"),
    ],
)
def test_no_entry_of_a_state_is_left_out_in_silence(
    version: int, entries: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A run that resumed without its best score would return a worse model as its best."""
    fit(make(), saving=Saving(tmp_path / "c"), callbacks=after(3))
    newest = Checkpoints(tmp_path / "c").newest()
    assert newest is not None
    content = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    del content["checksum"]
    content["version"] = version
    content["state"] |= entries
    write_json(newest / "state.json", content)
    with refused(message):
        fit(make(), saving=Saving(tmp_path / "c", resume=True))
