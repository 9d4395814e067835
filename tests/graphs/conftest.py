from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GISTGNN_CACHE", str(folder))
    return folder
