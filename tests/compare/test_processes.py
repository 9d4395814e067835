"""Runs in processes of their own are the runs that they are alone, in the order of the seeds; any may be killed."""

import multiprocessing
import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gistgnn.compare.many_runs import RunStore, train_apart
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.helpers.fitting import quiet
from tests.helpers.refusals import refused


def config(m: int = 2, method: str = "gist", seed: int = 0) -> RunConfig:
    training = Training(4, 1, training="each")
    return RunConfig("digits", ModelConfig(hidden=(8, 8)), m, method, seed=seed, training=training)


def pretended(config: RunConfig) -> dict[str, Any]:
    """A run that takes a moment, and tells when; with m = 3 it is refused, with m = 4 killed."""
    begun = time.time()
    if config.sub_gcns == 3:
        raise InputError("lr is -1")
    if config.sub_gcns == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return {"span": (begun, time.time()), "process": os.getpid()}


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_train_at_once_each_in_its_own_process(at_once: int) -> None:
    records: list[dict[str, Any]] = []
    runs = [config(2, seed=seed) for seed in range(4)]
    assert train_apart(runs, pretended, at_once, 1, lambda _, record: records.append(record)) == []
    spans = sorted(record["span"] for record in records)
    apart = [end <= begin for (_, end), (begin, _) in pairwise(spans)]
    assert all(apart) if at_once == 1 else not all(apart)
    assert len({record["process"] for record in records} | {os.getpid()}) == 5


def test_a_wrong_setting_ends_all() -> None:
    kept: list[int] = []
    before = set(multiprocessing.active_children())
    runs = [config(2), config(3), *(config(2, seed=seed) for seed in range(1, 50))]
    with pytest.raises(InputError, match="lr is -1"):
        train_apart(runs, pretended, 1, 1, lambda config, _: kept.append(config.sub_gcns))
    assert kept == [2]  # what was finished before stays
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("at_once", [1, 2])
def test_others_go_on_after_one_that_is_killed(at_once: int) -> None:
    kept: list[int] = []
    runs = [config(4), config(2), config(4, seed=1)]
    killed = train_apart(runs, pretended, at_once, 1, lambda config, _: kept.append(config.sub_gcns))
    assert sorted(killed) == [f"gist, m = 4, seed {seed}" for seed in (0, 1)]
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


@pytest.mark.parametrize("wait", [0.0, 0.003])
def test_a_process_may_be_killed_while_others_start(wait: float) -> None:
    wanted, kept = [config(2, seed=seed) for seed in range(4)], list[int]()
    killer = kill_one(wait)
    killed = train_apart(wanted, pretended, 3, 1, lambda config, _: kept.append(config.seed))
    killer.join()
    assert (len(killed), len(kept)) == (1, 3)


def test_they_end_as_they_do_alone_and_are_done_once(tmp_path: Path) -> None:
    """Also after one of them was killed."""
    wanted = [config(1, seed=1), config(1), config(2), config(2, "ensemble")]
    store = RunStore(tmp_path, "data")
    killer = kill_one()
    with refused("1 run was killed: gist, m = 1, seed 0", "run the same command again"):
        store.run_all(wanted[1:], 1, "runs")
    killer.join()
    assert [store.get(run) is not None for run in wanted] == [False, False, True, True]
    records = store.run_all(wanted, None, "runs")
    graph = load("digits")
    for run, record in zip(wanted, records, strict=True):
        result = run.fit(run.trainer(graph.num_features, graph.num_classes), graph, progress=False)
        assert quiet(record["history"]) == quiet(result.history)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert all(path.suffix == ".json" for path in kept)  # no checkpoints are left
    assert "-seed1-" in max(kept, key=lambda path: kept[path]).name, "the run with seed 1 is trained last"
    assert store.run_all(wanted, 2, "runs") == records
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
