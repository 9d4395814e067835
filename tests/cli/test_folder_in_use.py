"""Two commands that write into one folder: one works, the other is refused."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gistgnn import GIST, Saving
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.fit.result import Result
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta import Store
from tests.helpers.commands import Forked, start_command
from tests.helpers.fitting import GRAPH
from tests.helpers.models import OURS
from tests.helpers.refusals import refused

from . import in_process

LONG = ("train", "--hidden", 64, 64, "--training", "each", "--epochs", 4000, "--local-steps", 5)
SHORT = ("train", "--hidden", 16, "--epochs", 4, "--sub-gcns", 2)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Forked]:
    """A run in `run` that has a checkpoint, and does not end before the test."""
    process = start_command(tmp_path, *LONG, "--out", "run", "--checkpoint-every", 1)
    in_process.wait_until(Checkpoints(tmp_path / "run/checkpoints").newest, process)
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_commands_refuse_the_folder_of_a_run_that_trains(
    tmp_path: Path, training: Forked, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    said = f"{out} is being written by process "
    for words in (
        (*SHORT, "--out", out),
        (*SHORT, "--out", out, "--overwrite"),
        (*SHORT, "--out", out, "--resume"),
        ("compare", "--hidden", 16, "--sub-gcns", 2, "--out", out),
        ("reproduce", "local-sgd", "--out", out),
    ):
        in_process.refused(capsys, said, *words)
    in_process.refused(capsys, "wait for it, or give another --out", *SHORT, "--out", out)
    assert in_process.run("list", tmp_path) == 0
    assert "unfinished" in capsys.readouterr().out
    assert training.poll() is None
    training.send_signal(signal.SIGKILL)  # which leaves no lock
    training.communicate()
    (out / ".gistgnn-99999999-abcdefgh-model.safetensors").touch()  # what a kill in the middle of writing leaves
    assert in_process.run(*SHORT, "--out", out, "--overwrite") == 0
    assert not list(out.glob(".gistgnn*"))


@pytest.mark.parametrize("offset", [0.0, 0.05, 0.5])
def test_one_of_two_runs_wins(tmp_path: Path, offset: float) -> None:
    """The second is refused, whenever it comes; the first one's files are whole."""
    processes = []
    for seed in (0, 1):
        words = ("--training", "each", "--epochs", 300, "--local-steps", 5, "--sub-gcns", 4, "--seed", seed)
        processes.append(start_command(tmp_path, *SHORT, *words, "--out", "run"))
        time.sleep(offset)
    done = [process.completed() for process in processes]
    assert sorted(each.returncode for each in done) == [0, 2], [each.stderr for each in done]
    winner = [each.returncode for each in done].index(0)
    assert "is being written by process" in done[1 - winner].stderr
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["config"]["seed"] == winner
    assert in_process.run("evaluate", tmp_path / "run") == 0


def test_runs_without_out_take_folders_of_their_own(tmp_path: Path) -> None:
    processes = [start_command(tmp_path, *SHORT) for _ in range(3)]
    for process in processes:
        done = process.completed()
        assert done.returncode == 0, done.stderr
    results = sorted(path.parent.name for path in (tmp_path / "runs").glob("*/result.json"))
    assert results == [f"digits-gcn-m2-seed0{more}" for more in ("", "-2", "-3")]


def occupy(folder: str) -> int:
    """Train in Python until the process is killed: with checkpoints and with Θ in files."""
    place = Path(folder)
    gist = GIST(OURS["gcn"], (8, 8), 2, store=Store("disk", place / "theta"))
    gist.fit(
        GRAPH,
        epochs=10**6,
        local_steps=2,
        progress=False,
        saving=Saving(place / "saved", every=1),
        callbacks=[InterruptWhen((place / "begun").touch)],
    )
    return 0


def test_folders_that_python_writes_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = Forked(tmp_path, occupy, str(tmp_path))
    in_process.wait_until((tmp_path / "begun").exists, process)
    try:
        with refused("theta is being written by process", "choose another folder"):
            GIST(OURS["gcn"], (8, 8), 2, store=Store("disk", tmp_path / "theta")).resume()
        with refused("saved is being written by process", "choose another folder"):
            GIST(OURS["gcn"], (8, 8), 2).fit(GRAPH, epochs=4, progress=False, saving=Saving(tmp_path / "saved"))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    gist = GIST(OURS["gcn"], (8, 8), 2, store=Store("disk", tmp_path / "theta"))
    gist.resume()
    assert gist.next_round > 0


def test_a_result_is_not_saved_where_another_process_writes(tmp_path: Path, training: Forked) -> None:
    graph = load("digits")
    gist = GIST(lambda widths: GCN(graph.num_features, widths, graph.num_classes), (8,), 1)
    result = gist.fit(graph, epochs=1, progress=False)
    assert isinstance(result, Result)
    with refused("run is being written by process"):
        result.save(tmp_path / "run", overwrite=True)
