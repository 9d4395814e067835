"""A model's files: written, replaced, found, and refused where they are damaged."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from gistgnn.storage import models as model_files
from gistgnn.storage.models import INDEX, SINGLE, model_path, read_model, shards_of, write_model
from gistgnn.storage.tensors import file_digest
from tests.helpers.refusals import refused

OLD, NEW = ({name: torch.full((5,), value) for name in "abc"} for value in (1.0, 2.0))
LIMITS = {"one file": 10**6, "two shards": 40, "three shards": 20}


def shards(count: int, end: str = "") -> list[str]:
    return [f"model-{number:05}-of-{count:05}{end}.safetensors" for number in range(1, count + 1)]


FILES = {"one file": [SINGLE], "two shards": [*shards(2), INDEX], "three shards": [*shards(3), INDEX]}


def values(folder: Path) -> dict[str, Tensor]:
    return read_model(folder, "make it again")


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("form", LIMITS)
def test_what_was_written_loads_in_plain_pytorch(form: str, tmp_path: Path) -> None:
    digests = write_model(tmp_path / "new", OLD, LIMITS[form])
    assert names(tmp_path / "new") == FILES[form]
    assert digests == {name: file_digest(tmp_path / "new" / name) for name in FILES[form]}
    assert model_path(tmp_path / "new").name == FILES[form][-1]
    assert same(values(tmp_path / "new"), OLD)
    if form != "one file":
        index = json.loads((tmp_path / "new" / INDEX).read_text())
        assert index["metadata"] == {"total_size": 60}
        assert same({name: load_file(tmp_path / "new" / file)[name] for name, file in index["weight_map"].items()}, OLD)


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

    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, watched(getattr(Path, name)))
    write_model(tmp_path, NEW, LIMITS[after])
    assert seen == sorted(seen)
    assert seen[-1]
    again = before == after != "one file"
    assert names(tmp_path) == ([*shards(len(FILES[after]) - 1, "-new"), INDEX] if again else FILES[after])


@pytest.mark.parametrize("failing", [1, 2])
def test_a_write_that_fails_leaves_the_old_model(failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, OLD, 20)
    write, calls = model_files.write_tensors, []

    def full(path: Path, *args: object) -> str:
        calls.append(path)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")
        return write(path, *args)

    monkeypatch.setattr(model_files, "write_tensors", full)
    with refused("No space left on device"):
        write_model(tmp_path, NEW, 20)
    assert same(values(tmp_path), OLD)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: (d / shards(3)[1]).unlink(), f"{shards(3)[1]} cannot be read (No such file"),
        (lambda d: (d / shards(3)[1]).write_bytes(b"torn"), f"{shards(3)[1]} cannot be read (SafetensorError"),
        (lambda d: (d / INDEX).write_text("{"), f"{INDEX} cannot be read (DecodeError"),
        (lambda d: (d / INDEX).write_text('{"weight_map": 3}'), f"{INDEX} cannot be read (ValidationError"),
        (lambda d: (d / INDEX).unlink(), f"{SINGLE} cannot be read (No such file"),
    ],
)
def test_damaged_models_are_refused(damage: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    write_model(tmp_path, OLD, 20)
    damage(tmp_path)
    with refused(said, "make it again"):
        values(tmp_path)
    write_model(tmp_path, NEW)
    assert same(values(tmp_path), NEW)
    assert names(tmp_path) == [SINGLE]


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 20)), st.integers(1, 30))
def test_shards(sizes: dict[str, int], limit: int) -> None:
    shards = shards_of(sizes, limit)
    assert sorted(name for shard in shards for name in shard) == sorted(sizes)
    assert all(len(shard) == 1 or sum(sizes[name] for name in shard) <= limit for shard in shards if shard)
    assert len(shards) == 1 or all(shards)
