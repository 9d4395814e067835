"""Reading and writing parts of tensors in a file."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from gistgnn.io.tensors import shards_of
from gistgnn.theta.disk import row_batches, row_checksums, tensor_file
from gistgnn.theta.disk.tensor_file import EditableFile
from gistgnn.theta.disk.tensor_folder import EditableFolder
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut, gather, scatter
from tests.helpers.refusals import refused

examples = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small tensors are read in several pieces, and rows between wanted ones are sometimes read with them."""
    monkeypatch.setattr(row_batches, "READ", 100)
    monkeypatch.setattr(tensor_file, "WRITTEN", 100)
    monkeypatch.setattr(row_batches, "_GAP", 30)
    monkeypatch.setattr(row_checksums, "BLOCK", 20)


def chosen(draw: st.DrawFn, size: int) -> Tensor | None:
    if draw(st.booleans()):
        return None
    return torch.tensor(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1))))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Tensor, Cut]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    shape[0] = draw(st.integers(1, 60))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64]))
    values = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)
    return values, tuple(chosen(draw, size) for size in shape)


def stored(folder: Path, values: Tensor) -> EditableFile:
    """A new file with the values between two others."""
    path = folder / "values.safetensors"
    path.unlink(missing_ok=True)
    file = EditableFile.create(
        path,
        {
            "before": TensorSpec(torch.Size([3]), torch.bool),
            "x": TensorSpec(values.shape, values.dtype),
            "after": TensorSpec(torch.Size([]), torch.float32),
        },
        "a run",
    )
    file.write("x", values)
    return file


@examples
@given(case=cuts())
def test_a_part_is_read_as_memory_gives_it(case: tuple[Tensor, Cut], tmp_path: Path) -> None:
    values, cut = case
    file = stored(tmp_path, values)
    assert torch.equal(file.slice("x", cut), gather(values, cut))
    assert torch.equal(file.slice("x"), values)
    assert torch.equal(file.rows("x", 0, 1), values[:1])
    assert file.slice("after") == 0


@examples
@given(case=cuts(), parts=st.integers(1, 3), seed=st.integers(0, 99))
def test_disjoint_parts_are_written_in_one_pass(
    case: tuple[Tensor, Cut], parts: int, seed: int, tmp_path: Path
) -> None:
    """Some rows of the cut belong to each part, and some to none."""
    values, cut = case
    rows = torch.arange(len(values)) if cut[0] is None else cut[0]
    owner = torch.randint(parts + 1, (len(rows),), generator=torch.Generator().manual_seed(seed))
    given_parts = []
    expected = values.clone()
    for part in range(parts):
        if not len(own := rows[owner == part]):
            continue
        new = -1 - torch.arange(gather(values, (own, *cut[1:])).numel()).view(gather(values, (own, *cut[1:])).shape)
        new = new.to(values.dtype)
        given_parts.append(((own, *cut[1:]), lambda a, b, new=new: new[a:b]))
        scatter(expected, (own, *cut[1:]), new)
    file = stored(tmp_path, values)
    file.update("x", given_parts)
    assert torch.equal(file.slice("x"), expected)


def test_the_file_is_one_that_the_library_reads(tmp_path: Path) -> None:
    file = stored(tmp_path, torch.arange(12.0).view(3, 4))
    found = load_file(file.path)
    assert found["x"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert found["before"].tolist() == [False] * 3
    assert found["after"] == 0


def test_a_new_file_takes_no_room(tmp_path: Path) -> None:
    file = EditableFile.create(
        tmp_path / "large.safetensors", {"x": TensorSpec(torch.Size([2**20, 2**10]), torch.float32)}, "a run"
    )
    assert file.path.stat().st_size > 2**32
    assert file.path.stat().st_blocks * 512 < 2**16


def damaged(how: str, data: bytes) -> bytes:
    return {
        "cut short": data[:-1],
        "longer": data + b"x",
        "no header": data[:5],
        "header cut": data[:20],
        "no JSON": data[:9] + b"!" + data[10:],
        "empty": b"",
    }[how]


@pytest.mark.parametrize("how", ["cut short", "longer", "no header", "header cut", "no JSON", "empty"])
def test_a_damaged_file_is_refused(how: str, tmp_path: Path) -> None:
    file = stored(tmp_path, torch.arange(12.0))
    file.close()
    file.path.write_bytes(damaged(how, file.path.read_bytes()))
    with refused(str(file.path), "start the run again"):
        EditableFile(file.path, file.checksums)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = stored(tmp_path, torch.arange(12.0))

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(EditableFile, "_write_some", full)
    with refused(str(file.path), "No space left", "make room"):
        file.write("x", torch.ones(12))


def test_a_file_that_is_cut_while_it_is_open_is_said(tmp_path: Path) -> None:
    file = stored(tmp_path, torch.arange(12.0))
    os.truncate(file.path, 80)
    with refused(str(file.path), "cut short"):
        [file.slice(name) for name in file.specs]


def test_tensors_are_dealt_out_to_files(tmp_path: Path) -> None:
    assert shards_of({"a": 4, "b": 5, "c": 1, "d": 20, "e": 3}, 10) == [["a", "b", "c"], ["e"], ["d"]]
    files = EditableFolder.create(tmp_path / "some", {"a": TensorSpec(torch.Size([3]), torch.float32)}, "a run")
    files.extend({"b": TensorSpec(torch.Size([2]), torch.float32)})
    files.file_of["b"].write("b", torch.ones(2))
    assert [path.name for path in files.paths] == ["00001.safetensors", "00002.safetensors"]
    digest = files.save(7)
    files.copy(tmp_path / "copy", 7)
    copied = EditableFolder.open(tmp_path / "copy", "a run", 7, digest)
    assert copied.slice("b").tolist() == [1, 1]
    assert copied.slice("a").tolist() == [0, 0, 0]
