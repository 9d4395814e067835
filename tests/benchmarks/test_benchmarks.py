"""The benchmarks run, count right, and agree with themselves; how fast anything is, is not asserted."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from benchmarks import worker
from benchmarks.case import Case
from benchmarks.counts import count
from benchmarks.graphs import communities
from benchmarks.ours import GISTContender
from benchmarks.pyg import PyGContender
from benchmarks.tables import percentile, quartiles
from benchmarks.targets import judge
from benchmarks.time_to_f1 import compare, first_time
from tests.helpers.commands import ready

ROOT = Path(__file__).parents[2]
TINY = {"features": 6, "classes": 3, "heads": 2, "nodes": 40, "edges": 160, "per_batch": 4, "clusters": 8}


def case(model: str = "graphsage", hidden: tuple[int, ...] = (8, 8), **changes: Any) -> Case:
    fixed = {"precision": "float32", "device": "cpu", "threads": 1, "local_steps": 10, "precompute": False}
    return Case(model=model, hidden=hidden, **{**TINY, **fixed, **changes})


class Run(Protocol):
    """Of a module's name and its options, the JSON and the printed text."""

    def __call__(self, module: str, *options: object) -> tuple[dict[str, Any], str]: ...


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What `python -m` runs, in this process, whose workers are forked from one that has imported torch already."""
    monkeypatch.setattr(worker, "_SPAWN", ready())
    for name in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))  # so that what a benchmark sets is undone

    def run_module(module: str, *options: object) -> tuple[dict[str, Any], str]:
        out = tmp_path / "out.json"
        words = [module, *map(str, options), "--threads", "1", "--json", str(out)]
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_module(f"benchmarks.{module}", run_name="__main__", alter_sys=True)
        return json.loads(out.read_text()), capsys.readouterr().out

    return run_module


def run_as_users_do(module: str, tmp_path: Path, *options: object) -> tuple[dict[str, Any], str]:
    """The same by `python -m`, with workers that are started, not forked."""
    out = tmp_path / "out.json"
    words = [sys.executable, "-m", f"benchmarks.{module}", *map(str, options), "--threads", "1", "--json", str(out)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


def test_products_are_those_counted_by_hand() -> None:
    # N = 10, F = 3, widths 4 and 2, 5 classes: weights [4, 6], [2, 8], [5, 4].
    counts = count(case(hidden=(4, 2), features=3, classes=5), (4, 2), 10, 30)
    first, second, last = 2 * 10 * 6 * 4, 2 * 10 * 8 * 2, 2 * 10 * 4 * 5
    assert counts.flops == 2 * first + 3 * second + 3 * last  # no gradient of the features
    assert counts.parameters == 6 * 4 + 4 + 8 * 2 + 2 + 4 * 5 + 5
    assert counts.adam_bytes == 28 * counts.parameters
    # Widths of the sparse products: 3 forward; 2 (projected first) and 2, forward and backward.
    assert counts.sparse_bytes == sum(2 * 10 * width * 4 + 30 * 8 for width in (3, 2, 2, 2, 2))


@pytest.mark.parametrize("model", ["graphsage", "gcn", "gat"])
def test_parameters_are_those_of_the_model(model: str) -> None:
    this = case(model)
    own = sum(p.numel() for p in this.build((8, 8)).parameters())
    assert count(this, (8, 8), 10, 30).parameters == own


@pytest.mark.parametrize("model", ["graphsage", "gcn", "gat"])
def test_contenders_compute_the_same_function(model: str) -> None:
    this = case(model, clusters=4)
    pyg, csr, ours = PyGContender(this, "edge_index"), PyGContender(this, "csr"), GISTContender(this, "in-turn", 1)
    batch = next(ours.sampler.batches(0, 1))
    (own,) = ours.models
    modules = [pyg._model, csr._model, own]
    for module in modules:
        module.eval()
    for mine, its in zip(own.convs, pyg._model.convs, strict=True):
        _copy(model, mine, its)
    csr._model.load_state_dict(pyg._model.state_dict())
    with torch.no_grad():
        expected = ours.logits(ours.prepare(batch))
        for contender in (pyg, csr):
            torch.testing.assert_close(contender.logits(contender.prepare(batch)), expected, rtol=1e-4, atol=1e-5)


def _copy(model: str, ours: Any, its: Any) -> None:
    """Give PyG's layer the parameters of ours."""
    with torch.no_grad():
        if model == "graphsage":
            own, neighbours = ours.weight.chunk(2, dim=1)
            its.lin_r.weight.copy_(own)
            its.lin_l.weight.copy_(neighbours)
            its.lin_l.bias.copy_(ours.bias)
            return
        its.lin.weight.copy_(ours.weight)
        its.bias.copy_(ours.bias)
        if model == "gat":
            its.att_src.copy_(ours.source[None])
            its.att_dst.copy_(ours.target[None])


