from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.helpers.commands import ready


@pytest.fixture(scope="session", autouse=True)
def forked_from_one() -> None:
    """Experiments fork their runs from the process that other tests fork theirs from.

    Either may come first.
    """
    ready()
    forkserver.ensure_running()


@pytest.fixture
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made as on a machine that has room for every run."""
    monkeypatch.setattr("gistgnn.estimate.resources.available_bytes", lambda _: 2**45)
    monkeypatch.setattr("gistgnn.estimate.resources.free_disk", lambda _: 2**45)


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an experiment that has run once at a tiny size, by its name."""
    from tests.paper.test_reproduce import reproduce

    @cache
    def folder(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "out"
        assert reproduce(name, out) == 0
        return out

    return folder
