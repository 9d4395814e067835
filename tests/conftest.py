from pathlib import Path

import pytest
import torch

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs beside the repository, read-only."""
    if not (_SHARED / "Planetoid" / "Cora" / "raw").is_dir():
        pytest.skip(f"the real graphs are not in {_SHARED}")
    return _SHARED


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The products of tests are tiny: on a busy machine, threads that wait for each other cost seconds."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_task_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, commands would name slow tasks between the lines that tests read."""
    monkeypatch.setattr("gistgnn.utils.console.SLOW", 1e6)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache."""
    folder = tmp_path_factory.mktemp("user") / "cache"
    monkeypatch.setenv("GISTGNN_CACHE", str(folder))
    return folder
