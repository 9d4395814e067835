"""What is estimated, beside what runs have; and how estimates grow."""

import json
import logging
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import SAGEConv

from gistgnn.estimate import Option, Plan, Resources, chosen_store, make_plan, require_room
from gistgnn.estimate.memory import induced_bytes
from gistgnn.estimate.refusal import as_gist
from gistgnn.estimate.resources import DISK
from gistgnn.estimate.shapes import FACTORS, RunShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.sampling.edges_on_gpu import EdgesOnGPU
from gistgnn.settings import Training
from gistgnn.utils.process_memory import PeakBytes, held_bytes
from tests.graph_folders.folders import some_graph
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.models import C, F, Stack, tiny_graph
from tests.helpers.refusals import refused

MIB = 2**20
AMPLE = Resources(host=2**50, gpu=None, disk=2**50, base=0)
LARGE = GraphSizes(10**5, 10**6, 10**5 // 2, "g", 100, 10)
GRAPH = tiny_graph(300)
SIZES = GraphSizes.of_graph(GRAPH)


def config(
    name: str = "gcn", hidden: tuple[int, ...] = (8, 8), m: int = 2, **options: Any
) -> RunConfig:
    training = Training(**{"epochs": 4, "local_steps": 2, **options.pop("training", {})})
    model = ModelConfig(name, hidden, norm=options.pop("norm", "none"), heads=2)
    return RunConfig("own", model=model, sub_gcns=m, training=training, **options)


def plan(
    run: RunConfig, sizes: GraphSizes = SIZES, store: str = "memory", **resources: Any
) -> Plan:
    return make_plan(run, sizes, replace(AMPLE, **resources), [run.sub_gcns], [store], timed=False)


def option(*args: Any, **resources: Any) -> Option:
    return plan(*args, **resources).options[0]


def peaks(*args: Any, **resources: Any) -> dict[str, int]:
    return option(*args, **resources).memory.peaks


def peak(*args: Any, **resources: Any) -> int:
    return peaks(*args, **resources)["cpu"]


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(FACTORS)),
    st.lists(st.integers(4, 11), min_size=1, max_size=2),
    st.integers(1, 4),
    st.sampled_from(["none", "batch"]),
    st.sampled_from([None, (0,), (1,)]),
)
def test_sizes_are_those_of_real_sub_gcns(
    name: str, hidden: list[int], m: int, norm: str, partitioned: tuple[int, ...] | None
) -> None:
    run = config(name, tuple(hidden), m, norm=norm, partitioned=partitioned)
    shape = RunShape(run, SIZES)
    gist = run.trainer(F, C)
    subs = list(gist.begin_round())
    assert shape.theta == sum(tensor.nbytes for tensor in gist.theta.place.tensors.values())
    assert shape.full == sum(p.numel() for p in gist.model().parameters())
    assert [sub_shape.parameters for sub_shape in shape.subs] == [
        sum(p.numel() for p in sub.parameters()) for sub in subs
    ]
    slices = [sum(tensor.nbytes for tensor in sub.state_dict().values()) for sub in subs]
    assert [sub_shape.slice for sub_shape in shape.subs] == slices
    estimate = option(run).as_dict()
    assert estimate["moved_by_all"] == 2 * sum(slices) + 2 * sum(
        sub_shape.carried for sub_shape in shape.subs
    )
    assert estimate["slice"] == max(slices)


def test_gradients_and_moments_are_counted() -> None:
    for training, moments in (
        ({}, 2),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "sgd", "momentum": 0.9}, 1),
    ):
        reset = RunShape(config(training={**training, "optimizer_state": "reset"}), SIZES).subs
        carried = RunShape(config(training=training), SIZES).subs
        assert option(config(training=training)).trained == (2 + moments) * reset[0].slice
        assert [sub.carried for sub in reset] == [0, 0]
        assert [sub.carried for sub in carried] == [moments * sub.slice for sub in reset]


@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(sorted(FACTORS)),
    store=st.sampled_from(["memory", "host", "disk"]),
    sampler=st.sampled_from([None, ClusterSampling(100, 5), ClusterSampling(100, 20)]),
    runner=st.sampled_from(["auto", "in-turn", "fused"]),
    inductive=st.booleans(),
    width=st.integers(8, 96),
    m=st.sampled_from([1, 2, 4]),
)
def test_more_of_anything_takes_no_less(
    name: str, store: str, width: int, m: int, **options: Any
) -> None:
    run = config(name, (width, width), m, **options)
    usual = peak(run, LARGE, store)
    for hidden in ((2 * width, width), (width,) * 3):
        assert usual <= peak(replace(run, model=replace(run.model, hidden=hidden)), LARGE, store)
    for change in ({"edges": 2 * LARGE.edges}, {"features": 200}):
        assert usual <= peak(run, replace(LARGE, **change), store)
    assert usual <= peak(
        replace(run, training=replace(run.training, optimizer_state="carry")), LARGE, store
    )
    assert peak(replace(run, runner="in-turn"), LARGE, store) <= usual
    assert usual == peak(run, LARGE, store, base=100) - 100


