"""Runs that are saved: what is refused, torn, damaged, or does not fit on the disk."""

import json
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gistgnn import GIST, Saving
from gistgnn.sampling import ClusterSampling
from gistgnn.storage.checkpoints import Checkpoints
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make, state
from tests.theta.stores import store


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for place in Checkpoints(folder).whole() for file in place.iterdir()}


def newest(folder: Path) -> Path:
    place = Checkpoints(folder).newest()
    assert place
    return place


def test_a_checkpoint_of_another_model_or_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(), callbacks=after(1), saving=Saving(path))
    before, saving = contents(path), Saving(path, resume=True)
    changes = {"lr": 0.06, "epochs": 50, "local_steps": 3, "optimizer_state": "carry", "patience": 9}
    for setting, value in {**changes, "sampler": ClusterSampling(6, 3)}.items():
        with refused(str(path), "another run", f"{setting} was"):
            fit(make(), saving=saving, **{setting: value})
    for setting, gist in (
        ("seed", make(seed=1)),
        ("partition", make(partition="categorical")),
        ("whole", make(whole=[0])),
        ("widths", GIST(lambda w: OURS["gcn"](w, norm="batch"), (8, 6), 3)),
    ):
        with refused("another run", f"{setting} was"):
            fit(gist, saving=saving)
    with refused("another run", "parameter"):
        fit(GIST(lambda w: OURS["gcn"](w), (8, 7), 3), saving=saving)
    with refused("another run", "sub_gcns was 3, now 2"):
        fit(make(2), saving=saving, epochs=33)
    with refused("another run", "graph was"):
        make().fit(tiny_graph(27), progress=False, epochs=33, local_steps=2, lr=0.05, evaluate_every=2, saving=saving)
    assert contents(path) == before


@pytest.mark.parametrize("share", [0.0, 0.02, 0.999])
@pytest.mark.parametrize("kind", ["state.json", "*.safetensors"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_gone_on_from(
    tmp_path: Path, share: float, kind: str
) -> None:
    path, unbroken, gist = tmp_path / "checkpoints", make(), make()
    fit(make(), callbacks=after(3), saving=Saving(path, every=2))
    [file] = newest(path).glob(kind)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with refused(str(newest(path)), f"delete {newest(path)} to resume from round-00000002"):
        fit(make(), saving=Saving(path, resume=True))
    shutil.rmtree(newest(path))
    assert state(gist, fit(gist, saving=Saving(path, resume=True))) == state(unbroken, fit(unbroken))


def test_foreign_contents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(), callbacks=after(1), saving=Saving(path))
    record, file = newest(path) / "state.json", next(newest(path).glob("*.safetensors"))
    good, tensors = record.read_text(), file.read_bytes()
    others = [{"version": 0}, {"files": None}, {"state": None}, {"state": {"other": 1}}, {"run": []}]
    texts = ["[]", "{}", "null", "\x00", *(json.dumps(json.loads(good) | other) for other in others)]
    for text in texts:
        record.write_text(text)
        with refused(str(newest(path))):
            fit(make(), saving=Saving(path, resume=True))
    record.write_text(good)
    for byte in (b"\x00", b"\xff", b"a"):
        file.write_bytes(byte * len(tensors))
        with refused(str(file), "is damaged"):
            fit(make(), saving=Saving(path, resume=True))


def test_a_torn_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    path, unbroken, gist = tmp_path / "checkpoints", make(), make()
    fit(make(), callbacks=after(3), saving=Saving(path, every=2))
    (newest(path) / "state.json").unlink()
    expected = state(unbroken, fit(unbroken))
    assert state(gist, fit(gist, callbacks=after(1), saving=Saving(path, resume=True)))["rest"][0] == 3
    gist = make()
    assert state(gist, fit(gist, saving=Saving(path, resume=True))) == expected


def test_what_is_not_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "round-1").mkdir()
    fit(make(), callbacks=after(2), saving=Saving(tmp_path, every=1))
    fit(make(seed=1), callbacks=after(1), saving=Saving(tmp_path))
    Checkpoints(tmp_path).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-1", "thesis.tex"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The writes themselves fail, as on a full disk: no file may grow beyond some bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [200, 2500], ids=["tensors", "state"])
def test_a_full_disk_is_said_and_the_one_before_is_kept(tmp_path: Path, size: int) -> None:
    path, unbroken, gist = tmp_path / "checkpoints", make(), make()
    fit(make(), callbacks=after(1), saving=Saving(path))
    kept = contents(path)
    with files_up_to(size), refused("cannot write", str(path)):
        fit(make(), saving=Saving(path, every=1, resume=True))
    assert {name: data for name, data in contents(path).items() if name in kept} == kept
    assert state(gist, fit(gist, saving=Saving(path, resume=True))) == state(unbroken, fit(unbroken))


def test_a_run_that_was_in_files_does_not_go_on_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(store=store("disk", tmp_path)), callbacks=after(1), saving=Saving(path))
    with refused("the run keeps them in its own files", "--store disk"):
        fit(make(), saving=Saving(path, resume=True))


def test_tensors_are_written_while_the_next_round_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is let through only when writing has begun, and writing ends only when a round has trained."""
    begun, trained = threading.Event(), threading.Event()
    real = Checkpoints.write

    def slow(*args: Any) -> None:
        begun.set()
        assert trained.wait(60)
        real(*args)

    monkeypatch.setattr(Checkpoints, "write", slow)
    gist, unbroken = make(), make()
    real_blocks = gist.partition.blocks

    def blocks(number: int) -> Any:  # drawn when a round begins
        if number == 2:  # the third begins after the second has saved
            assert begun.wait(60)
            trained.set()
        return real_blocks(number)

    monkeypatch.setattr(gist.partition, "blocks", blocks)
    assert state(gist, fit(gist, saving=Saving(tmp_path / "c", every=2))) == state(unbroken, fit(unbroken))
