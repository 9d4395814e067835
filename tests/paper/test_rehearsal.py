"""Rehearsals of experiments: every setting takes two steps, on graphs of the data's shape, and nothing is kept."""

import re
import tempfile
from pathlib import Path

import pytest
import torch

from gistgnn import Training
from gistgnn.graphs import find, load_file
from gistgnn.graphs.named import DATASETS
from gistgnn.paper import rehearsal
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.paper.rehearsal import RehearsedRuns, shortened, stand_in
from gistgnn.paper.theory_bounds import Theory
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from tests.cli.in_process import refused, run
from tests.paper.test_provenance import NAMES, experiment_of, runs_of

REDDIT = ("reproduce", "reddit", "--scale", "full", "--datasets", "digits", "--models", "graphsage", "--layers", 2)
LINE = re.compile(r"ran: digits, graphsage 256-256, m = \d, clusters: .+")


def test_every_setting_has_a_line_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(*REDDIT, "--seeds", 2, "--clusters", 40, "--rehearse", "--out", tmp_path / "out") == 0
    out, err = capsys.readouterr()
    *lines, last = out.splitlines()
    assert len(lines) == 4
    assert all(LINE.fullmatch(line) for line in lines), out
    assert re.fullmatch(r"rehearsed: 4 settings ran, 0 by plan, in .+; 4 rows, \d+ verdicts and the report .+", last)
    assert not err
    for words, message in (
        (("--clusters", 1500), "digits, graphsage 256-256, m = 1, clusters: clusters is 1500, expected an integer"),
        (("--datasets", "absent"), "'absent' is neither a data set nor a file"),
        (("--out", "/proc/nowhere"), "cannot write /proc/nowhere"),
    ):
        refused(capsys, message, *REDDIT, "--out", tmp_path / "out", "--rehearse", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_the_full_scale_can_be_cut(name: str, tmp_path: Path) -> None:
    """Each is tried on a small graph, with batches as large, and takes two steps in two rounds."""
    store = RehearsedRuns(tmp_path, "data", print)
    runs = runs_of(experiment_of(name))
    for config in {(one.dataset, one.sampler, max(one.model.hidden)): one for one in runs}.values():
        small = shortened(config, store.dataset(config.dataset), "data")
        known, graph = find(config.dataset), load_file(store.dataset(config.dataset))
        assert known
        assert max(small.model.hidden) <= rehearsal.MOST_FEATURES
        if isinstance(config.sampler, ClusterSampling) and isinstance(small.sampler, ClusterSampling):
            assert small.sampler.clusters_per_batch == config.sampler.clusters_per_batch
            in_batch = graph.num_nodes / small.sampler.clusters
            assert in_batch == pytest.approx(known.nodes / config.sampler.clusters, rel=0.1)
        assert small.training.local_steps == 1
        assert small.training.evaluate_every == rehearsal.STEPS


def test_a_run_takes_two_steps_and_has_its_own_settings(tmp_path: Path) -> None:
    config = RunConfig("digits", ModelConfig(hidden=(8,)), 2, training=Training(40, 5))
    record = RehearsedRuns(tmp_path, "data", print).get(config)
    assert record["rounds"] == len(record["history"]) * rehearsal.STEPS == 2
    assert record["config"]["training"]["epochs"] == 40


def test_what_is_left_out_is_said_and_measurements_count(tmp_path: Path) -> None:
    lines: list[str] = []
    store = RehearsedRuns(tmp_path, "data", lines.append)
    store.left_out(next(run for run in runs_of(experiment_of("ultrawide")) if run.model.hidden[0] == 32768), "39 GiB")
    assert store.measured({"local 1": ({"d_1": 8}, lambda: (1, 2))}, "theory") == {"local 1": [1, 2]}
    assert lines == ["by plan: amazon2m, graphsage 32768-32768, m = 1, clusters: 39 GiB"]
    assert (store.planned, store.ran) == (1, 1)
    short = Theory.at("full").shortened()
    assert (short.epochs, short.seeds, short.widths) == (2, 1, Theory.at("full").widths)
    assert set(NAMES) | {"theory"} == set(EXPERIMENTS)


@pytest.mark.parametrize("name", ["cora", "ppi", "digits"])
def test_a_stand_in_is_like_its_data_set(name: str) -> None:
    info = DATASETS[name]
    graph = stand_in(info)
    assert graph.num_nodes == min(info.nodes, rehearsal.NODES)
    assert (graph.num_features, graph.num_classes) == (info.features, info.classes)
    assert graph.multi_label == (info.task == "multi-label")
    assert int(graph.train.sum()) / graph.num_nodes == pytest.approx(info.train / info.nodes, rel=0.05)
    assert all(graph.y[mask].numel() for mask in (graph.train, graph.val, graph.test))
    same = stand_in(info)
    assert torch.equal(graph.x, same.x)
    assert torch.equal(graph.edge_index, same.edge_index)