def test_files_and_the_host_take_the_parameters_out_of_memory() -> None:
    wide = config("graphsage", (400, 400), 4)
    memory = peaks(wide)
    files = peaks(wide, SIZES, "disk")
    theta = plan(wide).theta
    assert memory["cpu"] - files["cpu"] >= 3 * theta
    assert files[DISK] >= 2 * theta + sum(sub.slice for sub in RunShape(wide, SIZES).subs)
    half = replace(wide, store_precision="bf16")
    assert peaks(half, SIZES, "disk")[DISK] < files[DISK]
    assert plan(half, SIZES, "disk").theta == theta // 2
    wide = replace(wide, device="cuda")
    memory, host = (peaks(wide, SIZES, store, gpu=2**40) for store in ("memory", "host"))
    # The model is on the GPU while it is scored.
    assert host["cuda"] < memory["cuda"] - 2 * theta
    assert host["cpu"] > memory["cpu"]


def test_the_evaluation_is_chosen_by_the_memory() -> None:
    wide = config("graphsage", (512, 512), sampler=ClusterSampling(100, 5))
    ample = option(wide, LARGE)
    tight = option(wide, LARGE, host=2**30)
    parts = option(replace(wide, evaluation=Evaluation("parts", parts=100)), LARGE)
    assert ample.memory.scoring.method == "whole"
    for cheaper, method in ((tight, "layers"), (parts, "parts")):
        assert cheaper.memory.scoring.method == method
        assert cheaper.memory.scoring.memory < ample.memory.scoring.memory


@settings(max_examples=5, deadline=None)
@given(
    m=st.sampled_from([1, 2, 4]),
    epochs=st.integers(1, 20),
    evaluate_every=st.integers(1, 3),
    training=st.sampled_from(["split", "each"]),
)
def test_rounds_and_evaluations_are_a_run_s(
    m: int, epochs: int, evaluate_every: int, training: str
) -> None:
    run = config(
        "graphsage",
        (16, 16),
        m,
        training={"epochs": epochs, "evaluate_every": evaluate_every, "training": training},
    )
    result = run.fit(run.trainer(F, C), GRAPH, progress=False)
    estimate = option(run).as_dict()
    assert estimate["rounds"] == result.progress.rounds
    assert estimate["evaluations"] == len(result.progress.history)


def test_estimated_times_add_up_and_are_longer_for_wider_models() -> None:
    run = config("graphsage", (64, 64), training={"epochs": 12})
    before = torch.random.get_rng_state()
    training = run.training

    def with_epochs(m: int) -> RunConfig:
        return replace(run, sub_gcns=m, training=replace(training, epochs=12 * m))

    options = make_plan(with_epochs, SIZES, AMPLE, [1, 4], ["memory"]).as_dict()["options"]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [option_of_m["epochs"] for option_of_m in options] == [12, 48]
    for option_of_m in options:
        seconds = option_of_m["seconds"]
        assert seconds is not None
        evaluating = option_of_m["evaluations"] * seconds["evaluation"]
        assert seconds["total"] == pytest.approx(
            option_of_m["epochs"] * seconds["epoch"] + evaluating
        )
        assert 0 < seconds["step"] < seconds["round"]
    sizes = replace(LARGE, nodes=5000, edges=50_000, train=2500)
    wide, narrow = (
        make_plan(config("gcn", (w, w)), sizes, AMPLE, [1, 4], ["memory"]).options
        for w in (256, 32)
    )
    for wide_option, narrow_option in zip(wide, narrow, strict=True):
        assert wide_option.seconds["total"] > narrow_option.seconds["total"]


def test_a_plan_in_which_nothing_fits_says_what_is_lacking() -> None:
    wide = config("graphsage", (1024, 1024), 4)
    tight = plan(wide, host=peak(wide) - 1)
    assert tight.choice is None
    assert tight.advice.startswith(
        "nothing fits: with the parameters in memory, m = 4 lacks memory; make --hidden"
    )


