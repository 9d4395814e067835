"""`gistgnn train --store`, as a user calls it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command, environment

from .conftest import Cli

TRAIN = ("train", "--hidden", 64, 64, "--epochs", 40, "--local-steps", 2, "--optimizer-state", "carry")


@pytest.mark.parametrize("store", ["host", "mapped"])
def test_the_model_is_the_same_wherever_theta_is(cli: Cli, tmp_path: Path, store: str) -> None:
    for out, options in (("plain", ()), (store, ("--store", store))):
        done = cli(*TRAIN, "--out", out, *options)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / store / "model.safetensors").read_bytes() == (tmp_path / "plain/model.safetensors").read_bytes()
    assert sorted(path.name for path in (tmp_path / store).iterdir()) == [
        "curves.png",
        "model.safetensors",
        "result.json",
    ]
    assert json.loads((tmp_path / store / "result.json").read_text())["config"]["store"] == store


def test_what_a_run_left_without_a_checkpoint_is_in_nobody_s_way(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run/theta").mkdir(parents=True)
    (tmp_path / "run/theta/theta.json").write_text("{")
    done = cli(*TRAIN, "--out", "run", "--store", "mapped")
    assert done.returncode == 0, done.stderr


def test_half_precision_belongs_to_files(cli: Cli) -> None:
    done = cli(*TRAIN, "--store-precision", "bf16")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "bf16" in done.stderr
    assert "mapped" in done.stderr


def test_a_run_in_half_precision_is_not_resumed_in_full(cli: Cli, tmp_path: Path) -> None:
    assert cli(*TRAIN, "--out", "run", "--store", "mapped", "--store-precision", "bf16").returncode == 0
    done = cli(*TRAIN, "--out", "run", "--store", "mapped", "--resume")
    assert done.returncode == 2
    assert "store_precision" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process's files")
def test_a_disk_that_fills_up_is_said_in_one_line(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB: Θ's first one is larger."""
    done = subprocess.run(
        command(*TRAIN, "--out", "run", "--store", "mapped"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run/theta").exists()