def test_a_batch_has_about_the_nodes_and_edges_that_were_asked_for() -> None:
    this = case(nodes=800, edges=12000, per_batch=10, clusters=30)
    batches = list(this.sampler().batches(0, 3))
    assert all(batch.x.shape[0] == 800 for batch in batches)
    assert all(batch.adj.num_edges == pytest.approx(12000, rel=0.1) for batch in batches)
    whole, clusters = communities(nodes=800, edges=12000, per_batch=10, clusters=30, features=6, classes=3)
    assert len(clusters) == 30
    assert whole.x.shape == (2400, 6)


def test_steps(run: Run) -> None:
    small = ("--hidden", 16, 16, "--features", 6, "--classes", 3, "--nodes", 60, "--edges", 300, "--clusters", 20)
    quick = ("--repeat", 2, "--stretches", 1, "--seconds", 0.01)
    found, printed = run("steps", *small, *quick, "--sub-gcns", 2)
    (only,) = found["cases"]
    contenders = only["contenders"]
    assert list(contenders) == ["PyG, edge_index", "PyG, CSR", "m=1", "in turn m=2", "fused m=2"]
    for name, result in contenders.items():
        step = result["step_ms"]["median"]
        assert only["ratios"][name]["vs m=1"] == pytest.approx(contenders["m=1"]["step_ms"]["median"] / step)
        assert result["over_floor"] == pytest.approx(step / only["floors"][str(result["sub_gcns"])]["total"])
        assert sum(result["shares"].values()) == pytest.approx(1)
        assert len(result["step_ms"]["samples"]) == 2
        assert result["epoch_seconds"] == pytest.approx(1.5 * result["end_to_end_ms"])
        assert name in printed
    nodes, edges = only["batch"]["nodes"], only["batch"]["edges"]
    this = case(hidden=(16, 16), nodes=nodes, edges=edges)
    assert only["counts"]["2"]["flops"] == count(this, (8, 8), nodes, edges).flops
    assert [target["target"] for target in found["targets"]] == [
        "graphsage 16×16 float32: fused m=2 is faster than in turn"
    ]


def test_batches(run: Run) -> None:
    found, printed = run("batches", "--nodes", 600, "--edges", 3000, "--clusters", 60, "--batches", 12, "--features", 5)
    assert found["graph"]["nodes"] == 600
    assert found["graph"]["undirected_edges"] == pytest.approx(3000, rel=0.1)
    assert [(row["what"], row["precompute"]) for row in found["rows"]] == [
        (what, precompute) for precompute in (False, True) for what in ("cut", "operators and ĀX")
    ]
    assert all(row["median_ms"] <= row["p90_ms"] <= row["max_ms"] for row in found["rows"])
    assert all(row["nodes"] == 100 for row in found["rows"])
    assert "Peak memory" in printed


def test_time_to_f1(tmp_path: Path) -> None:
    found, printed = run_as_users_do(
        "time_to_f1", tmp_path, "--dataset", "digits", "--hidden", 16, "--epochs", 3, "--sub-gcns", 2, 4,
        "--gist-epochs", 2, 4, "--gist-lr", 0.05, "--clusters", 8, "--clusters-per-batch", 2, "--local-steps", 2,
    )  # fmt: skip
    assert [(row["sub_gcns"], row["epochs"], row["lr"]) for row in found["rows"]] == [
        (1, 3, 0.01), (2, 2, 0.05), (4, 4, 0.05)
    ]  # fmt: skip
    baseline = found["rows"][0]
    assert baseline["equal_epochs_ratio"] == 1
    assert baseline["test_reached"] == 1
    assert baseline["test_seconds"] <= baseline["train_seconds"]
    assert all(run["steps"] == run["epochs"] * 4 for run in found["runs"])  # of all sub-GCNs together
    assert "| 4 | 4 | 0.05 |" in printed


def history(*scores: float) -> list[dict[str, float]]:
    return [{"train_seconds": i + 1.0, "validation": s, "test": s} for i, s in enumerate(scores)]


