"""Loggers are given the history, and the command line starts and ends them."""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gistgnn import GIST, Log, Parts, Result, Saving
from gistgnn.fit.loggers import start_logger
from tests.cli.in_process import refused as command_refused
from tests.cli.in_process import run
from tests.helpers.logs import logged
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make

TRAIN = (
    "train",
    "--hidden",
    8,
    "--sub-gcns",
    2,
    "--epochs",
    16,
    "--local-steps",
    2,
    "--out",
    "run",
    "--resume",
)


GRAPH = tiny_graph()


class Recorder:
    def __init__(self, step: int = 0) -> None:
        self.entries = list[Any]()
        self.steps = list[int]()
        self.step = step

    def log(self, entry: dict[str, Any], step: int) -> None:
        self.entries.append({**entry, "step": step})
        self.steps.append(step)


def test_a_logger_is_given_the_history_also_of_a_run_that_goes_on(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "c", resume=True)
    recorder = Recorder()
    plain = list[Any]()
    fit(make(), saving=saving, callbacks=[*after(2), Log(recorder)])
    # One is a new run of the logger, and the other goes on with the same run.
    later = Recorder()
    goes_on = Recorder(step=recorder.steps[-1] + 1)
    callbacks = [Log(later), Log(goes_on), Log(lambda entry: plain.append(entry))]
    history = fit(make(), saving=saving, callbacks=callbacks).history
    assert later.entries == plain == history
    assert recorder.entries + goes_on.entries == history
    assert later.steps == [entry["step"] for entry in history]
    other = SimpleNamespace(
        gist=SimpleNamespace(ranks=SimpleNamespace(leads=False)), history=history, part=""
    )
    Log(recorder).on_fit_begin(other)  # type: ignore[arg-type]
    assert len(recorder.steps) == 1
    with refused("logger is a dict, expected a function"):
        Log({})


