"""Loggers are given the history, and the command line starts and ends them."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gistgnn import Log, Saving
from gistgnn.fit.loggers import start_logger
from tests.cli.in_process import refused as command_refused
from tests.cli.in_process import run
from tests.helpers.commands import run_program
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make

TRAIN = ("train", "--hidden", 8, "--sub-gcns", 2, "--epochs", 16, "--local-steps", 2, "--out", "run", "--resume")


class Recorder:
    def __init__(self, step: int = 0) -> None:
        self.entries, self.steps, self.step = list[Any](), list[int](), step

    def log(self, entry: dict[str, Any], step: int) -> None:
        self.entries.append({**entry, "step": step})
        self.steps.append(step)


def test_a_logger_is_given_the_history_also_of_a_run_that_goes_on(tmp_path: Path) -> None:
    saving, recorder, plain = Saving(tmp_path / "c", resume=True), Recorder(), list[Any]()
    fit(make(), saving=saving, callbacks=[*after(2), Log(recorder)])
    later, goes_on = Recorder(), Recorder(step=recorder.steps[-1] + 1)  # a new run of the logger, and the same one
    callbacks = [Log(later), Log(goes_on), Log(lambda entry: plain.append(entry))]
    history = fit(make(), saving=saving, callbacks=callbacks).history
    assert later.entries == plain == history
    assert recorder.entries + goes_on.entries == history
    assert later.steps == [entry["step"] for entry in history]
    other = SimpleNamespace(gist=SimpleNamespace(ranks=SimpleNamespace(leads=False)), history=history)
    Log(recorder).on_fit_begin(other)  # type: ignore[arg-type]
    assert len(recorder.steps) == 1
    with refused("logger is a dict, expected a function"):
        Log({})


def test_tensorboard_is_given_it_once_with_the_settings(tmp_path: Path) -> None:
    for stops in (after(2), []):
        with ExitStack() as ends:
            settings = {"lr": 0.01, "model": {"name": "gcn"}}
            loggers = [start_logger("tensorboard", tmp_path, settings, ends)]
            result = fit(make(), saving=Saving(tmp_path / "c", resume=True), callbacks=[*stops, *loggers])
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    for tag, name in (("loss", "loss"), ("score/test", "test")):
        shown = [(event.step, event.value) for event in found.Scalars(tag)]
        assert shown == [(entry["step"], pytest.approx(entry[name])) for entry in result.history]
    assert len(found.Tags()["scalars"]) == 5
    (text,) = found.Tensors("config/text_summary")[0].tensor_proto.string_val
    assert json.loads(text.decode().strip("`")) == settings


@pytest.mark.parametrize("fails", [6, None])
def test_the_command_line_starts_ends_and_survives_a_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: int | None
) -> None:
    begun, ended, shown = list[Any](), list[int](), list[Any]()

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
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, __spec__=SimpleNamespace(origin="here")))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert run(*TRAIN, "--log", "wandb", "tensorboard") == 0
    said = "the logger has failed, and training goes on without it (ConnectionError: no network)"
    assert capsys.readouterr().err.count(said) == 1
    record, logged = json.loads((tmp_path / "run/result.json").read_text()), (tmp_path / "run/log-id").read_text()
    own = {"project": "mine", "name": "run", "dir": str(tmp_path / "run"), "id": logged, "resume": "allow"}
    assert begun == [{**own, "config": record["config"]}]
    assert ended == ([] if fails else [0])
    assert shown == (record["history"][:3] if fails else record["history"])


class Mlflow:
    """MLflow as far as gistgnn calls it: its runs lie in `runs`. The real one and what it needs are 86 MB."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.MlflowClient = lambda: self

    def search_runs(self, filter_string: str, output_format: str) -> list[Any]:
        assert output_format == "list"
        return [own["run"] for tag, own in self.runs.items() if filter_string == f"tags.gistgnn = '{tag}'"]

    def start_run(self, run_id: str | None, run_name: str, tags: dict[str, str]) -> Any:
        tag = tags["gistgnn"]
        assert run_id == (tag if tag in self.runs else None)
        run = SimpleNamespace(info=SimpleNamespace(run_id=tag))
        self.active = self.runs.setdefault(tag, {"name": run_name, "run": run, "entries": [], "ends": []})
        return run

    def log_params(self, params: dict[str, Any]) -> None:
        assert self.active.setdefault("params", params) == params, "MLflow refuses other values"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.active["entries"].append({**metrics, "step": step})

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [SimpleNamespace(step=entry["step"]) for entry in self.runs[run_id]["entries"] if key in entry]

    def end_run(self, status: str) -> None:
        self.active["ends"].append(status)


def test_mlflow_goes_on_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    config: dict[str, Any] = {"dataset": "d", "device": "cpu", "model": {"name": "gcn"}, "training": {"lr": 0.01}}
    for stops in (after(2), []):
        with ExitStack() as ends:
            loggers = [start_logger("mlflow", tmp_path, config, ends)]
            result = fit(make(), saving=Saving(tmp_path / "c", resume=True), callbacks=[*stops, *loggers])
    ((tag, found),) = mlflow.runs.items()
    assert (tag, found["name"]) == ((tmp_path / "log-id").read_text(), tmp_path.name)
    assert found["entries"] == result.history
    assert found["params"] == {"dataset": "d", "device": "cpu", "model": "gcn", "lr": 0.01}
    assert found["ends"] == ["FINISHED"] * 2


def test_what_cannot_start_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = "--log wandb needs a package that is not installed: pip install wandb"
    command_refused(capsys, said, *TRAIN, "--dataset", "absent.npz", "--log", "tensorboard", "wandb", leaves=tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/tensorboard").touch()
    command_refused(capsys, "--log tensorboard cannot start (FileExistsError: ", *TRAIN, "--tensorboard")


PROGRAM = """
from contextlib import ExitStack
from pathlib import Path
from gistgnn import Saving
from gistgnn.fit.loggers import start_logger
from tests.helpers.resuming import after, fit, make
for stops in (after(2), []):
    with ExitStack() as ends:
        loggers = [start_logger("wandb", Path(), {"lr": 0.01}, ends)]
        fit(make(), saving=Saving(Path("c"), resume=True), callbacks=[*stops, *loggers])
"""


@pytest.mark.long
def test_weights_and_biases_without_a_network_goes_on_with_a_run(tmp_path: Path) -> None:
    done = run_program(tmp_path, PROGRAM, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    assert "the logger has failed" not in done.stderr
    (logged,) = {path.name.rpartition("-")[2] for path in (tmp_path / "wandb").glob("offline-run-*")}
    assert logged == (tmp_path / "log-id").read_text()