def test_the_time_is_that_of_the_first_evaluation_that_reaches_the_goal() -> None:
    assert first_time(history(0.5, 0.8, 0.7, 0.9), "test", 0.8) == 2.0
    assert first_time(history(0.5), "test", 0.8) is None


def test_ratios_are_to_the_baseline_of_the_same_seed() -> None:
    def a_run(m: int, seed: int, seconds: float, *scores: float) -> dict[str, Any]:
        last = {"last": scores[-1], "best": max(scores)}
        each = {"epochs": 2, "lr": 0.1, "runner": "in-turn", "validation": last, "test": last}
        return {"sub_gcns": m, "seed": seed, "train_seconds": seconds, "history": history(*scores), **each}

    runs = [a_run(1, 0, 8.0, 0.1, 0.2, 0.9), a_run(1, 1, 4.0, 0.9), a_run(2, 0, 4.0, 0.896), a_run(2, 1, 1.0, 0.1)]
    _, row = compare(runs)
    assert row["equal_epochs_ratio"] == pytest.approx((2 + 4) / 2)
    assert runs[2]["test_ratio"] == 3  # three evaluations against one
    assert row["test_reached"] == 1
    assert row["test_ratio"] is None  # of seed 1 there is none
    longer = a_run(2, 0, 8.0, 0.896) | {"epochs": 80}
    assert [row["epochs"] for row in compare([*runs, longer])] == [runs[0]["epochs"], runs[2]["epochs"], 80]


def test_targets_are_met_or_missed() -> None:
    def steps(**ms: float) -> dict[str, Any]:
        return {name.replace("_", " ").replace("m1", "m=1").replace("m8", "m=8"): value for name, value in ms.items()}

    found = steps(m1=100.0, in_turn_m8=3.0, fused_m8=4.0) | {"PyG, edge_index": 250.0}
    wide = {
        "model": "graphsage", "hidden": [4096, 4096], "precision": "float32", "floors": {"1": {"total": 90.0}},
        "contenders": {name: {"step_ms": {"median": ms}, "batch_share": 0.05} for name, ms in found.items()},
    }  # fmt: skip
    met = {target["target"].split(": ", 1)[1]: target["met"] for target in judge([wide])}
    assert met["m=1 is faster than PyG on edge_index"]
    assert met["m=1 over its floor"]
    assert met["in turn m=8 is faster than m=1"]
    assert not met["fused m=8 is faster than m=1"]
    assert not met["fused m=8 is faster than in turn"]


def test_quartiles_and_percentiles() -> None:
    assert quartiles([3.0, 1.0, 2.0])["median"] == 2
    assert quartiles([1.0])["q3"] == 1
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2
    assert percentile([float(i) for i in range(1, 11)], 0.9) == 9


def test_sampling(run: Run) -> None:
    few = ("--dataset", "digits", "--batches", 3, "--repeat", 1, "--passes", 2, "--width", 16, "--hidden-layers", 2)
    found, printed = run("sampling", *few, "--layers", 2, "--samplers", "ladies", "saint-edge")
    assert [row["sampler"] for row in found["batches"]] == ["ladies", "saint-edge"]
    assert all(len(row["ms"]["samples"]) == 3 for row in found["batches"])
    baseline, *others = found["training"]
    assert baseline["sub_gcns"] == 1
    for row in others:
        expected = row["sub_gcns"] * baseline["background"]["median"] / row["background"]["median"]
        assert row["background_speedup"] == pytest.approx(expected)
    assert len(found["targets"]) == 1 + 3 + 2
    assert "## Targets" in printed


def test_samplers(run: Run, tmp_path: Path) -> None:
    few = ("--dataset", "digits", "--epochs", 4, "--full-epochs", 8, "--local-steps", 2, "--width", 16)
    out = ("--models", "gcn", "gat", "--samplers", "clusters", "ladies", "--out", tmp_path / "runs")
    found, printed = run("samplers", *few, *out, "--sub-gcns", 2, "--clusters", 20)
    names = [(row["model"], row["sampler"]) for row in found["rows"]]
    assert names == [("gcn", "full"), ("gcn", "clusters"), ("gcn", "ladies"), ("gat", "full"), ("gat", "clusters")]
    for row in found["rows"]:
        full = next(each for each in found["rows"] if each["sampler"] == "full" and each["model"] == row["model"])
        assert row["lost"] == pytest.approx(full["test"] - row["test"])
    assert found["target_met"] == all(row["lost"] <= 2 for row in found["rows"])
    assert "| gcn | 2 | ladies |" in printed
