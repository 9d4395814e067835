"""The benchmarks run at tiny sizes and compute what they say, at whatever speed."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import command, steps
from benchmarks.defaults import DATASETS, RUNS
from benchmarks.frontier import Frontier, parse, settings
from benchmarks.small_graph_settings import Setting, measure
from gistgnn.cli.main import make_parser
from gistgnn.graphs import load
from gistgnn.nn import MODELS
from gistgnn.paper.published import TABLE1_ROWS
from gistgnn.sampling import whole_graph
from tests.nn.test_models import BY_PYG

Run = Callable[..., str]
AROUND = ("--dataset", "digits", "--hidden", "16", "16", "--clusters", "20")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What `python -m benchmarks.NAME` prints, in this process."""

    def run_module(module: str, *options: object) -> str:
        monkeypatch.setattr(sys, "argv", [module, *map(str, options)])
        runpy.run_module(f"benchmarks.{module}", run_name="__main__", alter_sys=True)
        return capsys.readouterr().out

    return run_module


def test_a_step_of_every_contender_is_measured(run: Run, tmp_path: Path) -> None:
    few = ("--dataset", "digits", "--local-steps", 2, "--rounds", 1, "--repeat", 2, "--threads", 1)
    printed = run("steps", "--widths", 16, "--sub-gcns", 2, *few, "--json", tmp_path / "out.json")
    contenders = json.loads((tmp_path / "out.json").read_text())["widths"]["16"]
    assert list(contenders) == [
        "PyG, edge_index",
        "PyG, CSR",
        "m=1",
        "in-turn m=2",
        "auto m=2",
        "fused m=2",
    ]
    assert all(times["step_ms"]["median"] > 0 for times in contenders.values())
    rows = [line.split("|") for line in printed.splitlines()]
    lines = {row[1].strip(): row for row in rows if len(row) > 4}
    ratio = contenders["m=1"]["step_ms"]["median"] / contenders["fused m=2"]["step_ms"]["median"]
    assert lines["fused m=2"][4].strip() == f"{ratio:.2f}x"


@pytest.mark.parametrize("model", ["graphsage", "gcn", "gat"])
def test_pyg_s_contender_computes_our_function(model: str) -> None:
    graph = load("digits")
    heads = {"heads": steps.HEADS} if model == "gat" else {}
    width_of_a_head = 16 // heads.get("heads", 1)
    widths = (width_of_a_head, width_of_a_head)
    ours: Any = MODELS[model](
        graph.num_features, widths, graph.num_classes, norm="layer", **heads
    ).eval()
    its = steps.PyGNet(model, graph.num_features, 16, graph.num_classes).eval()
    with torch.no_grad():
        for mine, other in zip(ours.convs, its.convs, strict=True):
            for name, value in BY_PYG[model](mine)[1].items():
                other.get_parameter(name).copy_(value)
        batch = whole_graph(graph)
        expected = ours(batch.x, batch.adj)
        for layout in ("edge_index", "CSR"):
            torch.testing.assert_close(
                its(batch.x, steps.in_layout(batch, layout)), expected, rtol=1e-4, atol=1e-4
            )


def test_loaders_are_scored_beside_our_samplers(run: Run) -> None:
    few = ("--epochs", 1, "--width", 8, "--seeds", 2, "--sub-gcns", 2, "--clusters", 6)
    printed = run("loaders", *few, "--clusters-per-batch", 2)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[2:]]
    scored = {row[0]: row[2:] for row in rows if row[1]}
    assert {"clusters: ClusterLoader", "clusters: a list of Data"} <= scored.keys()
    assert all(0 <= float(cell.split()[0]) <= 100 for cells in scored.values() for cell in cells)


def test_a_setting_of_the_public_sweep_is_measured() -> None:
    setting = Setting(
        "cora", TABLE1_ROWS.index((8, (0, 1))), "split", "whole", True, "100", 5e-4, epochs=8
    )
    result = measure(setting, 0.01, 0, load("digits"))
    # There is one round: most of the first layer lies between blocks.
    assert result["untrained"] > 10
    assert 0 <= result["test"] <= result["best"] <= 100


@pytest.mark.long
def test_the_gpu_s_page_has_all_parts(run: Run, tmp_path: Path) -> None:
    printed = run("gpu", "--small", "--device", "cpu", "--out", tmp_path / "GPU.md")
    assert printed.strip() == (tmp_path / "GPU.md").read_text().strip()
    assert "- 1 passed" in printed
    for model in ("graphsage", "gcn", "gat"):
        assert f"| {model} 16, float32 |" in printed
    assert printed.count("| `digits`, 16 |") == 2
    assert printed.count("| digits | 16 |") == 4  # one device, parts, GIST and a budget
    assert "failed" not in printed
    assert json.loads((tmp_path / "GPU.json").read_text()).keys() == {
        "machine",
        "steps",
        "epochs",
        "scores",
        "tests",
    }


def test_the_frontier_interpolates_in_the_logarithm_of_time() -> None:
    line = Frontier([(1.0, 80.0), (2.0, 70.0), (100.0, 90.0)])
    assert line.points == [(1.0, 80.0), (100.0, 90.0)]
    assert line.at(10.0) == pytest.approx(85.0)
    assert line.reaches(85.0) == pytest.approx(10.0)
    assert (line.at(1e6), line.at(0.9), line.reaches(90.1)) == (90.0, None, None)


def test_every_setting_is_a_command() -> None:
    words = [
        "--ordinary",
        "1",
        "2",
        "--lr",
        "0.01",
        "--narrow",
        "2",
        "--paper",
        "8",
        "--budget",
        "2",
    ]
    every_setting = settings(parse([*words, "--parts", "4", "--", *AROUND]))
    kinds = ["ordinary", "narrow", "ordinary", "narrow", "paper", "parts", "budget"]
    assert [setting.kind for setting in every_setting] == kinds
    narrow = make_parser().parse_args(["train", *AROUND, *every_setting[1].words])
    assert (narrow.hidden, narrow.epochs, narrow.sub_gcns) == ([8, 8], 1, 1)
    for setting in every_setting:
        make_parser().parse_args(["train", *AROUND, *setting.words])
    for dataset, name in ((dataset, name) for dataset in DATASETS for name in RUNS):
        make_parser().parse_args(["train", "--dataset", dataset, *DATASETS[dataset], *RUNS[name]])


def test_a_frontier_that_was_stopped_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[object, ...]] = []

    def trained(*words: object) -> dict[str, Any]:
        commands.append(words)
        if len(commands) == 2:
            raise KeyboardInterrupt
        seconds = 1.0 if "--budget" in words else 10.0
        return {"test": {"f1": 0.9}, "train_seconds": seconds, "seconds": {"evaluate": 0.5}}

    monkeypatch.setattr(command, "trained", trained)
    words = ("--ordinary", 1, "--lr", 0.01, "--budget", 2, "--out", tmp_path, "--", *AROUND)
    with pytest.raises(KeyboardInterrupt):
        run("frontier", *words)
    printed = run("frontier", *words)
    assert len(commands) == 3
    assert "To 89.80 %: ordinary 10.0 s, ours 1.00 s, 10.0x sooner." in printed
    assert "| 10.0 | 90.00 | +0.00 | +0.00 |" in printed
