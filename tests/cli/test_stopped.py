"""Runs that a signal stops go on afterwards, and a folder or stream may be in use or closed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gistgnn import GIST, Saving, load_run
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta import Store
from tests.fit.test_saving import contents
from tests.helpers.commands import Forked, command, environment, run_command, start, start_command
from tests.helpers.fitting import GRAPH
from tests.helpers.models import OURS
from tests.helpers.refusals import refused as call_refused

from .conftest import Cli
from .in_process import refused, run, wait_until

RUN = (
    "train", "--hidden", 64, 64, "--set", "training=each", "--epochs", 120,
    "--local-steps", 5, "--checkpoint-every", 1,
)  # fmt: skip
SHORT = ("train", "--hidden", 16, "--epochs", 4, "--sub-gcns", 2)
Process = Forked | subprocess.Popen[str]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a run in `run`, and return its process once there is a checkpoint.

    With `script` it is started as users do.
    """
    processes: list[Process] = []

    def begin(*options: object, script: bool = False) -> Process:
        words = (*RUN, "--out", "run", *options)
        process = start(command(*words), tmp_path) if script else start_command(tmp_path, *words)
        processes.append(process)
        wait_until(Checkpoints(tmp_path / "run/checkpoints").newest, process)
        return process

    yield begin
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def stop(process: Process, number: signal.Signals) -> str:
    """Send a signal; return what the process complained of."""
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), err
    assert "Traceback" not in err
    return err


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the run leaves where nothing stops it."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert run_command(folder, *RUN, "--out", "run").returncode == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("number", "store"),
    [(signal.SIGKILL, "disk"), (signal.SIGTERM, "disk"), (signal.SIGINT, "memory")],
)
@pytest.mark.one_in(2)
def test_a_stopped_run_goes_on_to_the_same_model(
    cli: Cli,
    tmp_path: Path,
    unbroken: Path,
    begun: Callable[..., Process],
    number: signal.Signals,
    store: str,
) -> None:
    """Resumed with Θ where it was, it ends with the model of an unbroken run with Θ in memory."""
    err = stop(begun("--store", store, script=number == signal.SIGINT), number)
    out = tmp_path / "run"
    if number == signal.SIGKILL:
        _check_a_killed_run(cli, out)
    else:
        name = "" if number == signal.SIGINT else f"{number.name}: "
        assert f"{name}stopping after this round" in err
        assert "--resume" in err
        _check_the_best_model_so_far(cli, out)
    resumed = cli(*RUN, "--out", "run", "--resume", "--store", store)
    assert resumed.returncode == 0, resumed.stderr
    assert (out / "model.safetensors").read_bytes() == (unbroken / "model.safetensors").read_bytes()
    assert _history_without_times(out) == _history_without_times(unbroken)
    assert not {"checkpoints", "theta"} & {path.name for path in out.iterdir()}


def _history_without_times(folder: Path) -> list[dict[str, Any]]:
    history = json.loads((folder / "result.json").read_text())["history"]
    return [{**entry, "train_seconds": None} for entry in history]


def _check_the_best_model_so_far(cli: Cli, out: Path) -> None:
    """After Ctrl-C the model, its scores and the report are there, and they belong together."""
    record = json.loads((out / "result.json").read_text())
    assert record["interrupted"] is True
    assert record["validation"]["accuracy"] == max(
        entry["validation"] for entry in record["history"]
    )
    scored = cli("evaluate", "run", "--json")
    assert json.loads(scored.stdout)["test"] == record["test"]
    assert f"interrupted after {record['rounds']} round" in scored.stderr
    assert "The run was interrupted after" in (out / "report.html").read_text()
    shutil.copytree(out, "lost", ignore=shutil.ignore_patterns("checkpoints"))
    assert "no checkpoint to resume from" in cli(*RUN, "--out", "lost", "--resume").stderr
    shutil.rmtree("lost")
    (listed,) = json.loads(cli("list", ".", "--json").stdout)
    assert (listed["state"], listed["rounds"]) == ("interrupted", record["rounds"])


def _check_a_killed_run(cli: Cli, out: Path) -> None:
    """A run that was killed has no result, and is not lost unasked."""
    assert not (out / "result.json").exists()
    assert "a run that trains or was killed" in cli("evaluate", "run").stderr
    assert "unfinished, round" in cli("list", ".").stdout
    before = contents(out / "checkpoints")
    assert "holds an unfinished run: add --resume" in cli(*RUN, "--out", "run").stderr
    other = cli(*RUN, "--out", "run", "--resume", "--store", "disk", "--dropout", 0)
    assert "is of another run: dropout of the model was 0.2, now 0.0; " in other.stderr
    assert contents(out / "checkpoints") == before != {}


