"""The row of a baseline in the report of a run, from a folder beside it."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gistgnn.report.baseline import find_baseline
from gistgnn.report.pages import run_page
from gistgnn.storage.json_files import write_json
from gistgnn.storage.record import RESULT, read_result, record_of
from gistgnn.utils.formats import NBSP, duration, size
from tests.report.records import run_content, run_record
from tests.report.test_pages import plain

_FOUR = run_record(5)  # m = 4


def one_device(accuracy: float, **changes: Any) -> dict[str, Any]:
    """The result.json of a run on one device, with this accuracy of the validation nodes."""
    content = deepcopy(run_content(5))
    content["config"]["sub_gcns"] = 1
    content["validation"]["accuracy"] = accuracy
    return {**content, **changes}


def write(folder: Path, content: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    write_json(folder / RESULT, record_of(content))


def test_the_row_is_the_best_baselines_result(tmp_path: Path) -> None:
    write(tmp_path / "weak", one_device(0.5))
    write(tmp_path / "strong", one_device(0.9, train_seconds=77.0, test={"accuracy": 0.8125}))
    words = plain(run_page(_FOUR, tmp_path / "mine"))
    assert "weak" not in words
    record = read_result(tmp_path / "strong" / RESULT, "")
    numbers = [
        f"{100 * (record.test['accuracy'] or 0):.2f} %",
        f"{100 * (record.validation['accuracy'] or 0):.2f} %",
        "-",  # the test set's macro F1, which this file lacks
        f"{100 * (record.validation['f1_macro'] or 0):.2f} %",
        duration(record.train_seconds),
        size(record.peak_memory_bytes),
    ]
    assert f"baseline: one device, strong {' '.join(numbers)}".replace(NBSP, " ") in words


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {**run_content(5)["config"], "sub_gcns": 4}},
        {"interrupted": True},
        {"diverged": "the loss is nan in round 3"},
        {"graph": {**run_content(5)["graph"], "nodes": 3}},
        {"fingerprint": {"graph": {"the graph's edges": "other"}}},
        {"metric": {"name": "f1_macro", "higher_is_better": True, "percent": True}},
        {"validation": {}, "test": {}, "best_round": -1},
    ],
)
def test_a_run_that_does_not_compare_is_no_baseline(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path / "other", one_device(0.9, **changes))
    assert find_baseline(tmp_path / "mine", _FOUR) is None


def test_another_model_is_no_baseline(tmp_path: Path) -> None:
    content = one_device(0.9)
    content["config"]["model"]["hidden"] = [128, 128]
    write(tmp_path / "other", content)
    assert find_baseline(tmp_path / "mine", _FOUR) is None


def test_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "damaged", one_device(0.95))
    with (tmp_path / "damaged" / RESULT).open("a") as file:
        file.write("}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / RESULT).touch()
    write(tmp_path / "good", one_device(0.9))
    baseline = find_baseline(tmp_path / "mine", _FOUR)
    assert baseline is not None
    name = baseline[0]
    assert name == "good"


def test_one_device_has_no_baseline(tmp_path: Path) -> None:
    write(tmp_path / "other", one_device(0.9))
    assert find_baseline(tmp_path / "mine", record_of(one_device(0.8))) is None
    page = run_page(record_of(one_device(0.8)), tmp_path / "mine")
    assert "baseline" not in plain(page)


def test_a_run_is_not_its_baseline(tmp_path: Path) -> None:
    write(tmp_path / "mine", one_device(0.9))  # which the new run replaces
    assert find_baseline(tmp_path / "mine", _FOUR) is None
