"""What a plan says of a graph in a folder of clusters is what runs take."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph, load
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.planning import Resources, make_plan, peak_bytes
from gistgnn.planning.forecast import PhasedPlan
from gistgnn.planning.rehearsal import Rehearsal
from gistgnn.planning.rehearsal import rehearse as rehearse_phases
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling, NeighborSampling, Sampling, whole_graph
from gistgnn.settings import Training
from tests.helpers.clustered_folders import make_clustered

N, E, F, CLUSTERS, Q = 100_000, 600_000, 128, 60, 6
BY_CLUSTERS = ClusterSampling(CLUSTERS, Q)
MIB = 2**20


def random_graph(nodes: int, edges: int, features: int) -> Graph:
    rng = torch.Generator().manual_seed(0)
    number = torch.arange(nodes)
    masks = {name: number % 10 == digit for digit, name in enumerate(("val", "test"))}
    x = torch.randn(nodes, features, generator=rng)
    ends = torch.randint(nodes, (2, edges), generator=rng)
    return Graph.build(x, ends, number % 5, train=number % 10 > 4, **masks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of clusters of a graph of 50 MB."""
    place = tmp_path_factory.mktemp("stored") / "graph"
    make_clustered(random_graph(N, E, F), CLUSTERS, place)
    return place


@cache
def sizes_of(folder: Path) -> GraphSizes:
    return GraphSizes.of_graph(load(str(folder)))


def config(sampler: Sampling | None = BY_CLUSTERS, name: str = "graphsage", **options: Any) -> RunConfig:
    training = Training(epochs=1, local_steps=2)
    model = ModelConfig(name, options.pop("hidden", (64,)))
    return RunConfig("a folder", model, 2, training=training, sampler=sampler, **{"standardise": None, **options})


def rehearse(run: RunConfig, sizes: GraphSizes, **limits: Any) -> Rehearsal:
    [found] = rehearse_phases(run, sizes, **limits)
    return found


def test_the_sizes_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    graph, clusters = make_clustered(random_graph(300, 2000, 7), 8, tmp_path / "g", dtype="float16")
    sizes = GraphSizes.of_graph(load(str(tmp_path / "g")))
    stored = sizes.stored
    assert stored is not None
    assert (stored.clusters, stored.x, stored.edges, stored.products) == (8, 300 * 7 * 2, 4 * graph.num_edges, ())
    assert stored.degree == int(graph.edge_index[1].bincount().max())
    of = torch.arange(8).repeat_interleave(clusters.sizes)
    source, target = of[graph.edge_index]
    assert stored.inside == pytest.approx(float((source == target).float().mean()))
    assert (sizes.train, sizes.scored_nodes) == (150, 60)
    assert sizes.training().stored is None
    assert GraphSizes.of_graph(graph).stored is None
    expected = ClusterSampling(8, 8).expected(sizes, 2)
    assert expected.edges == (graph.num_edges,)


def test_a_product_that_is_there_takes_no_more_room(tmp_path: Path) -> None:
    make_clustered(random_graph(300, 2000, 7), 8, tmp_path / "g")
    run, limits = config(ClusterSampling(8, 2)), {"limits": {"cpu": 2**40}}
    before = rehearse(run, GraphSizes.of_graph(load(str(tmp_path / "g"))), **limits)
    batch = whole_graph(load(str(tmp_path / "g")))
    batch.adj.aggregate("mean", batch.x)
    sizes = GraphSizes.of_graph(load(str(tmp_path / "g")))
    assert sizes.stored is not None
    assert sizes.stored.products == ("mean",)
    after = rehearse(run, sizes, **limits)
    assert before.stages["training"]["disk"] - after.stages["training"]["disk"] == 4 * 300 * 7
    assert after.step.ahead == before.step.ahead == round(2 / 8 * (4 * 300 * 7 * 2 + sizes.stored.edges))


def test_what_is_held_goes_by_the_sampler(folder: Path) -> None:
    sizes = sizes_of(folder)
    inside = replace(sizes, stored=None)
    x, limits = 4 * N * F, {"limits": {"cpu": 2**40}}
    clusters, whole, neighbors = (
        rehearse(config(sampler), sizes, **limits) for sampler in (BY_CLUSTERS, None, NeighborSampling((5, 5), 500))
    )
    assert clusters.method == whole.method == neighbors.method == "layers"
    assert clusters.stages["clustering"]["cpu"] < 20 * N
    assert clusters.step.top < whole.step.top - x
    assert neighbors.stages["clustering"]["cpu"] < x / 2
    assert whole.stages["loading"]["cpu"] >= x
    assert whole.step.ahead == 0 < clusters.step.ahead < neighbors.step.ahead  # a page for every node
    assert rehearse(config(), inside, **limits).peak("cpu") > clusters.peak("cpu")
    part = rehearse(config(inductive=True), sizes, **limits)
    assert part.stages["clustering"]["cpu"] > x / 2  # the training nodes' features, and a copy in another order
    parts = rehearse(config(evaluation=Evaluation("parts", parts=CLUSTERS)), sizes, **limits)
    assert parts.method == "parts"
    assert parts.scoring.read > 0


