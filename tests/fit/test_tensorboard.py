"""TensorBoard's events are the history."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gistgnn import GIST, InputError, Saving
from gistgnn.fit.tensorboard import Events
from tests.helpers.fitting import fit, gcn
from tests.helpers.resuming import after, make


def written(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_they_are_the_history(tmp_path: Path) -> None:
    events = Events(tmp_path / "tensorboard")
    result = fit(GIST(gcn(), (8, 7), 2), callbacks=[events])
    events.close()
    found = written(tmp_path / "tensorboard")
    assert found["loss"] == [(e["step"], pytest.approx(e["loss"])) for e in result.history]
    assert found["score/test"] == [(e["step"], pytest.approx(e["test"])) for e in result.history]
    assert len(found) == 5


def test_a_run_that_goes_on_writes_all_of_them_once(tmp_path: Path) -> None:
    from tests.helpers.resuming import fit as fit_resumed

    saving = Saving(tmp_path / "c", resume=True)
    first = Events(tmp_path / "tensorboard")
    fit_resumed(make(), saving=saving, callbacks=[*after(2), first])
    first.close()
    second = Events(tmp_path / "tensorboard")
    result = fit_resumed(make(), saving=saving, callbacks=[second])
    second.close()
    assert [step for step, _ in written(tmp_path / "tensorboard")["loss"]] == [e["step"] for e in result.history]


def test_without_the_package_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="pip install tensorboard"):
        Events(tmp_path)
