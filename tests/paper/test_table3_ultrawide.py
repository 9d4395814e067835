"""Table 3: which runs fit by the plan, how they are scored, and where the parameters lie."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gistgnn.cli.options import memory_size
from gistgnn.compare.many_runs import RunStore
from gistgnn.graphs import find
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.paper.experiment import Outcome
from gistgnn.paper.table3_ultrawide import DEVICE_MEMORY, PAPER, WIDTHS, UltraWide, parts_of
from gistgnn.runs.config import RunConfig
from tests.cli.in_process import refused, run
from tests.paper.published_rows import table3

TINY = ("--datasets", "digits", "--widths", 16, "--epochs", 2, "--local-steps", 1, "--clusters", 40)


class Invented(RunStore):
    """Returns what runs could have shown, and notes those that are left out."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "data")
        self.reasons: dict[tuple[int, int], str] = {}

    def run_all(self, configs: Any, jobs: int | None, label: str) -> list[dict[str, Any]]:
        test = {"accuracy": 0.8, "f1_parts": 0.75}
        history = [{"train_seconds": 1.0, "test": 0.8}]
        return [
            {"config": config.as_dict(), "graph": {}, "test": test, "history": history, "train_seconds": 1.0}
            | {"rounds": 1, "steps": 1, "traffic": {"workers": 1}, "inference_seconds": 1.0, "peak_memory_bytes": 1}
            for config in configs
        ]

    def left_out(self, config: RunConfig, why: str) -> None:
        self.reasons[config.sub_gcns, config.model.hidden[0]] = why


def outcome(tmp_path: Path, **settings: Any) -> tuple[Outcome, Invented]:
    """Table 3 with runs that are invented but planned."""
    store = Invented(tmp_path)
    settings = {"datasets": ("synthetic:amazon2m@0.02",), "clusters": 300, "layers": (2,)} | settings
    return UltraWide.at("full", **settings).run(store), store


def test_the_plan_differs_from_the_paper_where_the_issue_says_so(tmp_path: Path) -> None:
    known = find("amazon2m")
    assert known
    experiment, sizes = UltraWide.at("full"), GraphSizes.of_dataset(known)
    fits = {
        (m, d): experiment._plan(experiment.config("amazon2m", 2, d, m), sizes, RunStore(tmp_path, "data")).fits
        for m, d in ((1, 8192), (8, 16384), (8, 32768))
    }
    assert fits == {(1, 8192): True, (8, 16384): True, (8, 32768): False}
    in_paper = {(m, d): PAPER[2, m][WIDTHS.index(d)] is not None for m, d in fits}
    assert in_paper == {(1, 8192): False, (8, 16384): True, (8, 32768): True}


def test_a_cell_in_which_plan_and_paper_differ_is_marked() -> None:
    experiment = replace(UltraWide.at("full"), widths=(4096, 8192), sub_gcns=(1, 2))
    paper = experiment._in_paper("amazon2m", 2)
    assert paper == {(1, 4096): True, (1, 8192): False, (2, 4096): True, (2, 8192): True}
    rows = table3(2)
    first, *_ = experiment.verdicts("amazon2m", 2, rows, [*rows, (1, 8192)])
    assert first.holds is False
    assert first.measured == "d = 8192, m = 1 fits"
    assert experiment.verdicts("amazon2m", 2, {}, {(2, 8192)})[0].measured == (
        "d = 4096, m = 1 does not fit; d = 4096, m = 2 does not fit"
    )
    assert experiment._in_paper("amazon2m", 9) == experiment._in_paper("digits", 2) == {}
    assert replace(experiment, device_memory=2**30)._in_paper("amazon2m", 2) == {}


def test_out_of_memory_is_what_the_plan_says_of_the_device(tmp_path: Path) -> None:
    small, store = outcome(tmp_path, widths=(400, 8192), sub_gcns=(1, 8), device_memory=memory_size("2GB"))
    cells = [dict(zip(small.columns[2:8], line[2:8], strict=True)) for line in small.rows]
    assert [cell["F1"] for cell in cells] == ["75.00", "OOM", "75.00", "OOM"]
    assert [cell["pooled F1"] for cell in cells] == ["80.00", "–", "80.00", "–"]
    assert all("GiB" in cell["memory by plan"] or "MiB" in cell["memory by plan"] for cell in cells)
    assert set(store.reasons) == {(1, 8192), (8, 8192)}
    assert all("OOM in 2 GiB" in why for why in store.reasons.values())
    assert "takes more than 2 GiB of the device" in small.note


def test_what_fits_the_papers_device_but_not_this_machine_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gistgnn.estimate.memory.available_bytes", lambda _: 2**30)
    found, store = outcome(tmp_path, widths=(400, 8192), sub_gcns=(8,))
    assert [line[4] for line in found.rows] == ["75.00", "not run"]
    assert "; here " in found.rows[1][7]
    assert "of memory" in store.reasons[8, 8192]
    held = {verdict.claim.split(": ")[1]: verdict.holds for verdict in found.verdicts}
    assert held["what the paper says of F1 and time"] is None


def test_parts_are_as_large_as_the_papers() -> None:
    assert parts_of("amazon2m") == parts_of("synthetic:amazon2m") == 5000
    assert parts_of("synthetic:amazon2m@0.02") == 100
    assert parts_of("digits") == parts_of("own.npz") == 4
    for width in (400, 32768):
        assert UltraWide.at("full").config("amazon2m", 2, width, 8).evaluation.parts == 5000


def test_every_store_trains_the_same_and_leaves_no_files(tmp_path: Path) -> None:
    tables = {}
    for store in ("memory", "host", "disk", "mapped"):
        out = tmp_path / store
        words = ("--sub-gcns", 1, 4, "--store", store, "--out", out)
        assert run("reproduce", "ultrawide", *TINY, *words) == 0
        assert [path.suffix for path in (out / "runs").iterdir()] == [".json"] * 2
        record = json.loads((out / "experiment.json").read_text())
        tables[store] = [line[4:6] for line in record["rows"]]
        runs = [json.loads(path.read_text()) for path in (out / "runs").iterdir()]
        assert {one["config"]["store"] for one in runs} == {"disk" if store == "mapped" else store}
        assert {one["evaluation"]["method"] for one in runs} == {"parts"}
    assert tables["memory"] == tables["host"] == tables["disk"] == tables["mapped"]


@pytest.mark.parametrize(("text", "size"), [("32GB", 2**35), ("1.75GiB", 7 * 2**28), ("512MB", 2**29)])
def test_sizes_of_memory(text: str, size: int) -> None:
    assert memory_size(text) == size
    assert memory_size("32GB") == DEVICE_MEMORY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device-memory", "32"), "'32' is not a size such as 32GB or 512MB"),
        (("--device-memory", "0GB"), "'0GB' is not a size such as 32GB"),
        (("--device-memory", "-1GB"), "expected one argument"),
        (("--device-memory", "manyGB"), "'manyGB' is not a size"),
        (("--store", "cloud"), "invalid choice: 'cloud'"),
        (("--store", "sharded"), "invalid choice: 'sharded'"),
    ],
)
def test_bad_options(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, message, "reproduce", "ultrawide", *options, "--out", tmp_path / "out", leaves=tmp_path)


def test_the_rows_of_runs_are_scored_by_parts(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, widths=(400,), sub_gcns=(2,), device_memory=DEVICE_MEMORY)
    assert found.charts[0].series[0].y == [75.0]
