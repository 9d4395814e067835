"""Standard streams that are closed, or on a full disk: a run goes on, and its result is written."""

import os
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import Forked

TRAIN = "train --hidden 8 --sub-gcns 2 --epochs 2 --device cpu --out run"


def _run(streams: dict[int, str], words: list[str]) -> int:
    """Run `gistgnn` with some streams as a shell opens them: "" is closed, "pipe" leads to a program that has ended."""
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
    ("words", "streams", "status", "said"),
    [
        (TRAIN, {2: "/dev/full"}, 0, "accuracy"),
        (TRAIN, {0: "", 1: "", 2: ""}, 0, ""),
        (TRAIN, {1: "/dev/full"}, 2, "No space left on device: 'standard output'"),
        (f"{TRAIN} --json", {1: ""}, 0, "the results go to run"),
        ("datasets digits", {1: ""}, 0, ""),
        ("--version", {1: "/dev/full"}, 2, "No space left on device: 'standard output'"),
        ("train --help", {1: "/dev/full"}, 2, "No space left on device: 'standard output'"),
        ("--version", {1: ""}, 0, ""),
        ("datasets", {1: "pipe"}, 141, ""),
        ("train --wrong", {2: ""}, 2, ""),
        ("train --wrong", {2: "/dev/full"}, 2, ""),
    ],
)
def test_a_stream_that_cannot_be_written(
    tmp_path: Path, words: str, streams: dict[int, str], status: int, said: str
) -> None:
    done = Forked(tmp_path, _run, streams, words.split()).completed()
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (tmp_path / "run/result.json").exists() == words.startswith(TRAIN)
