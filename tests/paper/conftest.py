from multiprocessing import forkserver

import pytest

from tests.helpers.commands import ready


@pytest.fixture(scope="session", autouse=True)
def forked_from_one() -> None:
    """Experiments fork their runs from the process that other tests fork theirs from, whichever comes first."""
    ready()
    forkserver.ensure_running()
