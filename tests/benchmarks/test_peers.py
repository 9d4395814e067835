"""`benchmarks.peers` compares models that compute the same function, and counts right; no speed is asserted."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import peers, worker
from benchmarks.case import Case
from benchmarks.dgl_nets import DGLContender, why_not
from benchmarks.ours import GISTContender
from benchmarks.peers_report import behind, milliseconds, ratios, the_table
from benchmarks.pyg import PyGContender
from gistgnn.errors import InputError
from tests.helpers.commands import ready

SMALL = ("--nodes", "40", "--edges", "160", "--features", "6", "--classes", "3", "--threads", "1")


def options(*words: str, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    monkeypatch.setattr(sys, "argv", ["peers", *words])
    return peers.parse()


def single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what `main` sets is undone."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


def contenders(case: Case) -> list[Any]:
    """PyG's on both layouts, and DGL's where it imports."""
    dgl = [] if why_not() else [DGLContender(case)]
    return [PyGContender(case, "edge_index"), PyGContender(case, "csr"), *dgl]


@pytest.mark.parametrize("graph", ["synthetic", "digits"])
@pytest.mark.parametrize("model", ["gcn", "graphsage", "gat"])
def test_contenders_compute_the_same_function_and_gradient(
    graph: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(*SMALL, monkeypatch=monkeypatch)
    case = peers.make_case(peers.describe(graph, given), model, 32, given)
    ours = GISTContender(case, "in-turn", 1)
    (own,) = ours.models
    batch = next(ours.sampler.batches(0, 1))
    own.eval()
    expected = ours.logits(ours.prepare(batch))
    expected.square().sum().backward()
    for contender in contenders(case):
        its = contender._model.eval()
        for mine, layer in zip(own.convs, its.convs, strict=True):
            copy_parameters(mine, layer)
        found = contender.logits(contender.prepare(batch))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        found.square().sum().backward()
        for mine, layer in zip(own.convs, its.convs, strict=True):
            gradient = torch.cat([weight.grad for weight in weights(layer)], dim=1)
            torch.testing.assert_close(gradient, mine.weight.grad, rtol=1e-3, atol=1e-2)


def weights(layer: nn.Module) -> list[Tensor]:
    """Of a layer of PyG's or DGL's, the weights that ours joins, as [out, in]: of the node itself first."""
    kind = f"{type(layer).__module__.split('.')[0]} {type(layer).__name__}"
    found: dict[str, Any] = {
        "torch_geometric SAGEConv": lambda: [layer.lin_r.weight, layer.lin_l.weight],
        "torch_geometric GCNConv": lambda: [layer.lin.weight],
        "torch_geometric GATConv": lambda: [layer.lin.weight],
        "dgl SAGEConv": lambda: [layer.fc_self.weight, layer.fc_neigh.weight],
        "dgl GraphConv": lambda: [Transposed(layer.weight)],
        "dgl GATConv": lambda: [layer.fc.weight],
    }
    return found[kind]()


class Transposed:
    """DGL's weight of a GCN layer, which is [in, out]."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(reversed(self._weight.shape))  # type: ignore[return-value]

    @property
    def grad(self) -> Tensor | None:
        return None if self._weight.grad is None else self._weight.grad.t()

    def copy_(self, other: Tensor) -> None:
        self._weight.copy_(other.t())


def copy_parameters(ours: Any, its: Any) -> None:
    """Give another library's layer the parameters of ours."""
    own = weights(its)
    with torch.no_grad():
        for target, part in zip(own, ours.weight.split([weight.shape[1] for weight in own], dim=1), strict=True):
            target.copy_(part)
        holder = next((part for part in (getattr(its, "lin_l", None), getattr(its, "fc_self", None)) if part), its)
        bias: Tensor = holder.bias
        bias.copy_(ours.bias if bias.numel() == ours.bias.numel() else ours.bias.repeat(len(ours.source)))
        for names, part in ((("att_src", "attn_l"), "source"), (("att_dst", "attn_r"), "target")):
            for name in names:
                if hasattr(its, name):
                    getattr(its, name).copy_(getattr(ours, part)[None])