def test_evaluation_keeps_to_the_memory_that_is_left(folder: Path) -> None:
    wide, sizes = config(hidden=(512, 512)), sizes_of(folder)
    assert rehearse(wide, sizes, limits={"cpu": 2**40}).stages["evaluation"]["cpu"] > 4 * N * 512
    tight = rehearse(wide, sizes, limits={"cpu": 400 * MIB})
    assert tight.stages["evaluation"]["cpu"] < 400 * MIB
    assert tight.stages["evaluation"]["disk"] >= 4 * N * 512
    once, often = (rehearse(wide, sizes, limits={"cpu": limit}).scoring.read for limit in (2**40, 200 * MIB))
    assert often > once  # more blocks of columns: the edges are read for each


def test_an_epoch_takes_as_long_as_reading_its_bytes(folder: Path) -> None:
    sizes = sizes_of(folder)
    plan = make_plan(config(), sizes, Resources(2**36, None, 2**40, 0), [1, 2], ["memory"])
    assert not isinstance(plan, PhasedPlan)
    option, shared = plan.options
    assert sizes.stored is not None
    assert option.epoch_reads == pytest.approx(2 * 4 * N * F + sizes.stored.edges, rel=0.01)
    assert shared.epoch_reads == pytest.approx(option.epoch_reads / 2, rel=0.01)  # two sub-GCNs see each batch
    assert option.evaluation_reads > 4 * N * F
    assert plan.disk_rate is not None
    assert option.seconds is not None
    assert option.seconds["epoch"] >= option.epoch_reads / plan.disk_rate
    assert option.seconds["evaluation"] >= option.evaluation_reads / plan.disk_rate
    untimed = make_plan(config(), sizes, Resources(2**36, None, 2**40, 0), [2], ["memory"], timed=False)
    assert untimed.disk_rate is None


def train(folder: Path, out: Path, *options: object) -> tuple[int, str, int]:
    """Train in a process of its own; return its status, what it says, and the most memory that it held."""
    line = [sys.executable, "-m", "gistgnn", "train", "--dataset", folder, "--model", "graphsage", "--hidden", 64]
    line += ["--sub-gcns", 2, "--epochs", 1, "--local-steps", 2, "--sampler", "clusters", "--clusters", CLUSTERS]
    line += ["--clusters-per-batch", Q, "--out", out, *options]
    with subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, held(process.pid))
            time.sleep(0.01)
        assert process.stdout is not None
        return process.returncode, process.stdout.read(), peak


def held(process: int) -> int:
    """Return the bytes that a process holds, without the pages of mapped files; 0 when it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        return sum(int(status.split(f"{name}:")[1].split()[0]) for name in ("RssAnon", "RssShmem")) * 1024
    except (OSError, IndexError):
        return 0


@pytest.mark.skipif(sys.platform != "linux", reason="measured by Linux's /proc")
def test_a_run_takes_what_is_planned_and_keeps_to_its_limit(folder: Path, tmp_path: Path) -> None:
    status, said, peak = train(folder, tmp_path / "out", "--memory", 0.5)
    assert status == 0, said
    assert peak < 2**29  # of which the mean of the training nodes' features takes most
    started = 240 * MIB  # Python, torch and gistgnn
    resources = Resources(2**29, None, 2**40, started, limited=True)
    [option] = make_plan(config(), sizes_of(folder), resources, [2], ["memory"], timed=False).options
    assert 0.9 < option.peaks["cpu"] / peak < 1.25, (option.peaks["cpu"] / MIB, peak / MIB)
    status, said, peak = train(folder, tmp_path / "other", "--memory", 0.25)
    assert status == 2, said
    assert said.splitlines()[-1].startswith("gistgnn: error: m = 2 needs "), said
    assert "of memory (in its loading phase), 256 MiB are available" in said
    assert "rounds done" not in said
    assert "--clusters-per-batch" in said
    assert not (tmp_path / "other" / "result.json").exists()


def test_plan_prints_what_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gistgnn.cli.main import main

    line = ["plan", "--dataset", str(folder), "--sampler", "clusters", "--clusters", str(CLUSTERS), "--hidden", "64"]
    assert main([*line, "--sub-gcns", "1", "2", "--store", "memory", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["graph"]["stored"]["clusters"] == CLUSTERS
    assert plan["disk_rate"] > 0
    assert [option["epoch_reads"] for option in plan["options"]] > [4 * N * F] * 2
    assert main([*line, "--sub-gcns", "2", "--store", "memory"]) == 0
    text = capsys.readouterr().out
    assert "in files: " in text
    assert f"read from {folder}; its disk gives" in text
    assert "epoch takes" in text
    assert main([*line, "--phases", "2:1", "1:1", "--store", "memory", "--no-measure"]) == 0
    text = capsys.readouterr().out
    assert f"read from {folder}\n" in text
    assert "epoch takes" not in text


def test_peaks_of_a_comparison_are_those_of_the_folder(folder: Path) -> None:
    sizes = sizes_of(folder)
    assert peak_bytes(config(), sizes) < peak_bytes(config(), replace(sizes, stored=None))
