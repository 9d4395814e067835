"""Damage to a Θ in files: flipped bits, and files of another run or round."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn import GIST
from gistgnn.errors import InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.theta.disk.on_disk import OnDisk
from gistgnn.theta.disk.tensor_file import EditableFile
from gistgnn.theta.model_spec import TensorSpec
from tests.helpers.flips import flipped, some_bytes
from tests.helpers.refusals import refused
from tests.helpers.resuming import make
from tests.theta.stores import shaken, store, values

ADAM = torch.optim.Adam


def trained(folder: Path, rounds: int = 2, **options: Any) -> GIST:
    """Rounds with carried moments, and a best Θ that is not the last one."""
    gist = make(store=store("disk", folder), **options)
    shaken(gist, 1, ADAM)
    gist.theta.keep_best()
    shaken(gist, rounds - 1, ADAM)
    return gist


def everything(folder: Path, **options: Any) -> dict[str, Tensor]:
    """All that a new process reads of a Θ: parameters, moments, the best one; and it goes on for a round."""
    gist = make(store=store("disk", folder), **options)
    gist.resume()
    try:
        best = named_tensors(gist.theta.full_model(gist._spec, best=True))
        found = {**values(gist.theta), **{f"best/{name}": tensor.clone() for name, tensor in best.items()}}
        shaken(gist, 1, ADAM)
        return found
    finally:
        gist.theta.close()  # type: ignore[attr-defined]


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy of the folder of Θ in a folder of its own."""
    place = folder.with_name("copy")
    shutil.copytree(folder / "theta", place / "theta")
    try:
        yield place
    finally:
        shutil.rmtree(place)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "theta").rglob("*") if path.is_file() and path.name[0] != ".")


def test_a_flipped_bit_in_any_file_is_refused(tmp_path: Path) -> None:
    """Headers, rows, checksums, state; of parameters, moments and the best Θ."""
    trained(tmp_path / "run").theta.close()  # type: ignore[attr-defined]
    folders = {path.parent.name.partition("-")[0] for path in files_of(tmp_path / "run")}
    assert folders == {"theta", "parameters", "moments", "best"}
    expected = None
    with copied(tmp_path / "run") as folder:
        expected = everything(folder)
    for file in files_of(tmp_path / "run"):
        for at in [*some_bytes(file, 25), *range(min(8, file.stat().st_size))]:
            with copied(tmp_path / "run") as folder:
                damaged = folder / file.relative_to(tmp_path / "run")
                with flipped(damaged, at):
                    assert is_refused(folder, damaged, expected), (file.name, at)


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    trained(tmp_path / "run").theta.close()  # type: ignore[attr-defined]
    for path in files_of(tmp_path / "run"):
        with copied(tmp_path / "run") as folder:
            damaged = folder / path.relative_to(tmp_path / "run")
            damaged.unlink()
            os.mkfifo(damaged)
            with pytest.raises(InputError, match="no regular file"):
                everything(folder)


def is_refused(folder: Path, damaged: Path, expected: dict[str, Tensor]) -> bool:
    try:
        found = everything(folder)
    except InputError as error:
        return str(damaged) in str(error) and "start the run again" in str(error)
    same = all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    return same and damaged.name == "theta.json"  # such as 1E-05 for 1e-05


def committed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Θ whose process was killed when a round was committed, and nothing of it was written into Θ."""
    gist = trained(folder)
    with monkeypatch.context() as patch:
        patch.setattr(OnDisk, "_write_round", killed)
        with pytest.raises(KeyboardInterrupt):
            shaken(gist, 1, ADAM)
    gist.theta.close()  # type: ignore[attr-defined]


def killed(theta: OnDisk) -> None:
    raise KeyboardInterrupt


def test_a_flipped_bit_in_a_committed_round_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the round, Θ is the one before: that is what the message offers."""
    committed(tmp_path / "run", monkeypatch)
    files = [file for file in files_of(tmp_path / "run") if file.parent.name == "round"]
    assert {file.suffix for file in files} == {".safetensors", ".json", ""}
    with copied(tmp_path / "run") as folder:
        everything(folder)
    for file in files:
        for at in some_bytes(file, 10):
            with copied(tmp_path / "run") as folder:
                damaged = folder / file.relative_to(tmp_path / "run")
                with flipped(damaged, at), refused(str(damaged), f"remove {folder / 'theta/round'} to go on"):
                    everything(folder)
    with copied(tmp_path / "run") as folder:
        shutil.rmtree(folder / "theta/round")
        gist = make(store=store("disk", folder))
        gist.resume()
        assert gist.next_round == 2


