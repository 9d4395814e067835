"""How fast a disk is."""

import os
from pathlib import Path

import pytest

from gistgnn.planning.disk_rate import reading_rate
from gistgnn.planning.ledger import Work
from gistgnn.planning.rates import Rates
from tests.helpers.refusals import refused


@pytest.mark.parametrize("size", [0, 100, 2**22, 2**24 + 5])
@pytest.mark.parametrize("direct", [True, False])
def test_files_of_any_size_are_measured(
    tmp_path: Path, size: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not direct:
        monkeypatch.delattr(os, "O_DIRECT", raising=False)
    path = tmp_path / "x.npy"
    path.write_bytes(bytes(size))
    rate = reading_rate(path)
    assert (rate > 0) == (size > 0)
    assert rate < 2**40


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with refused(f"{tmp_path / 'x.npy'} cannot be read"):
        reading_rate(tmp_path / "x.npy")


def test_reading_overlaps_with_steps_and_not_with_evaluation() -> None:
    rates = Rates({}, {}, 1e9, 1e9, 1e4, (0.0, 0.0), disk=1e8)
    assert rates.seconds(Work(bytes=10**9, ahead=10**8)) == pytest.approx(1)
    assert rates.seconds(Work(bytes=10**9, ahead=5 * 10**8)) == pytest.approx(5)
    assert rates.seconds(Work(bytes=10**9, read=10**8)) == pytest.approx(2)
