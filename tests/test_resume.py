import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import USERS, C, F
from resuming import ROUNDS, after, fit, make, state
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from gistgnn import GIST, Saving

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