def test_the_refusal_says_when_it_does_not_fit_and_what_would() -> None:
    run = config("graphsage", (1024, 1024), 4)
    files = peaks(run, SIZES, "disk")
    most = peak(run)
    require_room(run, SIZES, replace(AMPLE, host=most))
    between = {"host": (files["cpu"] + most) // 2}
    scarce = {"host": most - 1}
    by_samples = ClusterSampling(10, 1, batches="independent")
    local = replace(run, method="local-sgd", sampler=by_samples)
    parts = replace(run, method="parts")
    none_fits = "no m and no store would fit; make --hidden smaller"
    for refused_run, resources, stores, messages in (
        (
            run,
            scarce,
            (["memory"],),
            ("m = 4 needs ", " of memory (while it ", ": --sub-gcns 8 would fit; --memory"),
        ),
        (
            replace(run, sub_gcns=32),
            {"host": most // 8},
            (["memory"],),
            ("m = 32 needs ", none_fits),
        ),
        (run, between, (), ("m = 4 needs ", ": --store disk would fit; --memory GIB")),
        (run, {"host": 2**17}, (), (none_fits,)),
        (
            replace(run, store="disk"),
            {"disk": files[DISK] // 8},
            (),
            ("m = 4 needs ", "of the disk", "--set store_prec"),
        ),
        (local, {"host": 50 * MIB}, (), ("local-sgd, m = 4, needs ", ": make --hidden smaller")),
        (parts, scarce, (["memory"],), ("parts, m = 4, needs ", "--sub-gcns 8 would fit")),
    ):
        with refused(*messages):
            require_room(refused_run, SIZES, replace(AMPLE, **resources), *stores)


@pytest.mark.parametrize("method", ["gist", "parts", "ensemble", "local-sgd"])
def test_the_store_is_the_first_that_fits(method: str) -> None:
    run = config(
        "graphsage",
        (1024, 1024),
        8,
        method=method,
        sampler=ClusterSampling(10, 1, batches="independent"),
    )
    fastest, files = (peak(as_gist(run), SIZES, store) for store in ("memory", "disk"))
    between = replace(AMPLE, host=(fastest + files) // 2)
    assert chosen_store(run, SIZES, AMPLE) == "memory"
    assert chosen_store(run, SIZES, between) == ("memory" if method == "ensemble" else "disk")


def test_a_budget_is_planned_as_its_narrowest_part() -> None:
    run = config(
        "graphsage", (1024, 512), training={"epochs": None, "local_steps": None, "budget": 60.0}
    )
    assert as_gist(run).model.hidden == (256, 128)
    assert as_gist(run).training.budget is None
    least = peak(as_gist(run))
    require_room(run, SIZES, replace(AMPLE, host=least))
    with refused("m = 1 needs "):
        require_room(run, SIZES, replace(AMPLE, host=least - 1))


def test_a_model_of_the_users_own_is_planned_and_not_refused() -> None:
    run = replace(config(), model=ModelConfig("tests.estimate.test_estimate:own_model", (64, 64)))
    assert peak(run) > plan(run).theta
    require_room(run, SIZES, replace(AMPLE, host=1))


def own_model(features: int, hidden: tuple[int, ...], classes: int) -> nn.Module:
    return Stack(hidden, SAGEConv, features)


def process_peak(*command: object) -> int:
    """Run gistgnn in a process of its own; return the most anonymous memory that it holds."""
    with subprocess.Popen(
        [sys.executable, "-m", "gistgnn", *map(str, command)], stderr=subprocess.DEVNULL
    ) as process:
        most = 0
        while process.poll() is None:
            most = max(most, held_bytes(process.pid))
            time.sleep(0.005)
    assert process.returncode == 0
    return most


def check_peak(out: Path, *line: object) -> int:
    """Compare the planned peak with that of a run in a process of its own; return the latter."""
    words = ["plan", *map(str, line), "--no-measure", "--store", "memory", "--json"]
    completed = subprocess.run(
        [sys.executable, "-m", "gistgnn", *words], capture_output=True, text=True, check=True
    )
    planned = json.loads(completed.stdout)["options"][0]["peaks"]["cpu"]
    most = process_peak("train", *line, "--out", out)
    assert 0.75 < planned / most < 1.3, (planned / MIB, most / MIB)
    return most


@pytest.mark.skipif(sys.platform != "linux", reason="measured by Linux's /proc")
def test_the_peak_is_that_of_a_process(tmp_path: Path) -> None:
    model = ("--model", "graphsage", "--hidden", 1024, 1024, "--sub-gcns", 2)
    check_peak(
        tmp_path / "digits", "--dataset", "digits", *model, "--epochs", 4, "--local-steps", 2
    )


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="measured by Linux's /proc")
def test_the_peak_of_a_folder_is_that_of_a_process_and_keeps_to_its_limit(
    folder: Path, tmp_path: Path
) -> None:
    model = ("--hidden", 64, "--sub-gcns", 2)
    training = ("--epochs", 1, "--local-steps", 2)
    sampler = ("--sampler", "clusters", "--clusters", 60, "--clusters-per-batch", 6)
    line = ("--dataset", folder, *model, *training, *sampler, "--memory", 0.75)
    # A torch with CUDA takes 0.4 of these 0.75 GiB.
    assert check_peak(tmp_path / "folder", *line) < 0.75 * 2**30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of clusters of a graph of 50 MB."""
    folder_path = tmp_path_factory.mktemp("stored") / "graph"
    x = np.random.default_rng(0).normal(size=(100_000, 128))
    make_clustered(some_graph(100_000, 600_000, x=x), 60, folder_path)
    return folder_path


def test_a_folder_is_evaluated_by_layers_and_takes_less_memory(folder: Path) -> None:
    sizes = GraphSizes.of_graph(load(str(folder)))
    sampler = ClusterSampling(60, 6)
    run = config("graphsage", (64,), sampler=sampler)
    stored = option(run, sizes)
    inside = option(run, replace(sizes, folder=replace(sizes.folder, stored=0)))
    assert sizes.stored > 4 * sizes.nodes * sizes.features
    assert stored.memory.scoring.method == "layers"
    assert stored.memory.peaks["cpu"] < inside.memory.peaks["cpu"]
    with refused("m = 2 needs ", "make --clusters-per-batch smaller"):
        require_room(
            replace(run, sampler=ClusterSampling(60, 60)), sizes, replace(AMPLE, host=10 * MIB)
        )


@pytest.mark.parametrize(
    ("nodes", "degree", "clusters", "per_batch", "inside", "alone"),
    [
        (10_000, 100, 50, 5, 0.6, False),
        (10_000, 100, 50, 5, 0.0, False),
        (20_000, 50, 50, 25, 0.9, True),
        (10_000, 5, 50, 50, 0.5, False),
        (10_000, 1, 50, 50, 0.5, False),
    ],
)
def test_the_edges_of_a_batch_on_a_gpu_take_what_is_planned(
    nodes: int, degree: int, clusters: int, per_batch: int, inside: float, alone: bool
) -> None:
    """The same operations run on the CPU, on a share of edges ``inside`` clusters."""
    rng = np.random.default_rng(0)
    cluster_size = nodes // clusters
    target = np.sort(rng.integers(nodes, size=nodes * degree))
    neighbour = target // cluster_size * cluster_size + rng.integers(cluster_size, size=len(target))
    is_inside = rng.random(len(target)) < inside
    source = np.where(is_inside, neighbour, rng.integers(nodes, size=len(target)))
    first_nodes = np.arange(clusters + 1) * cluster_size
    edges = EdgesOnGPU.of(
        np.searchsorted(target, np.arange(nodes + 1)).astype(np.int32),
        source.astype(np.int32),
        first_nodes,
        np.arange(clusters, dtype=np.int32).repeat(cluster_size),
        torch.device("cpu"),
    )
    group = np.sort(rng.permutation(clusters)[:per_batch])
    with PeakBytes() as counted:
        batch, _ = edges.induced(group, alone=alone)
    into_batch = sum(stop - start for start, stop in edges.cuts(group))
    planned = induced_bytes(per_batch * cluster_size, into_batch, batch.num_edges)
    assert 0.75 < planned / counted.peak < 1.3, (planned, counted.peak)


def test_making_a_batch_counts_where_a_gpu_does_it() -> None:
    """Where little but the edges of batches fills the memory, they decide the peak."""
    dense = replace(LARGE, edges=10**8, features=2)
    sampler = ClusterSampling(10, 5, precompute=False)
    evaluation = Evaluation("parts", parts=1000, sample=1)
    run = config("graphsage", (8,), sampler=sampler, evaluation=evaluation)
    on_gpu = peaks(replace(run, device="cuda"), dense, gpu=2**50)["cuda"]
    into_batch = dense.edges // 2
    assert on_gpu > 41 * into_batch
    assert peak(run, dense) < on_gpu - 30 * into_batch


def test_the_product_of_the_whole_graph_counts_where_batches_use_it() -> None:
    """An evaluation by parts has none of its own."""
    dense = replace(LARGE, edges=10**8, features=2)
    run = config("gcn", (8,), evaluation=Evaluation("parts", parts=1000, sample=1))
    with_product, without = (
        peak(replace(run, sampler=ClusterSampling(1000, 1, precompute=precompute)), dense)
        for precompute in (True, False)
    )
    assert with_product > without + 30 * dense.edges


@pytest.mark.parametrize(
    "changes",
    [{"classes": 1}, {"edges": 1}, {"nodes": 3, "edges": 2, "train": 1}],
    ids=["a regression of one number", "one edge", "three nodes"],
)
def test_small_graphs_and_regressions_are_timed(changes: dict[str, int]) -> None:
    sizes = replace(SIZES, **changes)
    timed = make_plan(config(m=1), sizes, AMPLE, [1], ["memory"]).options[0]
    assert timed.total > 0


def test_what_the_user_has_silenced_stays_silent() -> None:
    former = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        make_plan(config(m=1), SIZES, AMPLE, [1], ["memory"])
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(former)
