"""A new place for Θ is one class and one line in the registry; nothing else has to know it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from gistgnn import GIST, Saving
from gistgnn.distributed import World
from gistgnn.theta import Store
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import STORES, Place
from tests.helpers.models import OURS
from tests.helpers.resuming import after, fit, make, state
from tests.theta.stores import equal, shaken, values


class InSharedMemory(InMemory):
    """Θ in memory that other processes could map."""

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> InSharedMemory:
        tensors = {}
        for name, tensor in spec.initial_tensors().items():
            with tempfile.NamedTemporaryFile() as file:
                shared = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
            tensors[name] = shared.view(tensor.shape).copy_(tensor)
        return cls(spec.layout, spec.widths, tensors, streams=store.place.streams)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> str:
    entry = Place(f"{__name__}:InSharedMemory", "in shared memory", holds="host", streams=True)
    monkeypatch.setitem(STORES, "shared", entry)
    return "shared"


def test_rounds_give_the_same_theta(place: str) -> None:
    gists = [GIST(OURS["gcn"], (8, 7), 3, seed=1, store=store) for store in ("memory", place)]
    for gist in gists:
        shaken(gist, 3, torch.optim.Adam)
    assert isinstance(gists[1].theta, InSharedMemory)
    assert equal(*(values(gist.theta) for gist in gists))


def test_fit_scores_saves_and_resumes_there(place: str, tmp_path: Path) -> None:
    plain = make()
    expected = state(plain, fit(plain))
    first = fit(make(store=place), callbacks=after(2), saving=Saving(tmp_path / "checkpoints"))
    assert first.interrupted
    gist = make(store=place)
    result = fit(gist, saving=Saving(tmp_path / "checkpoints", resume=True))
    assert state(gist, result) == expected
    assert result.memory["theta"] == sum(tensor.nbytes for tensor in gist.theta.tensors.values())


def test_the_command_line_lists_it(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    from gistgnn.cli.main import main

    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    assert place in capsys.readouterr().out.split("--store {")[1].split("}")[0].split(",")