def slow_module(folder: Path, name: str) -> dict[str, str]:
    """Write a module whose import takes a minute, and return an environment.

    It has the folder of the module before the real one on the path.
    """
    begun = str(folder / "begun")
    source = f"import os, time\nopen({begun!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    (folder / "modules").mkdir()
    (folder / f"modules/{name}.py").write_text(source)
    paths = [str(folder / "modules"), os.environ.get("PYTHONPATH", "")]
    return {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.parametrize(
    ("module", "number", "words", "before"),
    [
        ("torch", signal.SIGTERM, "train", "gistgnn: starting: GCN 256-256, on digits\n"),
        (
            "torch",
            signal.SIGINT,
            "compare --sub-gcns 2",
            "gistgnn: starting: GCN 256-256, on digits\n",
        ),
        ("argparse", signal.SIGINT, "train", ""),
    ],
)
def test_a_signal_during_an_import_prints_one_line(
    tmp_path: Path, module: str, number: signal.Signals, words: str, before: str
) -> None:
    process = start(
        [sys.executable, "-m", "gistgnn", *words.split()], tmp_path, slow_module(tmp_path, module)
    )
    wait_until((tmp_path / "begun").exists, process)
    assert stop(process, number) == f"{before}gistgnn: interrupted\n"


def test_a_wrong_option_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    environ = slow_module(tmp_path, "torch")
    none = "a.npz: no such file; expected a graph in a .npz or a .pt file"
    for words, message in (
        ("--sub-gcns 0", "--sub-gcns is 0, expected an integer >= 1"),
        ("--dataset a.npz", none),
    ):
        process = start(
            [sys.executable, "-m", "gistgnn", "train", *words.split()], tmp_path, environ
        )
        assert process.communicate(timeout=60) == ("", f"gistgnn: error: {message}\n")


def with_modules(words: list[str]) -> int:
    """Run the command with the folder `modules` before others on the path."""
    sys.path.insert(0, "modules")
    return run(*words)


def test_metis_does_not_outlive_the_run(tmp_path: Path) -> None:
    slow_module(tmp_path, "pymetis")
    process = Forked(
        tmp_path, with_modules, [*SHORT, "--sampler", "clusters", "--clusters", 20, "--grace", 0.5]
    )
    wait_until((tmp_path / "begun").exists, process)
    metis = psutil.Process(int(wait_until((tmp_path / "begun").read_text, process)))
    output = stop(process, signal.SIGHUP)
    assert "SIGHUP: stopping after this round, or in 0.5 s (--grace)" in output
    assert "the round did not end within 0.5 s: resume from the last checkpoint" in output
    metis.wait(10)


def test_a_round_that_is_too_long_is_lost_and_the_checkpoint_stays(
    cli: Cli, tmp_path: Path, begun: Callable[..., Process]
) -> None:
    assert cli(*SHORT, "--out", "run").returncode == 0
    process = begun("--overwrite", "--local-steps", 20, "--epochs", 100_000, "--grace", 0.001)
    assert "did not end within 0.001 s" in stop(process, signal.SIGUSR1)
    assert Checkpoints(tmp_path / "run/checkpoints").newest()
    assert (
        "is of another run: widths was [64, 64], now [16]"
        in cli(*SHORT, "--out", "run", "--resume").stderr
    )
    assert cli(*SHORT, "--out", "run", "--overwrite").returncode == 0


def stopped_twice() -> int:
    """Be asked to stop by Ctrl-C and then by SIGTERM, and never reach the end of a round."""
    from gistgnn.cli.process import stopping

    with stopping(0.2):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    return 0


def test_a_signal_after_ctrl_c_ends_the_run_in_time(tmp_path: Path) -> None:
    """Schedulers and `kill` get what they ask for, also where Ctrl-C came first."""
    completed = Forked(tmp_path, stopped_twice).completed()
    assert completed.returncode == 128 + signal.SIGINT
    assert "stopping after this round; Ctrl-C again to stop at once" in completed.stderr
    assert "SIGTERM: stopping after this round, or in 0.2 s (--grace)" in completed.stderr
    assert "the round did not end within 0.2 s" in completed.stderr


def ignoring(words: list[str]) -> int:
    """Run the command as nohup would."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from gistgnn.cli.main import main

    Path("begun").touch()
    return main(words)


def test_a_signal_that_the_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    process = Forked(tmp_path, ignoring, [*map(str, RUN), "--epochs", "60"])
    wait_until((tmp_path / "begun").exists, process)
    for _ in range(10):
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    assert process.completed().returncode == 0


def test_the_folder_of_a_run_that_trains_is_refused(
    tmp_path: Path,
    begun: Callable[..., Process],
    capsys: pytest.CaptureFixture[str],
    unbroken: Path,
) -> None:
    process = begun("--epochs", 100_000, "--store", "disk")
    out = tmp_path / "run"
    message = f"{out} is being written by process "
    for words in (
        (*SHORT, "--overwrite"),
        ("compare", "--sub-gcns", 2),
        ("reproduce", "local-sgd"),
    ):
        refused(capsys, message, *words, "--out", out)
    refused(capsys, "wait for it, or give another --out", *SHORT, "--out", out)
    with call_refused("run is being written by process"):
        load_run(unbroken).save(out, overwrite=True)
    gist = GIST(OURS["gcn"], (8, 8), 2, store=Store("disk", out / "theta"))
    with call_refused("theta is being written by process", "choose another folder"):
        gist.resume()
    with call_refused("checkpoints is being written by process", "choose another folder"):
        GIST(OURS["gcn"], (8, 8), 2).fit(
            GRAPH, epochs=4, progress=False, saving=Saving(out / "checkpoints")
        )
    assert run("list", tmp_path) == 0
    assert "unfinished" in capsys.readouterr().out
    assert process.poll() is None
    stop(process, signal.SIGKILL)  # which leaves no lock
    # A kill in the middle of writing leaves such a file.
    (out / ".gistgnn-99999999-abcdefgh-model.safetensors").touch()
    assert run(*SHORT, "--out", out, "--overwrite") == 0
    assert not list(out.glob(".gistgnn*model*"))


def test_runs_without_out_take_folders_of_their_own(tmp_path: Path) -> None:
    processes = [start_command(tmp_path, *SHORT) for _ in range(3)]
    assert [process.completed().returncode for process in processes] == [0, 0, 0]
    results = sorted(path.parent.name for path in (tmp_path / "runs").glob("*/result.json"))
    assert results == [f"digits-gcn-m2-seed0{suffix}" for suffix in ("", "-2", "-3")]


@pytest.mark.parametrize(("unbuffered", "written"), [("", "a note\n"), ("1", "a note\na result\n")])
def test_a_line_of_the_log_is_written_at_once(unbuffered: str, written: str) -> None:
    """A process that is killed loses no line of its log; without buffers it loses no result."""
    code = (
        "import os, sys; from gistgnn.cli.streams import open_streams; open_streams(); "
        "print('a note', file=sys.stderr); print('a result'); os._exit(0)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(), "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert completed.stdout == written


TRAIN = "train --hidden 8 --sub-gcns 2 --epochs 2 --device cpu --out run"


def with_streams(streams: dict[int, str], words: list[str]) -> int:
    """Run `gistgnn` with some streams as a shell opens them.

    "" is closed, and "pipe" leads to a program that has ended.
    """
    for handle, path in streams.items():
        if path == "pipe":
            reader, writer = os.pipe()
            os.dup2(writer, handle)
            os.close(reader)
            continue
        os.close(handle)
        if path:
            assert os.open(path, os.O_RDWR) == handle
        else:
            setattr(sys, ("stdin", "stdout", "stderr")[handle], None)
    from gistgnn.cli.main import main

    return main(words)


@pytest.mark.parametrize(
    ("words", "streams", "status", "message"),
    [
        (TRAIN, {2: "/dev/full"}, 0, "accuracy"),
        (TRAIN, {0: "", 1: "", 2: ""}, 0, ""),
        (TRAIN, {1: "/dev/full"}, 2, "No space left on device: 'standard output'"),
        ("datasets digits", {1: ""}, 0, ""),
        ("--version", {1: "/dev/full"}, 2, "No space left on device: 'standard output'"),
        ("datasets", {1: "pipe"}, 141, ""),
        ("train --wrong", {2: ""}, 2, ""),
    ],
)
def test_a_stream_that_cannot_be_written_costs_no_result(
    tmp_path: Path, words: str, streams: dict[int, str], status: int, message: str
) -> None:
    completed = Forked(tmp_path, with_streams, streams, words.split()).completed()
    assert completed.returncode == status, completed.stderr
    assert message in completed.stdout + completed.stderr
    assert "Traceback" not in completed.stderr
    assert "Exception ignored" not in completed.stderr
    assert (tmp_path / "run/result.json").exists() == words.startswith(TRAIN)
