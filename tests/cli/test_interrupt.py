"""Runs that are stopped: Ctrl-C and SIGKILL, and what goes on afterwards."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from gistgnn.storage.checkpoints import Checkpoints
from tests.helpers.commands import Forked, command, run_command, start, start_command

from .conftest import Cli
from .in_process import wait_until

RUN = ("train", "--hidden", 64, 64, "--training", "each", "--epochs", 120, "--local-steps", 5, "--checkpoint-every", 1)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the run leaves where nothing stops it."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert run_command(folder, *RUN, "--out", "run").returncode == 0
    return folder / "run"


def _stop(process: subprocess.Popen[str] | Forked, run: Path, number: signal.Signals) -> tuple[int | None, str]:
    """Send the signal once there is a checkpoint; return how it ended, and what it complained of."""
    wait_until(Checkpoints(run / "checkpoints").newest, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr


@pytest.mark.parametrize(
    ("number", "store"),
    [
        (signal.SIGINT, "memory"),
        (signal.SIGKILL, "memory"),
        (signal.SIGKILL, "disk"),
        (signal.SIGTERM, "memory"),
        (signal.SIGHUP, "disk"),
        (signal.SIGUSR1, "memory"),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_model(
    cli: Cli, tmp_path: Path, unbroken: Path, number: signal.Signals, store: str
) -> None:
    """Resumed with Θ where it was, it ends with the model of an unbroken run with Θ in memory."""
    words = (*RUN, "--out", "stopped", "--store", store)
    process = start(command(*words), tmp_path) if number == signal.SIGINT else start_command(tmp_path, *words)
    status, stderr = _stop(process, tmp_path / "stopped", number)
    if number != signal.SIGKILL:
        assert status == 128 + number
        assert f"{'' if number == signal.SIGINT else f'{number.name}: '}stopping after this round" in stderr
        assert "--resume" in stderr
        assert "Traceback" not in stderr
        _check_the_best_model_so_far(cli, tmp_path)
    else:
        assert not (tmp_path / "stopped/result.json").exists()
    resumed = cli(*RUN, "--out", "stopped", "--resume", "--store", store)
    assert resumed.returncode == 0, resumed.stderr
    stopped = tmp_path / "stopped"
    assert (stopped / "model.safetensors").read_bytes() == (unbroken / "model.safetensors").read_bytes()
    histories = [json.loads((run / "result.json").read_text())["history"] for run in (stopped, unbroken)]
    for history in histories:
        for entry in history:
            entry.pop("train_seconds")
    assert histories[0] == histories[1]
    assert not (stopped / "checkpoints").exists()
    assert not (stopped / "theta").exists()


def _check_the_best_model_so_far(cli: Cli, folder: Path) -> None:
    """After Ctrl-C the model, its scores and the report are there, and they belong together."""
    record = json.loads((folder / "stopped/result.json").read_text())
    assert record["interrupted"] is True
    best = max(entry["validation"] for entry in record["history"])
    assert record["validation"]["accuracy"] == best
    scored = cli("evaluate", "stopped", "--json")
    assert json.loads(scored.stdout)["test"] == record["test"]
    assert f"interrupted after {record['rounds']} round" in scored.stderr
    assert cli("predict", "stopped", "--output", "labels.csv").returncode == 0
    assert "The run was interrupted after" in (folder / "stopped/report.html").read_text()
    (listed,) = json.loads(cli("list", ".", "--json").stdout)
    assert (listed["state"], listed["rounds"]) == ("interrupted", record["rounds"])


def test_resume_refuses_another_run_and_what_is_torn_or_missing(cli: Cli, tmp_path: Path) -> None:
    _stop(start_command(tmp_path, *RUN, "--out", "run"), tmp_path / "run", signal.SIGINT)
    checkpoints = Checkpoints(tmp_path / "run/checkpoints")
    place = checkpoints.newest()
    assert place
    other = cli(*RUN, "--out", "run", "--resume", "--lr", 0.5)
    assert other.returncode == 2
    assert "lr was 0.04, now 0.5" in other.stderr
    file = next(place.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:1000])
    torn = cli(*RUN, "--out", "run", "--resume")
    assert torn.returncode == 2
    assert "is damaged" in torn.stderr
    checkpoints.remove()
    missing = cli(*RUN, "--out", "run", "--resume")
    assert missing.returncode == 2
    assert "no checkpoint to resume from" in missing.stderr


def test_a_killed_run_has_no_result_and_is_not_lost_unasked(cli: Cli, tmp_path: Path) -> None:
    _stop(start_command(tmp_path, *RUN, "--out", "run"), tmp_path / "run", signal.SIGKILL)
    refused = cli("evaluate", "run")
    assert refused.returncode == 2
    assert "a run that trains or was killed" in refused.stderr
    assert "unfinished, round" in cli("list", ".").stdout
    before = _contents(tmp_path / "run/checkpoints")
    again = cli(*RUN, "--out", "run")
    assert again.returncode == 2
    assert "holds an unfinished run: add --resume" in again.stderr
    other = cli(*RUN, "--out", "run", "--resume", "--dropout", 0)
    assert other.returncode == 2
    assert "is of another run: model was" in other.stderr
    assert before
    assert _contents(tmp_path / "run/checkpoints") == before


def _contents(folder: Path) -> dict[str, bytes]:
    """Of the whole checkpoints; torn ones are removed by the next run."""
    return {str(file): file.read_bytes() for place in Checkpoints(folder).whole() for file in place.iterdir()}


def test_a_new_run_over_a_finished_one_resumes_as_the_new_one(cli: Cli, tmp_path: Path) -> None:
    assert cli(*RUN, "--epochs", 5, "--out", "run").returncode == 0
    _stop(start_command(tmp_path, *RUN, "--out", "run", "--overwrite"), tmp_path / "run", signal.SIGKILL)
    resumed = cli(*RUN, "--out", "run", "--resume", "--json")
    assert json.loads(resumed.stdout)["config"]["training"]["epochs"] == 120
