"""`gistgnn train --store`, as a user calls it."""

import json
import resource
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import Forked

from .conftest import Cli
from .in_process import refused, run

TRAIN = ("train", "--hidden", 64, 64, "--epochs", 80, "--local-steps", 2, "--no-standardise")


def test_the_model_is_the_same_wherever_theta_is(cli: Cli, tmp_path: Path) -> None:
    """In files in a process of its own, in the host's memory in this one."""
    done = cli(*TRAIN, "--out", "disk", "--store", "disk")
    assert done.returncode == 0, done.stderr
    assert "note: the store" not in done.stderr
    for store in ("memory", "host"):
        assert run(*TRAIN, "--out", tmp_path / store, "--store", store) == 0
    models = {(tmp_path / store / "model.safetensors").read_bytes() for store in ("memory", "host", "disk")}
    assert len(models) == 1
    left = sorted(path.name for path in (tmp_path / "disk").iterdir())
    assert left == ["curves.png", "model.safetensors", "report.html", "result.json"]
    assert json.loads((tmp_path / "disk/result.json").read_text())["config"]["store"] == "disk"


def test_what_a_run_left_without_a_checkpoint_is_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / "run/theta").mkdir(parents=True)
    (tmp_path / "run/theta/theta.json").write_text("{")
    assert run(*TRAIN, "--out", tmp_path / "run", "--store", "disk") == 0


def test_a_run_in_half_precision_is_not_resumed_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = (*TRAIN, "--out", tmp_path / "run", "--store", "disk")
    assert run(*disk, "--store-precision", "bf16") == 0
    refused(capsys, "store_precision was 'bf16'", *disk, "--resume")


def run_with_small_files(*args: object) -> int:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return run(*args)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process's files")
def test_a_disk_that_fills_up_is_said_in_one_line(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB: Θ's first one is larger."""
    done = Forked(tmp_path, run_with_small_files, *TRAIN, "--out", "run", "--store", "disk").completed()
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run/theta").exists()
