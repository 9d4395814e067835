"""A Θ in files that is damaged, of another model, or on a disk that fails."""

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, Saving
from gistgnn.errors import InputError
from gistgnn.storage.json_files import write_json
from gistgnn.theta import disk
from gistgnn.theta.disk import State
from tests.helpers.fitting import same
from tests.helpers.models import OURS
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make
from tests.theta.stores import shaken, store, values


def test_the_theta_of_another_model_is_refused(tmp_path: Path) -> None:
    for options, part in (({"store": store("disk", tmp_path)}, "theta"), ({}, "memory")):
        with refused("no Θ to resume", part):
            make(**options).resume()
    make(store=store("disk", tmp_path)).theta  # noqa: B018
    for model, widths, norm, part in (
        ("gcn", (8, 9), "batch", "'convs.1.weight' is [7, 8]"),
        ("graphsage", (8, 7), "batch", "'convs.0.weight'"),
        ("gcn", (8, 7), "none", "'norms.0"),
    ):
        gist = GIST(partial(OURS[model], norm=norm), widths, 3, store=store("disk", tmp_path))
        with refused("another model", str(tmp_path / "theta"), part):
            gist.resume()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "wrong size": lambda folder: os.truncate(folder / "parameters.safetensors", 99),
    "no files": lambda folder: (folder / "parameters.safetensors").unlink(),
    "no state": lambda folder: (folder / "theta.json").unlink(),
    "torn state": lambda folder: (folder / "theta.json").write_text("{"),
    "other state": lambda folder: (folder / "theta.json").write_text('{"round": 1}'),
    "other moments": lambda folder: write_json(
        folder / "theta.json", State("", moments=["parameters.safetensors"])
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_theta_is_refused(tmp_path: Path, damage: str) -> None:
    shaken(make(store=store("disk", tmp_path)), 1)
    DAMAGES[damage](tmp_path / "theta")
    with refused(str(tmp_path / "theta")):
        make(store=store("disk", tmp_path)).resume()


def test_a_checkpoint_of_another_theta_is_refused(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    theta = tmp_path / "theta"
    saving = Saving(checkpoints, resume=True)
    fit(make(store=store("disk", tmp_path)), callbacks=after(1), saving=saving)
    shutil.copytree(checkpoints, tmp_path / "before")
    fit(make(store=store("disk", tmp_path)), callbacks=after(3), saving=saving)
    shutil.rmtree(checkpoints)
    shutil.move(tmp_path / "before", checkpoints)
    with refused("been through 4 rounds, the checkpoint beside it through 1"):
        fit(make(store=store("disk", tmp_path)), saving=saving)
    shutil.rmtree(theta)
    make(store=store("disk", tmp_path)).theta  # noqa: B018
    with refused(str(theta), "another run than the checkpoint"):
        fit(make(store=store("disk", tmp_path)), saving=saving)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("call", "before"), [("replace", 1), ("fsync", 1), ("write_tensors", 0)])
def test_a_disk_that_fails_costs_the_round_at_most(
    tmp_path: Path, call: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Throughout a round; whatever was there still loads, and the run goes on from it.

    In the first round, the same process goes on: it is that round which makes the moments.
    """
    plain = make()
    shaken(plain, 2, torch.optim.Adam)
    expected = values(plain.theta)
    completed = False
    at = 0
    while not completed:
        at += 1
        folder = tmp_path / str(at)
        gist = make(store=store("disk", folder))
        shaken(gist, before, torch.optim.Adam)
        one_round = partial(shaken, gist, 1, torch.optim.Adam)
        completed = not fails_at(at, call, one_round, monkeypatch)
        if not before:
            gist.next_round = gist.theta.place.round
            shaken(gist, 2 - gist.next_round, torch.optim.Adam)
        again = make(store=store("disk", folder))
        again.resume()
        shaken(again, 2 - again.next_round, torch.optim.Adam)
        assert same(values(again.theta), expected)
    assert at >= 3


def fails_at(at: int, call: str, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do the work while the n-th call of a system function finds the disk full.

    Return whether there were so many calls, and the work was refused.
    """
    owner: Any = {"replace": Path, "fsync": os}.get(call, disk)
    real = getattr(owner, call)
    count = iter(range(1, 10**6))

    def failing(*args: Any, **options: Any) -> Any:
        if next(count) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **options)

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
