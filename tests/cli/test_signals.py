"""Signals during imports, during METIS, and in rounds that are longer than the grace."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from gistgnn.storage.checkpoints import Checkpoints
from tests.helpers.commands import Forked, environment, run_command, start, start_command

from .in_process import wait_until

LONG = ("train", "--hidden", 32, "--sub-gcns", 2, "--training", "each", "--out", "run")


def slow_module(folder: Path, name: str) -> dict[str, str]:
    """A module whose import takes a minute, before the real one on the path; the environment that finds it."""
    source = f"import os, time; open({str(folder / 'begun')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    (folder / "modules").mkdir()
    (folder / f"modules/{name}.py").write_text(source)
    path = os.pathsep.join(filter(None, [str(folder / "modules"), os.environ.get("PYTHONPATH", "")]))
    return {**environment(), "PYTHONPATH": path}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("module", "before"), [("torch", "gistgnn: starting: GCN 256-256, m = 4, on digits\n"), ("argparse", "")]
)
def test_a_signal_during_an_import_prints_one_line(
    tmp_path: Path, number: signal.Signals, module: str, before: str
) -> None:
    process = start([sys.executable, "-m", "gistgnn", "train"], tmp_path, slow_module(tmp_path, module))
    wait_until((tmp_path / "begun").exists, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert said == f"{before}gistgnn: interrupted\n"
    assert process.returncode == 128 + number


def test_metis_does_not_outlive_the_run(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gistgnn", *LONG, "--sampler", "clusters", "--clusters", 20, "--grace", 0.5]
    process = start([str(word) for word in words], tmp_path, slow_module(tmp_path, "pymetis"))
    wait_until((tmp_path / "begun").exists, process)
    metis = psutil.Process(int(wait_until((tmp_path / "begun").read_text, process)))
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGHUP
    assert "SIGHUP: stopping after this round, or in 0.5 s (--grace)" in said
    assert "the round did not end within 0.5 s: resume from the last checkpoint" in said
    metis.wait(10)


def test_a_round_that_is_too_long_is_lost_and_the_checkpoint_stays(tmp_path: Path) -> None:
    rounds = ("--local-steps", 20, "--checkpoint-every", 1)
    process = start_command(tmp_path, *LONG, *rounds, "--epochs", 100_000, "--grace", 0.001)
    wait_until(Checkpoints(tmp_path / "run/checkpoints").newest, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "did not end within 0.001 s" in said
    assert Checkpoints(tmp_path / "run/checkpoints").newest()
    assert run_command(tmp_path, *LONG, "--epochs", 2, "--overwrite").returncode == 0


def ignoring(words: list[str]) -> int:
    """Run the command as nohup would."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from gistgnn.cli.main import main

    Path("begun").touch()
    return main(words)


def test_a_signal_that_the_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    process = Forked(tmp_path, ignoring, [*map(str, LONG), "--epochs", "400", "--local-steps", "5"])
    wait_until((tmp_path / "begun").exists, process)
    for _ in range(20):
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    assert process.completed().returncode == 0


def test_compare_ends_with_its_runs(tmp_path: Path) -> None:
    words = ("compare", "--hidden", 32, "--epochs", 100_000, "--sub-gcns", 2, "--out", "table")
    process = start([sys.executable, "-m", "gistgnn", *map(str, words)], tmp_path)
    wait_until(lambda: list(tmp_path.glob("table/runs/*.checkpoints/round-*")), process)
    runs = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert said.endswith("gistgnn: interrupted\n")
    assert "Traceback" not in said
    assert not psutil.wait_procs(runs, 30)[1]
