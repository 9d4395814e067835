import json
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import OURS, USERS, C, F, tiny_graph
from refusals import refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gistgnn import GIST, Result, Saving, checkpoint
from gistgnn.axes import named_tensors
from gistgnn.checkpoint import Checkpoint, load_checkpoint

GRAPH = tiny_graph()
ROUNDS = 6


def make(m: int = 3, seed: int = 0, **options: Any) -> GIST:
    return GIST(lambda w: OURS["gcn"](w, dropout=0.4, norm="batch"), (8, 7), m, seed=seed, **options)


def fit(gist: GIST, **options: Any) -> Result:
    """Six rounds, the last of them shorter."""
    defaults = {"epochs": 11 * gist.sub_gcns, "local_steps": 2, "lr": 0.05, "evaluate_every": 2}
    return gist.fit(GRAPH, progress=False, **{**defaults, **options})


def after(rounds: int) -> Callable[[], bool]:
    """Stop when asked for the n-th time."""
    asked = iter(range(1, 1000))
    return lambda: next(asked) == rounds


def state(gist: GIST, result: Result) -> dict[str, Any]:
    """All that a run leaves behind, except how long it took."""
    p = result.progress
    history = [{k: v for k, v in entry.items() if k != "train_seconds"} for entry in p.history]
    return {
        "theta": {n: t.tolist() for n, t in gist.theta.tensors.items()},
        "moments": {n: {k: v.tolist() for k, v in m.items()} for n, m in gist.theta.moments.items()},
        "model": {n: t.tolist() for n, t in named_tensors(result.model).items()},
        "history": history,
        "rest": [p.rounds, p.steps, p.best_round, p.best_score, p.best, p.last, p.stopped_early, result.interrupted],
    }


RUNS: list[dict[str, Any]] = [
    {},
    {"optimizer_state": "carry"},
    {"optimizer_state": "carry", "optimizer": "sgd", "momentum": 0.9, "schedule": "cosine"},
]


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("options", RUNS, ids=["reset", "carry", "momentum"])
@pytest.mark.parametrize("stops", [[1], [3], [5], [2, 1, 2]])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    tmp_path: Path, m: int, options: dict[str, Any], stops: list[int]
) -> None:
    unbroken = make(m)
    expected = state(unbroken, fit(unbroken, **options))
    path, done = tmp_path / "state.safetensors", 0
    for rounds in stops:
        result = fit(make(m), stop=after(rounds), saving=Saving(path, resume=True), **options)
        done += rounds
        assert result.interrupted
        assert result.progress.rounds == done
    resumed = make(m)
    assert state(resumed, fit(resumed, saving=Saving(path, resume=True), **options)) == expected


def test_the_same_object_goes_on(tmp_path: Path) -> None:
    gist, unbroken, saving = make(), make(), Saving(tmp_path / "state.safetensors", resume=True)
    expected = state(unbroken, fit(unbroken))
    fit(gist, stop=after(4), saving=saving)
    assert state(gist, fit(gist, saving=saving)) == expected


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    unbroken = make()
    expected = state(unbroken, fit(unbroken))

    def killed() -> bool:
        raise KeyboardInterrupt

    path = tmp_path / "state.safetensors"
    asked = iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        fit(make(), stop=lambda: next(asked) == 4 and killed(), saving=Saving(path, every=2))
    assert json.loads(load_file_metadata(path)["state"])["rounds"] == 4
    resumed = make()
    assert state(resumed, fit(resumed, saving=Saving(path, resume=True))) == expected


def load_file_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_resuming_a_finished_run_returns_it(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    first, second = make(), make()
    expected = state(first, fit(first, saving=Saving(path, every=ROUNDS)))
    assert state(second, fit(second, saving=Saving(path, resume=True))) == expected


@pytest.mark.parametrize("every", [1, 2])
def test_resuming_a_run_that_stopped_early_returns_it(tmp_path: Path, every: int) -> None:
    """It was killed after its last checkpoint and before its result was written."""
    path = tmp_path / "state.safetensors"
    options = {"epochs": 600, "patience": 2, "evaluate_every": 2}
    first, second = make(), make()
    expected = state(first, fit(first, saving=Saving(path, every=every), **options))
    assert expected["rest"][-2] is True
    assert state(second, fit(second, saving=Saving(path, resume=True), **options)) == expected


def test_without_resume_the_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_text("anything")
    gist, unbroken = make(), make()
    assert state(gist, fit(gist, saving=Saving(path, every=2))) == state(unbroken, fit(unbroken))
    assert path.read_bytes() != b"anything"


def test_a_stop_at_the_very_end_is_no_interruption(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    result = fit(make(), stop=after(ROUNDS), saving=Saving(path))
    assert not result.interrupted
    assert not path.exists()


def test_a_run_that_shares_scalars_and_odd_names_goes_on(tmp_path: Path) -> None:
    class Named(nn.Module):
        """PyG's to_hetero and users' ModuleDicts make such names."""

        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"in/out": nn.Linear(F, widths[0]), "theta": nn.Linear(widths[0], C)})
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.parts["theta"](self.parts["in/out"](x).relu()) * self.scale

    path, options = tmp_path / "state.safetensors", {"optimizer_state": "carry"}
    unbroken, broken, resumed = (GIST(Named, (8,), 2) for _ in range(3))
    expected = state(unbroken, fit(unbroken, **options))
    fit(broken, stop=after(2), saving=Saving(path), **options)
    assert state(resumed, fit(resumed, saving=Saving(path, resume=True), **options)) == expected


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


def test_the_best_model_survives_the_interruption(tmp_path: Path) -> None:
    """The best score came before the interruption and is not reached again."""
    path = tmp_path / "state.safetensors"
    options = {"epochs": 60, "lr": 0.3, "evaluate_every": 1, "local_steps": 1}
    unbroken = make(2)
    expected = fit(unbroken, **options)
    best = expected.progress.best_round
    assert best < expected.progress.rounds
    fit(make(2), stop=after(best), saving=Saving(path), **options)
    assert {name for name in load_file(path) if name.startswith("best/")}
    resumed = make(2)
    result = fit(resumed, saving=Saving(path, resume=True), **options)
    assert result.progress.best_round == best
    assert state(resumed, result) == state(unbroken, expected)


def test_a_residual_net_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    unbroken, broken, resumed = (GIST(*USERS["residual"], 2) for _ in range(3))
    expected = state(unbroken, fit(unbroken, optimizer_state="carry"))
    fit(broken, optimizer_state="carry", stop=after(3), saving=Saving(path))
    assert state(resumed, fit(resumed, optimizer_state="carry", saving=Saving(path, resume=True))) == expected
