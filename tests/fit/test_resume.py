from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from gistgnn import Saving
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.storage.checkpoints import Checkpoints
from tests.helpers.resuming import ROUNDS, after, fit, make, state

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
    path, done = tmp_path / "checkpoints", 0
    for rounds in stops:
        result = fit(make(m), callbacks=after(rounds), saving=Saving(path, resume=True), **options)
        done += rounds
        assert result.interrupted
        assert result.progress.rounds == done
    resumed = make(m)
    assert state(resumed, fit(resumed, saving=Saving(path, resume=True), **options)) == expected


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    unbroken = make()
    expected = state(unbroken, fit(unbroken))

    def killed() -> bool:
        raise KeyboardInterrupt

    path = tmp_path / "checkpoints"
    asked = iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        fit(make(), callbacks=[InterruptWhen(lambda: next(asked) == 4 and killed())], saving=Saving(path, every=2))
    assert [place.name for place in Checkpoints(path).whole()] == ["round-00000002", "round-00000004"]
    resumed = make()
    assert state(resumed, fit(resumed, saving=Saving(path, resume=True))) == expected


def test_resuming_a_finished_run_returns_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    first, second = make(), make()
    expected = state(first, fit(first, saving=Saving(path, every=ROUNDS)))
    assert state(second, fit(second, saving=Saving(path, resume=True))) == expected


@pytest.mark.parametrize("every", [1, 2])
def test_resuming_a_run_that_stopped_early_returns_it(tmp_path: Path, every: int) -> None:
    """It was killed after its last checkpoint and before its result was written."""
    path = tmp_path / "checkpoints"
    options = {"epochs": 600, "patience": 2, "evaluate_every": 2}
    first, second = make(), make()
    expected = state(first, fit(first, saving=Saving(path, every=every), **options))
    assert expected["rest"][-2] is True
    assert state(second, fit(second, saving=Saving(path, resume=True), **options)) == expected


def test_without_resume_a_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(seed=5), callbacks=after(5), saving=Saving(path, every=1))
    gist, unbroken = make(), make()
    assert state(gist, fit(gist, callbacks=after(3), saving=Saving(path, every=2)))["rest"][0] == 3
    assert [place.name for place in Checkpoints(path).whole()] == ["round-00000002", "round-00000003"]
    gist = make()
    assert state(gist, fit(gist, saving=Saving(path, resume=True))) == state(unbroken, fit(unbroken))


def test_a_stop_at_the_very_end_is_no_interruption(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    result = fit(make(), callbacks=after(ROUNDS), saving=Saving(path))
    assert not result.interrupted
    assert [place.name for place in Checkpoints(path).whole()] == [f"round-{ROUNDS:08d}"]


def test_the_best_model_survives_the_interruption(tmp_path: Path) -> None:
    """The best score came before the interruption and is not reached again."""
    path = tmp_path / "checkpoints"
    options = {"epochs": 60, "lr": 0.3, "evaluate_every": 1, "local_steps": 1}
    unbroken = make(2)
    expected = fit(unbroken, **options)
    best = expected.progress.best_round
    assert best < expected.progress.rounds
    fit(make(2), callbacks=after(best), saving=Saving(path), **options)
    place = Checkpoints(path).newest()
    assert place
    with safe_open(next(place.glob("*.safetensors")), "pt") as file:
        assert any(name.startswith("best/") for name in file.keys())  # noqa: SIM118
    resumed = make(2)
    result = fit(resumed, saving=Saving(path, resume=True), **options)
    assert result.progress.best_round == best
    assert state(resumed, result) == state(unbroken, expected)
