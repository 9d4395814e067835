"""Parts of tensors that several processes write, and others read."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.checkpoint import Checkpoints, Part, storage
from gistgnn.checkpoint.storage import read_parts, saved_tensors, write_parts
from tests.helpers.refusals import refused

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]


def cut(tensors: dict[str, Tensor], count: int, rank: int) -> dict[str, Part]:
    """A rank's rows, as `torch.chunk` deals them; single numbers are rank 0's."""
    parts = {}
    for name, tensor in tensors.items():
        rows = (*tensor.shape, 1)[0]
        each = -(-rows // count)
        first = min(rank * each, rows)
        if tensor.dim() == 0 and rank == 0:
            parts[name] = Part.whole(tensor)
        elif tensor.dim() and tensor[first : first + each].numel():
            parts[name] = Part(tensor[first : first + each], tensor.shape, first)
    return parts


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Tensor]:
    found = {}
    for k in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(1, 9), max_size=3))
        values = torch.randn(shape, generator=torch.Generator().manual_seed(k)) * 100
        tensor = values.to(draw(st.sampled_from(DTYPES)))
        found[f"theta/conv.{k}/w"] = tensor.T.contiguous().T if tensor.dim() == 2 else tensor
    return found


@settings(max_examples=40, deadline=None)
@given(tensors(), st.integers(1, 5), st.integers(1, 5))
def test_what_some_write_others_read(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Tensor], writers: int, readers: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    for rank in range(writers):
        if parts := cut(tensors, writers, rank):
            write_parts(folder, parts, rank)
    saved = saved_tensors(folder)
    found = {name: (tensor.shape, tensor.dtype, tensor.numel) for name, tensor in saved.items()}
    assert found == {name: (tensor.shape, tensor.dtype, tensor.numel()) for name, tensor in tensors.items()}
    read = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    for rank in range(readers):
        read_parts(saved, cut(read, readers, rank))
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor), name


def test_tensors_are_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_PIECE", 40)
    whole = torch.randn(50, 3)
    for rank, first in enumerate((0, 21)):
        rows = whole[first : (21, 50)[rank]]
        write_parts(tmp_path, {"a": Part(rows, whole.shape, first)}, rank)
    read = torch.zeros(33, 3)
    read_parts(saved_tensors(tmp_path), {"a": Part(read, whole.shape, 7)})
    assert torch.equal(read, whole[7:40])


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *args: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_tensors", full)
    with pytest.raises(OSError, match="No space"):
        write_parts(tmp_path, {"a": Part.whole(torch.ones(2))}, 0)
    assert not list(tmp_path.iterdir())


def test_rows_that_are_missing_are_named(tmp_path: Path) -> None:
    """As where ranks write to disks of their own."""
    tensor, checkpoints = torch.zeros(6, 2), Checkpoints(tmp_path)
    write_parts(checkpoints.place(4), {"theta/w": Part(tensor[:3], tensor.shape)}, 0)
    with refused("lacks rows of 'theta/w'", "all machines see the same files"):
        checkpoints.complete(4, {}, {}, {"theta/w": tensor.shape})
    assert checkpoints.newest() is None
