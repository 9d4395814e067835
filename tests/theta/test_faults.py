"""A Θ in files that is damaged, of another model, or on a disk that fails."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, Saving
from gistgnn.errors import InputError
from gistgnn.theta import disk
from tests.helpers.models import OURS
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make
from tests.theta.stores import equal, shaken, store, values


def test_what_is_in_the_folder_is_not_written_over(tmp_path: Path) -> None:
    shaken(make(store=store("disk", tmp_path)), 2)
    with refused(str(tmp_path / "theta"), "not empty", "resume"):
        make(store=store("disk", tmp_path)).theta  # noqa: B018
    other = make(store=store("disk", tmp_path))
    other.resume()
    assert other.next_round == 2


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ({"widths": (8, 9)}, ["'convs.1.weight'"]),
        ({"model": "graphsage"}, ["'convs.0.weight'"]),
        ({"norm": "none"}, ["'norms.0"]),
    ],
    ids=["widths", "layer", "norm"],
)
def test_the_theta_of_another_model_is_refused(tmp_path: Path, other: dict[str, Any], parts: list[str]) -> None:
    make(store=store("disk", tmp_path)).theta  # noqa: B018
    model, norm = other.get("model", "gcn"), other.get("norm", "batch")
    gist = GIST(lambda w: OURS[model](w, norm=norm), other.get("widths", (8, 7)), 3, store=store("disk", tmp_path))
    with refused("another model", str(tmp_path / "theta"), *parts):
        gist.resume()


def test_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    with refused("no Θ to resume", "theta"):
        make(store=store("disk", tmp_path)).resume()
    with refused("no Θ to resume", "memory"):
        make().resume()


def wrong_size(folder: Path) -> None:
    path = folder / "parameters.safetensors"
    os.truncate(path, path.stat().st_size - 4)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "wrong size": wrong_size,
    "no files": lambda folder: (folder / "parameters.safetensors").unlink(),
    "no state": lambda folder: (folder / "theta.json").unlink(),
    "torn state": lambda folder: (folder / "theta.json").write_text("{"),
    "other state": lambda folder: (folder / "theta.json").write_text('{"round": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_theta_is_refused(tmp_path: Path, damage: str) -> None:
    shaken(make(store=store("disk", tmp_path)), 1)
    DAMAGES[damage](tmp_path / "theta")
    with refused(str(tmp_path / "theta")):
        make(store=store("disk", tmp_path)).resume()


def test_a_checkpoint_of_another_run_s_theta_is_refused(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "checkpoints", resume=True)
    fit(make(store=store("disk", tmp_path)), callbacks=after(4), saving=saving)
    shutil.rmtree(tmp_path / "theta")
    make(store=store("disk", tmp_path)).theta  # noqa: B018
    with refused(str(tmp_path / "theta"), "another run than the checkpoint"):
        fit(make(store=store("disk", tmp_path)), saving=saving)


def test_a_checkpoint_of_an_earlier_round_is_refused(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "checkpoints", resume=True)
    fit(make(store=store("disk", tmp_path)), callbacks=after(1), saving=saving)
    shutil.move(tmp_path / "checkpoints", tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "checkpoints")
    fit(make(store=store("disk", tmp_path)), callbacks=after(3), saving=saving)
    shutil.rmtree(tmp_path / "checkpoints")
    shutil.move(tmp_path / "before", tmp_path / "checkpoints")
    with refused("been through 4 rounds, the checkpoint beside it through 1"):
        fit(make(store=store("disk", tmp_path)), saving=saving)


@pytest.mark.parametrize(("call", "step"), [("write_tensors", 1), ("fsync", 1), ("replace", 1)])
def test_a_disk_that_fails_costs_the_round_at_most(
    tmp_path: Path, call: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Throughout a round; whatever was there still loads, and the run goes on from it."""
    plain = make()
    shaken(plain, 2, torch.optim.Adam)
    expected, done, at = values(plain.theta), False, 1 - step
    while not done:
        at += step
        folder = tmp_path / str(at)
        gist = make(store=store("disk", folder))
        shaken(gist, 1, torch.optim.Adam)
        done = not fails_at(at, call, lambda gist=gist: shaken(gist, 1, torch.optim.Adam), monkeypatch)
        again = make(store=store("disk", folder))
        again.resume()
        shaken(again, 2 - again.next_round, torch.optim.Adam)
        assert equal(values(again.theta), expected)
    assert at >= 3


def fails_at(at: int, call: str, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do the work while the n-th call of a system function finds the disk full; say whether that came to pass."""
    owner: Any = {"replace": Path, "fsync": os}.get(call, disk)
    real, count = getattr(owner, call), iter(range(1, 10**6))

    def failing(*args: Any) -> Any:
        if next(count) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, failing)
        try:
            work()
        except InputError as error:
            return "No space left" in str(error)
    return False


def test_a_disk_without_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with refused("takes 860 bytes of disk, 100 bytes are free: make room"):
        make(store=store("disk", tmp_path)).theta  # noqa: B018
    assert list(tmp_path.iterdir()) == []
