"""Runs that take turns, or are trained side by side, are the runs that they are alone; any may be killed."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.processes import side_by_side, take_turns
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.helpers.refusals import refused

Way = Callable[..., list[str]]


def config(m: int = 2, method: str = "gist", seed: int = 0, rounds: int = 4) -> RunConfig:
    training = Training(rounds, 1, training="each")
    return RunConfig("digits", ModelConfig(hidden=(8, 8)), m, method, seed=seed, training=training)


def slow(config: RunConfig, callbacks: list[Any]) -> dict[str, Any]:
    """Rounds that take longer than a turn; notes when each begins and ends."""
    spans, rounds = [], int(config.training.epochs)
    for k in range(rounds):
        begun = time.time()
        time.sleep(0.6 if config.sub_gcns == 2 else 0.3)
        spans.append((begun, time.time()))
        callbacks[0].on_round_end(SimpleNamespace(round=k + 1, rounds=rounds), 0.0)
    return {"spans": spans}


def broken(config: RunConfig, callbacks: list[Any]) -> dict[str, Any]:
    if config.sub_gcns == 3:
        raise InputError("lr is -1")
    if config.sub_gcns == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return {}


def test_one_works_at_a_time_and_all_advance_alike() -> None:
    spans_of: dict[int, list[tuple[float, float]]] = {}
    runs = [config(2), config(4, rounds=8)]
    take_turns(runs, slow, 1, lambda c, r: spans_of.update({c.sub_gcns: r["spans"]}))
    spans = sorted(spans_of[2] + spans_of[4])
    assert all(end <= begin + 0.01 for (_, end), (begin, _) in pairwise(spans))
    half = spans_of[2][1][1]  # the slow one has done two of its four rounds
    assert 2 <= sum(end <= half for _, end in spans_of[4]) <= 6


@pytest.mark.parametrize("way", [take_turns, side_by_side])
def test_a_wrong_setting_ends_all(way: Way) -> None:
    kept: list[int] = []
    before = set(multiprocessing.active_children())
    with pytest.raises(InputError, match="lr is -1"):
        way([config(2), config(3)], broken, 1, lambda config, _: kept.append(config.sub_gcns))
    assert kept == [2]  # what was finished before stays
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("way", [take_turns, side_by_side])
def test_others_go_on_after_one_that_is_killed(way: Way) -> None:
    kept: list[int] = []
    runs = [config(4), config(2), config(4, seed=1)]
    killed = way(runs, broken, 2, lambda config, _: kept.append(config.sub_gcns))
    assert sorted(killed) == [f"gist, m = 4, seed {seed} (status -9)" for seed in (0, 1)]
    assert kept == [2]


def kill_one(wait: float = 0.01) -> threading.Thread:
    """Kill the first process that appears from now on, in a thread; it looks every so many seconds."""
    before = set(multiprocessing.active_children())

    def kill() -> None:
        while not (children := [child for child in multiprocessing.active_children() if child not in before]):
            time.sleep(wait)
        assert children[0].pid
        os.kill(children[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.003])
def test_a_process_may_be_killed_while_others_start(wait: float) -> None:
    wanted, kept = [config(2, seed=seed) for seed in range(4)], list[int]()
    killer = kill_one(wait)
    killed = side_by_side(wanted, broken, 3, lambda config, _: kept.append(config.seed))
    killer.join()
    assert (len(killed), len(kept)) == (1, 3)


def test_a_run_that_is_killed_is_named_and_trained_again(tmp_path: Path) -> None:
    wanted, store = [config(1), config(2)], RunStore(tmp_path, "data")
    killer = kill_one()
    with refused("1 run was killed: gist, m = 1, seed 0", "run the same command again"):
        store.run_all(wanted, 1, "runs")
    killer.join()
    assert store.get(wanted[0]) is None
    assert store.get(wanted[1]) is not None  # it was finished
    assert len(store.run_all(wanted, 1, "runs")) == 2


def test_they_end_as_they_do_alone_and_are_done_once(tmp_path: Path) -> None:
    wanted = [config(1), config(2), config(2, "ensemble"), config(2, seed=1)]
    store = RunStore(tmp_path, "data")
    records = store.in_turns(wanted, "runs")
    graph = load("digits")
    for run, record in zip(wanted, records, strict=True):
        result = run.fit(run.trainer(graph.num_features, graph.num_classes), graph, progress=False)
        alone = [{k: v for k, v in entry.items() if k != "train_seconds"} for entry in result.history]
        assert [{k: v for k, v in entry.items() if k != "train_seconds"} for entry in record["history"]] == alone
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert all(path.suffix == ".json" for path in kept)  # no checkpoints are left
    assert store.in_turns(wanted, "runs", at_once=1) == records
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
