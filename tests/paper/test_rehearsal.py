"""Rehearsals of experiments: every setting takes two steps, on graphs of the data's shape, and nothing is kept."""

import re
import tempfile
from pathlib import Path

import pytest

from gistgnn.graphs import find
from gistgnn.paper import rehearsal
from gistgnn.paper.rehearsal import stand_in
from tests.cli.in_process import refused, run

REDDIT = ("reproduce", "reddit", "--scale", "full", "--datasets", "digits", "--models", "graphsage", "--layers", 2)
WIDE = ("reproduce", "ultrawide", "--scale", "full", "--layers", 2, "--widths", 8192, 32768, "--sub-gcns", 8, 1)


def test_every_setting_has_a_line_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(*REDDIT, "--clusters", 40, "--rehearse", "--out", tmp_path / "out") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    settings = [line.rpartition(": ")[0] for line in lines]
    assert settings == [f"ran: digits, graphsage 256-256, m = {m}, clusters" for m in (1, 2, 4, 8)]
    assert re.fullmatch(r"rehearsed: 4 settings ran, 0 by plan, in .+; 4 rows, \d+ verdicts and the report .+", last)
    for words, message in (
        (("--clusters", 1500), "digits, graphsage 256-256, m = 1, clusters: clusters is 1500, expected an integer"),
        (("--datasets", "absent"), "'absent' is neither a data set nor a file"),
        (("--out", "/proc/nowhere"), "cannot write /proc/nowhere"),
    ):
        refused(capsys, message, *REDDIT, "--out", tmp_path / "out", "--rehearse", *words)
    assert not list(tmp_path.iterdir())


def test_only_what_the_plan_leaves_out_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gistgnn.estimate.resources.available_bytes", lambda _: 2**30)  # too little for the real runs
    assert run(*WIDE, "--rehearse", "--data-root", tmp_path, "--out", tmp_path / "out") == 0
    found = re.findall(r"(?m)^(ran|by plan): .* (\d+)-\d+, m = (\d), clusters[^:]*: (.*)", capsys.readouterr().out)
    assert [line[:3] for line in found] == [
        ("ran", "8192", "1"), ("ran", "8192", "8"), ("by plan", "32768", "1"), ("ran", "32768", "8"),
    ]  # fmt: skip
    assert found[2][3].endswith(" GiB, OOM in 32 GiB")


@pytest.mark.parametrize("name", ["cora", "ppi", "digits"])
def test_a_stand_in_is_like_its_data_set(name: str) -> None:
    info = find(name)
    assert info
    graph = stand_in(info)
    assert graph.num_nodes == min(info.nodes, rehearsal.NODES)
    assert (graph.num_features, graph.num_classes) == (info.features, info.classes)
    assert graph.multi_label == (info.task == "multi-label")
    assert int(graph.train.sum()) / graph.num_nodes == pytest.approx(info.train / info.nodes, rel=0.05)
    assert all(graph.y[mask].numel() for mask in (graph.train, graph.val, graph.test))