def test_auto_and_fused_step_every_sub_gcn(monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(*SMALL, monkeypatch=monkeypatch)
    case = peers.make_case(peers.describe("synthetic", given), "graphsage", 32, given)
    clock = worker.Clock("cpu")
    for runner, trained in (("in-turn", 1), ("auto", 4), ("fused", 4)):
        contender = GISTContender(case, runner, 4)
        batch = contender.prepare(next(contender.sampler.batches(0, 1)))
        contender.step(batch, clock)
        assert contender.steps_per_pass == trained
        assert contender.logits(batch).dim() == (3 if runner == "fused" else 2)
        assert len(contender.models) == (4 if runner == "auto" else 1)
        parameters = [p for group in contender._optimizer.param_groups for p in group["params"]]
        narrow = sum(p.numel() for p in case.build((8, 8)).parameters())
        assert sum(p.numel() for p in parameters) == trained * narrow
        assert all(p.grad is not None for p in parameters)


def times(**samples: list[float]) -> dict[str, Any]:
    return {
        name: {what: {"median": sorted(found)[len(found) // 2], "samples": found} for what in ("step", "epoch")}
        for name, found in samples.items()
    }


def test_ratios_are_of_the_same_round() -> None:
    names = {"a": "PyG, edge_index", "b": "PyG, CSR", "c": "m=1", "d": "m=8, auto"}
    given = times(a=[4.0, 40.0, 4.0], b=[1.1, 9.0, 1.2], c=[1.0, 10.0, 1.0], d=[0.5, 5.0, 0.5])
    found = [each for each in ratios({names[key]: value for key, value in given.items()}) if each["what"] == "step"]
    by_pair = {(each["peer"], each["ours"]): each for each in found}
    assert set(by_pair) == {("PyG, edge_index", "m=1"), ("PyG, CSR", "m=1"), ("PyG, CSR", "m=8, auto")}
    assert by_pair["PyG, edge_index", "m=1"]["ratio"]["samples"] == [4, 4, 4]
    assert by_pair["PyG, CSR", "m=8, auto"]["ratio"]["samples"] == pytest.approx([2.2, 1.8, 2.4])
    # The ratios to m = 1 are 0.9, 1.1 and 1.2: the median is above 1, and the lower quartile is not.
    assert by_pair["PyG, CSR", "m=1"]["ratio"]["q1"] == pytest.approx(1.0)
    assert [each["ahead"] for each in found] == [True, by_pair["PyG, CSR", "m=1"]["ratio"]["q1"] > 1, True]


def test_a_row_that_is_not_ahead_is_marked() -> None:
    slow = {"PyG, CSR": times(x=[1.0, 1.0])["x"], "m=1": times(x=[2.0, 2.0])["x"]}
    for found in slow.values():
        for what in found.values():
            what |= {"q1": what["median"], "q3": what["median"]}
    case = {"graph": "digits", "model": "gcn", "width": 8, "times_ms": slow, "ratios": list(ratios(slow))}
    assert behind([case])[0] == "digits, GCN, 8, step: PyG, CSR / m=1 is 0.50 (0.50–0.50)"
    assert the_table([case]).count("1.00; 0.50 (0.50–0.50) !") == 2


def test_an_epoch_counts_theta_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(*SMALL, "--local-steps", "10", monkeypatch=monkeypatch)
    case = peers.make_case(peers.describe("synthetic", given), "gcn", 32, given)
    stretch = {"run": 3.0, "theta_per_round": 40.0, "sub_gcns": 4}
    assert milliseconds(case, {"step": [{"step": 2.0}], "stretch": [stretch]}, "epoch", 6) == [6 * (3.0 + 1.0)]
    assert milliseconds(case, {"step": [{"step": 2.0}], "stretch": [stretch]}, "step", 6) == [2.0]


def test_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "forked", lambda *modules: ready())
    monkeypatch.setattr(peers, "why_not", lambda: "ImportError: no such module")
    out = tmp_path / "peers.json"

    def run(*models: str) -> dict[str, Any]:
        words = ["--graphs", "synthetic", "--models", *models, "--widths", "32", "--sub-gcns", "2", *SMALL]
        monkeypatch.setattr(sys, "argv", ["peers", *words, "--repeat", "2", "--seconds", "0.01", "--json", str(out)])
        single_thread(monkeypatch)
        peers.main()
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    first = run("gcn")["cases"]
    found = run("gcn", "gat")["cases"]
    printed = capsys.readouterr().out
    assert found[0] == first[0]  # it is not measured again
    assert [(case["model"], case["hidden"]) for case in found] == [("gcn", [32, 32]), ("gat", [8, 8])]
    for case in found:
        assert list(case["times_ms"]) == ["PyG, edge_index", "PyG, CSR", "m=1", "m=2, auto", "m=2, fused"]
        assert not case["errors"]
        assert all(len(found["samples"]) == 2 for each in case["times_ms"].values() for found in each.values())
        assert len(case["ratios"]) == 2 * (2 + 2)
    assert "| synthetic | GAT | 32 | epoch |" in printed
    assert "- DGL is left out: it does not import: ImportError: no such module" in printed


def test_a_graph_without_data_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_data(name: str, given: argparse.Namespace) -> peers.Source:
        raise InputError(f"{name}: raw files are missing in {given.data_root}")

    monkeypatch.setattr(peers, "describe", no_data)
    monkeypatch.setattr(sys, "argv", ["peers", "--graphs", "amazon-computers", "--data-root", str(tmp_path)])
    single_thread(monkeypatch)
    peers.main()
    printed = capsys.readouterr().out
    assert f"- amazon-computers is left out: amazon-computers: raw files are missing in {tmp_path}" in printed


def test_the_reason_why_dgl_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dgl", None)
    assert why_not() == "ModuleNotFoundError: import of dgl halted; None in sys.modules"


@pytest.mark.parametrize("width", ["48", "0", "-32"])
def test_widths_that_cannot_be_cut_are_refused(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refusal:
        options("--widths", "64", width, monkeypatch=monkeypatch)
    assert refusal.value.code == 2
    assert f"--widths has {width}" in capsys.readouterr().err
