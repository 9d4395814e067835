"""Safetensors files: written, mapped, and refused where they are damaged.

And modules that take their tensors.
"""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gistgnn.nn import GraphSAGE
from gistgnn.storage import tensors as stored
from gistgnn.utils.tensors import row_pieces
from tests.helpers.fitting import same
from tests.helpers.refusals import full_disk, refused
from tests.nn.strategies import examples

F = 5
shapes_and_types = st.tuples(
    st.lists(st.integers(0, 5), max_size=3), st.sampled_from(list(stored.DTYPES.values()))
)


@examples
@given(st.lists(shapes_and_types, min_size=1, max_size=5))
def test_what_is_written_is_read_and_mapped(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[list[int], torch.dtype]]
) -> None:
    tensors = {
        f"t.{i}": (torch.randn(shape) * 50).to(dtype) for i, (shape, dtype) in enumerate(kinds)
    }
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    stored.write_tensors(path, tensors)
    assert same(stored.read_tensors(path, ""), tensors)
    assert same(load_file(path), tensors)
    path.unlink()
    stored.allocate(path, {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
    mapped = stored.map_tensors(path)
    assert same(mapped, {name: torch.zeros_like(tensor) for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        mapped[name].copy_(tensor)
    assert same(load_file(path), tensors)
    assert same(stored.map_tensors(path), tensors)


def test_a_tensor_that_was_read_is_apart_from_the_file(tmp_path: Path) -> None:
    stored.write_tensors(tmp_path / "t", {"a": torch.ones(3)})
    stored.read_tensors(tmp_path / "t", "")["a"].zero_()
    tensor = stored.read_tensors(tmp_path / "t", "")["a"]
    save_file({"a": torch.zeros(3)}, tmp_path / "other")
    (tmp_path / "other").replace(tmp_path / "t")
    assert tensor.tolist() == [1, 1, 1]


def test_tied_and_turned_tensors_are_written(tmp_path: Path) -> None:
    one = torch.randn(3, 4)
    stored.write_tensors(tmp_path / "t", {"a": one, "b": one, "turned": one.t()})
    assert same(load_file(tmp_path / "t"), {"a": one, "b": one, "turned": one.t()})


def test_what_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    for use in (
        lambda path: stored.check_digest(path, "", "do it again"),
        lambda path: stored.read_tensors(path, "do it again"),
    ):
        with refused(str(tmp_path / "missing"), "No such file", "do it again"):
            use(tmp_path / "missing")
    with refused("'w'", "complex64", "convert it"):
        stored.write_tensors(tmp_path / "t", {"w": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(IsADirectoryError):  # the library's error is the system's
        stored.write_tensors(tmp_path, {"a": torch.ones(3)})


def test_a_full_disk_is_said_before_pages_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with refused("No space left on device", "make room"):
        stored.temporary_tensors({"a": (torch.Size([3]), torch.float32)}, tmp_path)
    assert list(tmp_path.iterdir()) == []


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(F, F)
        self.up = nn.Linear(F, F, bias=False)
        self.up.weight = self.down.weight
        self.register_buffer("twice", torch.ones(F))
        self.register_buffer("absent", None)
        self.register_buffer("not_saved", torch.ones(2, device="cpu"), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x).relu()) + self.twice


@pytest.mark.parametrize("large", [1, 2**24])
def test_a_module_takes_its_tensors(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "LARGE", large)
    model = Tied()
    x = torch.randn(3, F)
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    tensors["twice"] = model.twice
    assert "up.weight" not in tensors
    with torch.device("meta"):
        empty = Tied()
    module = stored.assign(empty, tensors, "the file")
    assert module.up.weight is module.down.weight
    assert module.up.weight.requires_grad
    assert (module.up.weight.data_ptr() == model.up.weight.data_ptr()) == (large == 1)
    assert not module.training
    assert torch.equal(module(x), model(x))


def test_the_tensors_of_another_model_are_refused() -> None:
    tensors = {name: tensor.detach() for name, tensor in GraphSAGE(7, (8,), 3).named_parameters()}
    with torch.device("meta"):
        other = GraphSAGE(7, (9,), 3)
        plain = nn.Linear(2, 2)
    for module, some, message in (
        (other, tensors, "'convs.0.weight' is [8, 14] in the file and [9, 14] in the model"),
        (other, {}, "the file does not hold 'convs.0.weight'"),
        (plain, tensors, "the file holds 'convs.0.bias', the model does not"),
    ):
        with refused(message):
            stored.assign(module, some, "the file")


@given(st.integers(0, 50), st.integers(0, 9), st.integers(1, 40))
def test_row_pieces_cover_all_rows_and_are_not_too_large(
    rows: int, row_bytes: int, most: int
) -> None:
    pieces = list(row_pieces(rows, row_bytes, most))
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(rows))
    for piece in pieces:
        count = piece.stop - piece.start
        assert count == 1 or count * row_bytes <= most