def test_a_damaged_round_that_is_half_written_cannot_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gist, update = trained(tmp_path), EditableFile.update
    calls = iter(range(100))

    def until(*args: Any, **options: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        update(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(EditableFile, "update", until)
        with pytest.raises(KeyboardInterrupt):
            shaken(gist, 1, ADAM)
    gist.theta.close()  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "theta/round")
    with refused("is damaged, or of another round: rows 0 to"):
        everything(tmp_path)


SWAPS: dict[str, Callable[[Path, Path], Any]] = {
    "parameters": lambda a, b: shutil.copy(b / "parameters/00001.safetensors", a / "parameters"),
    "moments": lambda a, b: shutil.copy(b / "moments/00001.safetensors", a / "moments"),
    "best": lambda a, b: shutil.copy(b / "best-1/00001.safetensors", a / "best-1"),
    "checksums": lambda a, b: shutil.copytree(b / "parameters", a / "parameters", dirs_exist_ok=True),
    "all moments": lambda a, b: shutil.copytree(b / "moments", a / "moments", dirs_exist_ok=True),
    "the best": lambda a, b: shutil.copytree(b / "best-1", a / "best-1", dirs_exist_ok=True),
    "state": lambda a, b: shutil.copy(b / "theta.json", a),
}


@pytest.mark.parametrize("what", SWAPS)
def test_files_of_another_run_are_named(tmp_path: Path, what: str) -> None:
    """A run of the same shape, and of another seed."""
    for name, seed in (("one", 0), ("other", 1)):
        trained(tmp_path / name, seed=seed).theta.close()  # type: ignore[attr-defined]
    SWAPS[what](tmp_path / "one/theta", tmp_path / "other/theta")
    with refused(str(tmp_path / "one/theta"), "is of another run"):
        everything(tmp_path / "one")


@pytest.mark.parametrize("what", ["parameters", "moments", "checksums", "all moments", "state"])
def test_files_of_another_round_are_refused(tmp_path: Path, what: str) -> None:
    gist = trained(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "before")
    shaken(gist, 1, ADAM)
    gist.theta.close()  # type: ignore[attr-defined]
    SWAPS[what](tmp_path / "one/theta", tmp_path / "before/theta")
    with refused(str(tmp_path / "one/theta"), "start the run again"):
        everything(tmp_path / "one")


def test_a_committed_round_of_another_run_or_round_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(tmp_path / "one", monkeypatch)
    trained(tmp_path / "other", seed=1).theta.close()  # type: ignore[attr-defined]
    shutil.copytree(tmp_path / "one/theta/round", tmp_path / "other/theta/round")
    with refused(str(tmp_path / "other/theta/round"), "is of another run"):
        everything(tmp_path / "other", seed=1)
    shutil.copytree(tmp_path / "one/theta/round", tmp_path / "round")
    everything(tmp_path / "one")
    everything(tmp_path / "one")
    shutil.copytree(tmp_path / "round", tmp_path / "one/theta/round")
    with refused("is of another round than"):
        everything(tmp_path / "one")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_read_of_a_damaged_row_is_refused(data: st.DataObject, tmp_path: Path) -> None:
    """Whatever else is read with it; rows of other blocks are read as before."""
    rows, columns = data.draw(st.integers(1, 400)), data.draw(st.sampled_from([1, 40, 3000, 5000]))
    path = tmp_path / "t.safetensors"
    path.unlink(missing_ok=True)
    file = EditableFile.create(path, {"x": TensorSpec(torch.Size([rows, columns]), torch.float32)}, "a run")
    tensor = torch.randn(rows, columns)
    file.write("x", tensor)
    row = data.draw(st.integers(0, rows - 1))
    start, stop = sorted((data.draw(st.integers(0, rows - 1)), data.draw(st.integers(1, rows))))
    place = file.places["x"]
    with flipped(path, place.offset + (row * columns + data.draw(st.integers(0, columns - 1))) * 4):
        for read in (
            lambda: file.slice("x"),
            lambda: file.slice("x", (torch.tensor([row]), None)),
            lambda: file.rows("x", row, row + 1),
            lambda: file.read(place, slice(row, row + 1), slice(0, 1)),
            lambda: file.update("x", [((torch.tensor([row]), torch.tensor([0])), lambda a, b: torch.ones(b - a, 1))]),
        ):
            with refused("is damaged, or of another round", "'x'"):
                read()
        per = max(2**14 // (4 * columns), 1)
        if start < stop and not start // per <= row // per <= (stop - 1) // per:
            assert torch.equal(file.rows("x", start, stop), tensor[start:stop])
    assert torch.equal(file.read(place, slice(row, row + 1), slice(0, 1)), tensor[row : row + 1, :1])
    assert torch.equal(file.slice("x"), tensor)
    file.close()
