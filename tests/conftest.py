from collections import Counter
from pathlib import Path

import hypothesis
import pytest
import torch

# A first call may be slow, and so may a busy machine.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

NO_GPU = (
    "The tests marked cuda were not run: torch finds no GPU here. `make bench-gpu` runs them "
    "where there is one."
)

# Kill loops, examples and a browser are for `make test-all`.
# So are tests of real graphs and those marked `long`.
LONG = (
    "distributed/test_restarts.py",
    "examples/",
    "graph_folders/test_killed.py",
    "report/test_in_browser.py",
    "theta/test_killed.py",
)

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, and leave out those that need a GPU where there is none.

    A line at the end says so.
    """
    mark_long(items)
    if torch.cuda.is_available():
        return
    without = [item for item in items if item.get_closest_marker("cuda")]
    config.hook.pytest_deselected(items=without)
    items[:] = [item for item in items if not item.get_closest_marker("cuda")]


def mark_long(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves to `make long`.

    These are the files of `LONG`, tests of real graphs, and of a test marked `one_in(n)` all cases
    but the first of every n.
    """
    cases = Counter[str]()
    for item in items:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        is_long = path.startswith(LONG) or "shared_data" in getattr(item, "fixturenames", ())
        if one_in := item.get_closest_marker("one_in"):
            test = item.nodeid.partition("[")[0]
            is_long |= cases[test] % one_in.args[0] != 0
            cases[test] += 1
        if is_long:
            item.add_marker(pytest.mark.long)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not torch.cuda.is_available():
        terminalreporter.write_line(NO_GPU)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs beside the repository, read-only."""
    if not (_SHARED / "Planetoid" / "Cora" / "raw").is_dir():
        pytest.skip(f"the real graphs are not in {_SHARED}")
    return _SHARED


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Have torch compute in one thread.

    The products of tests are tiny. On a busy machine, threads that wait for each other cost
    seconds.
    """
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty cache, and the same random numbers.

    No test reads or writes the user's cache, or hangs on the tests before it.
    """
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("user") / "cache"
    monkeypatch.setenv("GISTGNN_CACHE", str(folder))
    return folder