@pytest.mark.parametrize("method", ["budget", "parts"])
def test_the_steps_of_narrow_models_follow_each_other(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes 2 ms, so a slow machine has as many rounds within a budget."""
    monkeypatch.setattr(time, "perf_counter", partial(next, count(step=0.002)))
    settings: dict[str, Any] = {
        "progress": False,
        "evaluate_every": 1,
        "epochs": 6,
        "local_steps": 1,
    }
    if method == "budget":
        settings = {"progress": False, "budget": 2.0}
    build = OURS["gcn"]
    saving = Saving(tmp_path / "c", every=1)

    def train(logger: Recorder, **options: Any) -> Result:
        gist = GIST(build, (16,), 2) if method == "budget" else Parts(build, (16,), 2)
        return gist.fit(
            GRAPH, callbacks=[*options.pop("callbacks", ()), Log(logger)], **settings, **options
        )

    rounds_over = count(1)
    stop = SimpleNamespace(
        on_round_end=lambda run, loss: next(rounds_over) == 5 and run.interrupt()
    )
    first = Recorder()
    cut = train(first, saving=saving, callbacks=[stop])
    assert cut.interrupted
    goes_on = Recorder(step=first.steps[-1] + 1)
    again = list[Any]()  # A logger without steps of its own gets all that the checkpoints have.
    options = {"saving": replace(saving, resume=True), "callbacks": [Log(again.append)]}
    resumed = train(goes_on, **options)
    steps = first.steps + goes_on.steps
    assert steps == sorted(set(steps)), "loggers drop what goes back"
    assert [entry["step"] for entry in again] == sorted({entry["step"] for entry in again})
    if method == "parts":
        assert [entry["step"] for entry in again] == steps
        assert steps == list(range(1, resumed.progress.steps + 1))


def stopped_once(logger: str, folder: Path, config: dict[str, Any]) -> Result:
    """A run that is stopped and goes on, with a logger that is started for each part."""
    for stops in (after(2), []):
        with ExitStack() as ends:
            callbacks = [*stops, start_logger(logger, folder, config, ends)]
            result = fit(make(), saving=Saving(folder / "c", resume=True), callbacks=callbacks)
    return result


def test_tensorboard_is_given_the_history_once_with_the_settings(tmp_path: Path) -> None:
    settings = {"lr": 0.01, "model": {"name": "gcn"}}
    result = stopped_once("tensorboard", tmp_path, settings)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for tag, name in (("loss", "loss"), ("score/test", "test")):
        shown = [(event.step, event.value) for event in events.Scalars(tag)]
        assert shown == [(entry["step"], pytest.approx(entry[name])) for entry in result.history]
    assert len(events.Tags()["scalars"]) == 5
    (text,) = events.Tensors("config/text_summary")[0].tensor_proto.string_val
    assert json.loads(text.decode().strip("`")) == settings


@pytest.mark.parametrize("fails", [6, None])
def test_the_command_line_starts_ends_and_survives_a_logger(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: int | None,
) -> None:
    begun = list[Any]()
    ended = list[int]()
    shown = list[Any]()

    def log(entry: dict[str, Any], step: int) -> None:
        shown.append({**entry, "step": step})
        if step == fails:
            raise ConnectionError("no network")

    def finish(exit_code: int) -> None:
        ended.append(exit_code)
        raise ConnectionError("no network")

    def init(**options: Any) -> Any:
        begun.append(options)
        return SimpleNamespace(log=log, finish=finish)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        sys.modules, "wandb", SimpleNamespace(init=init, __spec__=SimpleNamespace(origin="here"))
    )
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert run(*TRAIN, "--log", "wandb", "tensorboard") == 0
    message = "the logger has failed, and training goes on without it (ConnectionError: no network)"
    assert capsys.readouterr().err.count(message) == 1
    record = json.loads((tmp_path / "run/result.json").read_text())
    run_id = (tmp_path / "run/log-id").read_text()
    expected = {
        "project": "mine",
        "name": "run",
        "dir": str(tmp_path / "run"),
        "id": run_id,
        "resume": "allow",
    }
    assert begun == [{**expected, "config": record["config"]}]
    assert ended == ([] if fails else [0])
    assert shown == (record["history"][:3] if fails else record["history"])


class Mlflow:
    """MLflow as far as gistgnn calls it, for one run. The real one and what it needs are 86 MB."""

    def __init__(self) -> None:
        self.entries = list[dict[str, Any]]()
        self.ends = list[str]()
        self.params = dict[str, Any]()
        self.tag = ""
        self.MlflowClient = lambda: self

    def search_runs(self, filter_string: str, output_format: str) -> list[Any]:
        assert output_format == "list"
        return [self.run] if self.tag and filter_string == f"tags.gistgnn = '{self.tag}'" else []

    def start_run(self, run_id: str | None, run_name: str, tags: dict[str, str]) -> Any:
        assert run_id == (self.tag or None)
        self.tag = tags["gistgnn"]
        self.name = run_name
        self.run = SimpleNamespace(info=SimpleNamespace(run_id=self.tag))
        return self.run

    def log_params(self, params: dict[str, Any]) -> None:
        assert (self.params or params) == params, "MLflow refuses other values"
        self.params = params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.entries.append({**metrics, "step": step})

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [SimpleNamespace(step=entry["step"]) for entry in self.entries if key in entry]

    def end_run(self, status: str) -> None:
        self.ends.append(status)


def test_mlflow_goes_on_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    config: dict[str, Any] = {
        "dataset": "d",
        "device": "cpu",
        "model": {"name": "gcn"},
        "training": {"lr": 0.01},
    }
    result = stopped_once("mlflow", tmp_path, config)
    assert (mlflow.tag, mlflow.name) == ((tmp_path / "log-id").read_text(), tmp_path.name)
    assert mlflow.entries == result.history
    assert mlflow.params == {"dataset": "d", "device": "cpu", "model": "gcn", "lr": 0.01}
    assert mlflow.ends == ["FINISHED"] * 2


def test_a_logger_that_cannot_start_is_refused_before_the_graph_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    message = "--log wandb needs a package that is not installed: pip install wandb"
    command_refused(
        capsys,
        message,
        *TRAIN,
        "--dataset",
        "absent.npz",
        "--log",
        "tensorboard",
        "wandb",
        leaves=tmp_path,
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run/tensorboard").touch()
    command_refused(
        capsys, "--log tensorboard cannot start (FileExistsError: ", *TRAIN, "--log", "tensorboard"
    )


@pytest.mark.long
def test_weights_and_biases_without_a_network_goes_on_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    with logged() as messages:
        stopped_once("wandb", tmp_path, {"lr": 0.01})
    assert not [message for message in messages if "the logger has failed" in message]
    (run_id,) = {
        path.name.rpartition("-")[2] for path in (tmp_path / "wandb").glob("offline-run-*")
    }
    assert run_id == (tmp_path / "log-id").read_text()
