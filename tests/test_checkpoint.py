import multiprocessing
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from models import OURS, tiny_graph
from refusals import refused
from resuming import after, fit, make
from safetensors.torch import save_file

from gistgnn import GIST, Saving, checkpoint
from gistgnn.checkpoint import Checkpoint, load_checkpoint


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("lr", {"lr": 0.06}),
        ("epochs", {"epochs": 50}),
        ("local_steps", {"local_steps": 3}),
        ("optimizer_state", {"optimizer_state": "carry"}),
        ("evaluate_every", {"evaluate_every": 1}),
        ("patience", {"patience": 9}),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, setting: str, change: dict[str, Any]) -> None:
    path = tmp_path / "state.safetensors"
    fit(make(), stop=after(1), saving=Saving(path))
    before = path.read_bytes()
    with refused(str(path), "another run", f"{setting} was"):
        fit(make(), saving=Saving(path, resume=True), **change)
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_model_or_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    fit(make(), stop=after(1), saving=Saving(path))
    saving = Saving(path, resume=True)
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


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 0.95, 0.999])
def test_a_file_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "state.safetensors"
    fit(make(), stop=after(2), saving=Saving(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with refused(str(path), "cannot be read", "delete it"):
        fit(make(), saving=Saving(path, resume=True))


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    for content in (b"PK\x03\x04 a zip", b"\x00" * 64, b"\xff" * 4096, b"text\n" * 100):
        path.write_bytes(content)
        with refused(str(path), "cannot be read"):
            fit(make(), saving=Saving(path, resume=True))
    torch.save({"theta": torch.zeros(3)}, path)
    with refused(str(path), "cannot be read"):
        fit(make(), saving=Saving(path, resume=True))
    save_file({"weight": torch.zeros(3)}, path)  # the model.safetensors of some run
    with refused(str(path), "cannot be read"):
        fit(make(), saving=Saving(path, resume=True))
    save_file({"weight": torch.zeros(3)}, path, {"state": "{", "run": "{}"})
    with refused(str(path), "cannot be read"):
        fit(make(), saving=Saving(path, resume=True))
    path.unlink()
    path.mkdir()
    with refused(str(path), "cannot be read"):
        fit(make(), saving=Saving(path, resume=True))


def test_contents_survive(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    tensors = {
        "a/b": torch.randn(3, 4).t(),  # not contiguous
        "scalar": torch.tensor(2.5),
        "count": torch.tensor(7),
        "flag": torch.tensor([True, False]),
        "half": torch.randn(2).bfloat16(),
    }
    found_state = {"history": [{"loss": 0.1 + 0.2, "round": 1}], "best_round": -1}
    Checkpoint(tensors, found_state, {"widths": (8, 7)}).save(path)
    found = load_checkpoint(path, {"widths": (8, 7)})
    assert found.state == found_state
    assert found.tensors.keys() == tensors.keys()
    assert all(torch.equal(found.tensors[n], t) and found.tensors[n].dtype == t.dtype for n, t in tensors.items())


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.safetensors"
    fit(make(), stop=after(2), saving=Saving(path))
    before = path.read_bytes()

    def crash(tensors: object, target: Path, metadata: object) -> None:
        target.write_bytes(b"half")
        raise MemoryError

    monkeypatch.setattr(checkpoint, "save_file", crash)
    with pytest.raises(MemoryError):
        fit(make(), stop=after(1), saving=Saving(path, resume=True))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _killed_while_writing(path: Path) -> None:
    def die(tensors: object, target: Path, metadata: object) -> None:
        target.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save_file = die  # type: ignore[assignment]
    Checkpoint({"a": torch.zeros(2)}, {}, {}).save(path)


def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    Checkpoint({"a": torch.ones(2)}, {}, {}).save(path)
    process = multiprocessing.get_context("spawn").Process(target=_killed_while_writing, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert load_checkpoint(path, {}).tensors["a"].tolist() == [1, 1]


def test_a_full_disk_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    """The writes themselves fail, as on a full disk: no file may grow beyond 4 KiB."""
    path = tmp_path / "state.safetensors"
    Checkpoint({"a": torch.ones(2)}, {}, {}).save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with refused("cannot write", str(path)):
            Checkpoint({"a": torch.ones(100_000)}, {}, {}).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    versions = [Checkpoint({"a": torch.full((20_000,), float(k))}, {"k": k}, {}) for k in range(2)]
    versions[0].save(path)
    done = threading.Event()

    def write() -> None:
        for k in range(30):
            versions[k % 2].save(path)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set() or not seen:
        found = load_checkpoint(path, {})
        assert set(found.tensors["a"].tolist()) == {float(found.state["k"])}
        seen += 1
        time.sleep(0)
    writer.join()
