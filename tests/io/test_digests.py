"""The digests of whole safetensors files."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gistgnn.io.digests import RUN, UNKNOWN, check_file, digest_in, problem_with, run_id
from gistgnn.io.tensors import read_header, write_tensors
from tests.helpers.flips import every_byte, flipped
from tests.helpers.refusals import refused

TENSORS = {"a": torch.arange(40.0), "b": torch.ones(3, 2, dtype=torch.bfloat16), "none": torch.zeros(0, 4)}


def written(path: Path, run: str = "a run", add: float = 0) -> str:
    specs = {name: (tensor.shape, tensor.dtype) for name, tensor in TENSORS.items()}
    return write_tensors(path, specs, lambda name: (TENSORS[name] + add).split(7), {RUN: run, "more": "text"})


def test_the_library_reads_the_file_and_its_metadata_say_the_digest(tmp_path: Path) -> None:
    digest = written(tmp_path / "t")
    found = load_file(tmp_path / "t")
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())
    assert read_header(tmp_path / "t")[1] == {"digest": digest, "run": "a run", "more": "text", "format": "pt"}
    assert digest_in(tmp_path / "t") == digest
    check_file(tmp_path / "t", "do it again", digest=digest, run="a run")


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    digest = written(path)
    for place in every_byte(path):
        with flipped(path, place):
            assert problem_with(path) is not None, place
    assert problem_with(path, digest=digest) is None


def test_files_of_another_size_are_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert problem_with(path) is not None, size
    path.write_bytes(whole + b"\0")
    assert problem_with(path) == "is damaged: its checksum does not fit"


def test_a_file_that_was_not_finished_is_damaged(tmp_path: Path) -> None:
    digest = written(tmp_path / "t")
    whole = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(whole.replace(digest.encode(), UNKNOWN.encode()))
    assert problem_with(tmp_path / "t") == "is damaged: its checksum does not fit"


def test_foreign_files_are_named(tmp_path: Path) -> None:
    digest = written(tmp_path / "t")
    with refused(f"{tmp_path / 't'} is of another run; do it again"):
        check_file(tmp_path / "t", "do it again", digest=digest, run="another")
    later = written(tmp_path / "u", add=1)
    assert later != digest
    with refused("is another file than the one that was written here"):
        check_file(tmp_path / "u", "do it again", digest=digest, run="a run")


def test_files_without_a_digest(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "t")
    with refused("has no checksum, so it is damaged, or an earlier version made it; do it again"):
        check_file(tmp_path / "t", "do it again")
    with refused("No such file", "do it again"):
        check_file(tmp_path / "missing", "do it again")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with refused("is no regular file"):
        check_file(tmp_path / "pipe", "do it again")


def test_the_id_of_a_run_follows_from_its_settings() -> None:
    one = {"lr": 0.1, "widths": (8, 8), "graph": ["cora", 5]}
    assert run_id(one) == run_id({"graph": ["cora", 5], "widths": [8, 8], "lr": 0.1})
    assert run_id(one) != run_id({**one, "lr": 0.2})
