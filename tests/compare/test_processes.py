"""Runs in processes of their own are the runs that they are alone, and any may be killed."""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gistgnn.compare.many_runs import RunStore, train_run
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.storage.record import Record
from tests.helpers.fitting import quiet
from tests.helpers.refusals import refused
from tests.report.records import run_record


def config(m: int = 2, method: str = "gist", seed: int = 0) -> RunConfig:
    training = Training(4, 1, training="each")
    return RunConfig("digits", ModelConfig(hidden=(8, 8)), m, method, seed=seed, training=training)


def pretended(config: RunConfig) -> Record:
    """A run that tells the id of its process; with m = 3 it is refused, with m = 4 killed."""
    if config.sub_gcns == 3:
        raise InputError("lr is -1")
    if config.sub_gcns == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_record(run=str(os.getpid()))


def killed_with_one(config: RunConfig) -> Record:
    """A real run; with m = 1 it is killed."""
    if config.sub_gcns == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return train_run(config, load("digits"), "data")


def test_an_error_ends_all_and_what_was_finished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path, "data")
    before = set(multiprocessing.active_children())
    monkeypatch.setattr(store, "train", pretended)
    runs = [config(2), config(3), config(2, seed=1)]
    with pytest.raises(InputError, match="lr is -1"):
        store.run_all(runs, "runs")
    assert [store.get(run) is not None for run in runs] == [True, False, False]
    assert set(multiprocessing.active_children()) <= before


def test_others_go_on_after_one_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path, "data")
    runs = [config(4), config(2), config(4, seed=1), config(2, seed=1)]
    monkeypatch.setattr(store, "train", pretended)
    with refused("2 runs were killed: gist, m = 4, seed 0; gist, m = 4, seed 1"):
        store.run_all(runs, "runs")
    processes = {record.run for run in runs if (record := store.get(run))}
    assert len(processes | {str(os.getpid())}) == 3, "each has its own"


def test_runs_end_as_they_do_alone_and_are_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [config(1, seed=1), config(1), config(2), config(2, "ensemble")]
    store = RunStore(tmp_path, "data")
    with monkeypatch.context() as patch:
        patch.setattr(store, "train", killed_with_one)
        with refused("1 run was killed: gist, m = 1, seed 0", "run the same command again"):
            store.run_all(configs[1:], "runs")
    assert [store.get(run) is not None for run in configs] == [False, False, True, True]
    records = store.run_all(configs, "runs")
    graph = load("digits")
    for run, record in zip(configs, records, strict=True):
        result = run.fit(run.trainer(graph.num_features, graph.num_classes), graph, progress=False)
        assert quiet(record.history) == quiet(result.history)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert all(path.suffix == ".json" for path in times)  # no checkpoints are left
    last_trained = max(times, key=lambda path: times[path])
    assert "-seed1-" in last_trained.name
    assert store.run_all(configs, "runs") == records
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    for setting, value in (("runner", "fused"), ("inductive", True), ("standardise", False)):
        assert store.get(replace(configs[2], **{setting: value})) is None, "it is another run"
    for path in times:
        path.write_text(path.read_text()[:100])  # cut short: done again
    assert [store.get(run) for run in configs] == [None] * 4
