"""A model's files: written, replaced, found, and refused where they are damaged."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.io import models as model_files
from gistgnn.io.models import INDEX, SINGLE, find_model, index_checksum, model_path, write_model
from gistgnn.io.stored_model import stored_model
from gistgnn.io.tensors import DTYPES, TensorFile
from tests.helpers.refusals import refused
from tests.nn.strategies import examples


def values(folder: Path) -> dict[str, Tensor]:
    return {name: TensorFile(place.path).read(place) for name, place in find_model(folder).items()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shards(count: int) -> list[str]:
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@examples
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(list(DTYPES.values()))), max_size=6),
    st.sampled_from([1, 50, 10**6]),
)
def test_what_was_written_is_found_and_loads_in_plain_pytorch(kinds: list[tuple], limit: int) -> None:
    tensors = {f"t.{i}": (torch.randn(shape) * 50).to(dtype) for i, (shape, dtype) in enumerate(kinds)}
    with TemporaryDirectory() as name:
        folder = Path(name) / "new"
        write_model(folder, tensors, limit)
        assert same(values(folder), tensors)
        written = names(folder)
        sharded = len(written) > 1
        assert model_path(folder).name == (INDEX if sharded else SINGLE)
        files = [load_file(folder / file) for file in written if file != INDEX]
        assert same({name: tensor for file in files for name, tensor in file.items()}, tensors)
        if sharded:
            assert written == [*shards(len(files)), INDEX]
            index = json.loads((folder / INDEX).read_text())
            assert index["metadata"].pop("checksum") == index_checksum(folder / INDEX)
            assert index["metadata"] == {"total_size": sum(tensor.nbytes for tensor in tensors.values())}
            assert index["weight_map"].keys() == tensors.keys()
        assert all(len(file) == 1 or sum(t.nbytes for t in file.values()) <= limit for file in files) or not tensors


def test_tensors_are_made_when_they_are_written() -> None:
    asked: list[str] = []

    class Made(Mapping[str, Tensor]):
        def __getitem__(self, name: str) -> Tensor:
            asked.append(name)
            return torch.full((3,), float(name))

        def __iter__(self) -> Iterator[str]:
            return iter("123")

        def __len__(self) -> int:
            return 3

    with TemporaryDirectory() as folder:
        write_model(Path(folder), Made(), 12)
        assert same(values(Path(folder)), {name: torch.full((3,), float(name)) for name in "123"})
    assert asked == [*"123", *"123"]


def test_a_model_in_files_is_copied(tmp_path: Path) -> None:
    model = nn.Linear(30, 20)
    write_model(tmp_path / "one", model.state_dict(), 500)
    with torch.device("meta"):
        empty = nn.Linear(30, 20)
    found = stored_model(empty, find_model(tmp_path / "one"), above=1)
    write_model(tmp_path / "two", {**found.state_dict(), "turned": found.weight.t()})
    assert same(values(tmp_path / "two"), {**model.state_dict(), "turned": model.weight.detach().t()})


OLD, NEW = ({name: torch.full((5,), value) for name in "abc"} for value in (1.0, 2.0))
LIMITS = {"one file": 10**6, "two shards": 40, "three shards": 20}
FILES = {"one file": [SINGLE], "two shards": [*shards(2), INDEX], "three shards": [*shards(3), INDEX]}


@pytest.mark.parametrize("after", LIMITS)
@pytest.mark.parametrize("before", LIMITS)
def test_one_model_or_the_other_loads_at_every_moment(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, OLD, LIMITS[before])
    seen = []

    def watched(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            done = function(*args, **options)
            found = values(tmp_path)
            seen.append(same(found, NEW))
            assert seen[-1] or same(found, OLD)
            return done

        return call

    for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "link")):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    write_model(tmp_path, NEW, LIMITS[after])
    assert seen == sorted(seen)
    assert seen[-1]
    assert names(tmp_path) == FILES[after]


def test_shards_are_replaced_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, OLD, 20)
    linked = []

    def link(*paths: Path) -> None:
        linked.append(paths)
        if len(linked) > 1:
            raise PermissionError("no links here")
        paths[1].write_bytes(b"")

    monkeypatch.setattr(os, "link", link)
    write_model(tmp_path, NEW, 20)
    assert same(values(tmp_path), NEW)
    assert names(tmp_path) == FILES["three shards"]


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("before", LIMITS)
def test_a_write_that_fails_leaves_the_old_model(
    before: str, failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, OLD, LIMITS[before])
    write, calls = model_files._write, []

    def full(path: Path, *args: object) -> None:
        calls.append(path)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")
        write(path, *args)

    monkeypatch.setattr(model_files, "_write", full)
    with refused("No space left on device"):
        write_model(tmp_path, NEW, 20)
    assert same(values(tmp_path), OLD)
    assert names(tmp_path) == FILES[before]


def test_an_index_that_cannot_be_written_leaves_the_old_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, OLD, 20)

    def fail(*args: object) -> None:
        raise InputError("the disk is full")

    monkeypatch.setattr(model_files, "_write_index", fail)
    with refused("the disk is full"):
        write_model(tmp_path, NEW, 20)
    assert same(values(tmp_path), OLD)
    assert names(tmp_path) == FILES["three shards"]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    write_model(tmp_path, OLD, 20)
    changed(tmp_path, weight_map={name: f".model-0000{i}-new.safetensors" for i, name in enumerate("abc", 1)})
    for number in range(1, 4):
        os.link(tmp_path / shards(3)[number - 1], tmp_path / f".model-{number:05}-new.safetensors")
    assert same(values(tmp_path), OLD)
    write_model(tmp_path, NEW)
    assert names(tmp_path) == [SINGLE]


def changed(folder: Path, **changes: object) -> None:
    """Write an index as others write it: without a checksum."""
    index = json.loads((folder / INDEX).read_text())
    del index["metadata"]["checksum"]
    (folder / INDEX).write_text(json.dumps({**index, **changes}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: (d / shards(3)[1]).unlink(), f"{shards(3)[1]} cannot be loaded (FileNotFoundError"),
        (lambda d: (d / shards(3)[1]).write_bytes(b"torn"), f"{shards(3)[1]} cannot be loaded (ValueError: it has 4"),
        (lambda d: (d / shards(3)[1]).replace(d / shards(3)[2]), "FileNotFoundError"),
        (lambda d: (d / shards(3)[1]).write_bytes((d / shards(3)[2]).read_bytes()), "does not hold 'b'"),
        (lambda d: changed(d, metadata={"total_size": 61}), "take 60 bytes, not 61"),
        (lambda d: changed(d, metadata={}), "KeyError: 'total_size'"),
        (lambda d: changed(d, weight_map={"a": "../model.safetensors"}), "'../model.safetensors', which is not beside"),
        (lambda d: changed(d, weight_map=3), "TypeError"),
        (lambda d: (d / INDEX).write_text("{"), f"{INDEX} is damaged: JSONDecodeError"),
        (lambda d: (d / INDEX).unlink(), f"{SINGLE} cannot be loaded (FileNotFoundError"),
    ],
)
def test_damaged_models(damage: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    write_model(tmp_path, OLD, 20)
    damage(tmp_path)
    with refused(said, "make it again"):
        find_model(tmp_path)
    write_model(tmp_path, NEW)
    assert same(values(tmp_path), NEW)
    assert names(tmp_path) == [SINGLE]


def test_numbers_that_no_file_holds(tmp_path: Path) -> None:
    with refused("'w' is torch.complex64, expected one of torch.float64", "convert it"):
        write_model(tmp_path, {"w": torch.zeros(2, dtype=torch.complex64)})
    assert names(tmp_path) == []
