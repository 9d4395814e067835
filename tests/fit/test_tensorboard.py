"""TensorBoard's events are the history."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gistgnn import InputError, Saving
from gistgnn.fit.tensorboard import Events
from tests.helpers.resuming import after, fit, make


def written(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_they_are_the_history_once_also_of_a_run_that_goes_on(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "c", resume=True)
    for stops in (after(2), []):
        events = Events(tmp_path / "tensorboard")
        result = fit(make(), saving=saving, callbacks=[*stops, events])
        events.close()
    found = written(tmp_path / "tensorboard")
    for tag, name in (("loss", "loss"), ("score/test", "test")):
        assert found[tag] == [(entry["step"], pytest.approx(entry[name])) for entry in result.history]
    assert len(found) == 5


def test_without_the_package_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="pip install tensorboard"):
        Events(tmp_path)
