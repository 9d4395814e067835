"""What a rehearsal finds is what real runs have."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.evaluation import Evaluation
from gistgnn.graphs import DATASETS, Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.planning.ledger import rehearsing
from gistgnn.planning.rates import flops, sparse_flops
from gistgnn.planning.rehearsal import Rehearsal
from gistgnn.planning.rehearsal import rehearse as rehearse_phases
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling, expected_batch
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.settings import Training
from gistgnn.theta.memory import InMemory
from tests.helpers.refusals import refused

F, C, N = 7, 3, 30
FLOAT = 4


def graph() -> Graph:
    rng = torch.Generator().manual_seed(0)
    nodes = torch.arange(N)
    return Graph.build(
        torch.randn(N, F, generator=rng),
        torch.randint(N, (2, 90), generator=rng),
        nodes % C,
        train=nodes < 10,
        val=(nodes >= 10) & (nodes < 20),
        test=nodes >= 20,
    )


GRAPH = graph()
SIZES = GraphSizes.of_graph(GRAPH)


def config(name: str = "gcn", hidden: tuple[int, ...] = (8, 8), m: int = 2, **options: Any) -> RunConfig:
    training = Training(**{"epochs": 4, "local_steps": 2, **options.pop("training", {})})
    model = ModelConfig(name, hidden, norm=options.pop("norm", "none"), heads=2)
    return RunConfig("own", model=model, sub_gcns=m, training=training, **options)


def rehearse(*run: Any, **limits: Any) -> Rehearsal:
    [found] = rehearse_phases(*run, **limits)
    return found


def held(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def activations(found: Rehearsal) -> int:
    return found.step.top - found.step.after


def products(found: Rehearsal) -> int:
    sparse = sum(sparse_flops(shape) * times for shape, times in found.step.sparse.items())
    return sparse + sum(flops(shape) * times for shape, times in found.step.products.items())


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(["gcn", "graphsage", "gat"]),
    st.lists(st.integers(4, 11), min_size=1, max_size=2),
    st.integers(1, 4),
    st.sampled_from(["none", "batch"]),
    st.sampled_from([None, (0,), (1,)]),
)
def test_sizes_are_those_of_real_sub_gcns(
    name: str, hidden: list[int], m: int, norm: str, partitioned: tuple[int, ...] | None
) -> None:
    run = config(name, tuple(hidden), m, norm=norm, partitioned=partitioned)
    found, gist = rehearse(run, SIZES), run.trainer(GRAPH.num_features, GRAPH.num_classes)
    subs = list(gist.begin_round())
    assert isinstance(gist.theta, InMemory)
    assert found.theta == held(gist.theta.tensors.values())
    assert found.full == sum(p.numel() for p in gist.model().parameters())
    assert found.parameters == [sum(p.numel() for p in sub.parameters()) for sub in subs]
    assert found.slices == [held(sub.state_dict().values()) for sub in subs]


@pytest.mark.parametrize("m", [1, 2, 5])
def test_slices_add_up_to_all_but_what_every_sub_gcn_holds(m: int) -> None:
    found = rehearse(config(hidden=(10,), m=m), SIZES)
    assert sum(found.slices) == found.theta + (m - 1) * C * FLOAT  # the output's bias is in each


@pytest.mark.parametrize(
    ("training", "moments"), [({}, 2), ({"optimizer": "sgd"}, 0), ({"optimizer": "sgd", "momentum": 0.9}, 1)]
)
def test_gradients_and_moments_are_counted(training: dict[str, Any], moments: int) -> None:
    found = rehearse(config(training=training), SIZES)
    counters = 4 * FLOAT * (moments == 2)  # Adam counts the steps of each of four... parameters
    assert found.training - (2 + moments) * found.slices[0] in (0, counters, 6 * FLOAT)
    assert found.carried == [0, 0]
    carried = rehearse(config(training={**training, "optimizer_state": "carry"}), SIZES)
    assert carried.carried[0] == found.training - 2 * found.slices[0]
    kept = rehearse(config(training={**training, "redraw_every": 2}), SIZES)
    assert kept.carried == carried.carried
    assert kept.peak("cpu") == carried.peak("cpu")


def test_files_take_the_parameters_out_of_memory() -> None:
    wide = config("graphsage", (1024, 1024), 4)
    memory, mapped = (rehearse(wide, SIZES, store) for store in ("memory", "disk"))
    saved = memory.peak("cpu") - mapped.peak("cpu")
    others = sum(memory.slices[1:]) * 2  # with their gradients
    assert saved > memory.theta + others
    assert memory.peak("disk") == 3 * 2 * memory.theta  # of three checkpoints, with the best
    best = mapped.theta * 2  # and the one before
    assert mapped.stages["aggregation"]["disk"] >= mapped.theta + sum(mapped.slices)
    assert mapped.peak("disk") >= mapped.theta + best
    assert memory.slices == mapped.slices
    with refused("store is 'tape', expected one of memory, host, disk, sharded"):
        rehearse(wide, SIZES, "tape")


def test_the_runners_are_told_apart() -> None:
    in_turn, fused, auto = (
        rehearse(config(hidden=(512,), m=4, runner=name), SIZES) for name in ("in-turn", "fused", "auto")
    )
    assert [(found.fused, found.together) for found in (in_turn, fused, auto)] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert 3.5 < activations(fused) / activations(in_turn) < 5
    assert 3.9 < products(fused) / products(in_turn) < 4.1
    assert products(auto) == products(fused)
    assert auto.peak("cpu") < fused.peak("cpu")
    assert not rehearse(config(m=2, runner="fused", partitioned=(0, 1)), SIZES).fused
    own = ClusterSampling(6, 2, "random", batches="independent")
    assert not rehearse(config(m=2, runner="fused", sampler=own), SIZES).fused


CLUSTERS = ClusterSampling(6, 2, "random")


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": CLUSTERS, "partitioned": (0, 1)},
        {"sampler": replace(CLUSTERS, precompute=False), "inductive": True, "standardise": True},
        {"runner": "fused", "norm": "batch", "training": {"precision": "bf16", "clip_norm": 1.0}},
        {"runner": "fused", "hidden": (9, 8), "training": {"optimizer_state": "carry"}},
        {"evaluation": Evaluation("parts", parts=5)},
        {"evaluation": Evaluation("layers"), "norm": "layer"},
        {"partition": "categorical", "hidden": (30,)},
    ],
    ids=lambda options: " ".join(options),
)
@pytest.mark.parametrize(("name", "nonzero"), [("graphsage", 1.0), ("gcn", 0.01)])
def test_every_kind_of_run_can_be_rehearsed(name: str, nonzero: float, options: dict[str, Any]) -> None:
    run, sizes = config(name, **options), replace(SIZES, nonzero=nonzero)
    memory, mapped = (rehearse(run, sizes, store) for store in ("memory", "disk"))
    assert memory.peak("cpu") > memory.theta + sum(memory.slices)
    assert mapped.peak("disk") >= 2 * mapped.theta
    assert memory.method == run.evaluation.method.replace("auto", "whole")
    assert products(memory) > 0


def test_clusters_take_less_than_the_whole_graph() -> None:
    large = replace(SIZES, nodes=200_000, edges=2_000_000, train=100_000)
    whole = rehearse(config(hidden=(64, 64)), large)
    part = rehearse(config(hidden=(64, 64), sampler=ClusterSampling(100, 5)), large)
    assert activations(part) < activations(whole) / 15
    inductive = rehearse(config(hidden=(64, 64), inductive=True), large)
    assert activations(whole) / 2.5 < activations(inductive) < activations(whole) / 1.5


def test_a_budget_is_asked_for_before_evaluation_is_chosen() -> None:
    large = replace(SIZES, nodes=200_000, edges=2_000_000)
    assert rehearse(config(), large).method == "whole"
    tight = rehearse(config(hidden=(512, 512)), large, limits={"cpu": 2**30})
    assert tight.method == "layers"
    assert tight.scoring.top - tight.scoring.before < 2**29


def test_batches_of_clusters() -> None:
    def batch(sampling: ClusterSampling | None) -> GraphSizes:
        return expected_batch(sampling, SIZES, 3).sizes(SIZES)

    every = batch(ClusterSampling(6, 6))
    assert (every.nodes, every.edges) == (SIZES.nodes, SIZES.edges)
    assert batch(None) == SIZES
    one = batch(ClusterSampling(5, 1))
    assert (one.nodes, one.edges) == (6, round(SIZES.edges / 5 * 0.6))
    assert batch(ClusterSampling(5, 1, "random")).edges == round(SIZES.edges / 25)


def test_published_sizes() -> None:
    sizes = GraphSizes.of_dataset(DATASETS["amazon2m"])
    assert (sizes.nodes, sizes.train, sizes.nonzero) == (2_449_029, 1_670_674, 1.0)
    assert sizes.training().nodes == 1_670_674
    assert GraphSizes.of_dataset(DATASETS["cora"]).nonzero < SPARSE_BELOW


STEPS = """
import torch
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain

def run(name, width, nodes):
    x, y = torch.empty(nodes, 16).fill_(1), torch.zeros(nodes, dtype=torch.int64)
    source = torch.arange(5 * nodes) % nodes
    batch = Batch(x, torch.stack([source, source.flip(0)]), y, torch.arange(nodes), sparse=False)
    model, training = MODELS[name](16, (width, width), 8, dropout=0.5, norm="layer"), Training(1)
    optimizer = training.make_optimizer(model.parameters())
    for _ in range(2):
        subtrain(model, optimizer, [batch], training, lambda _: 0.01)
"""

GROWTH = """
import ctypes, json, sys
from pathlib import Path
import psutil
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes

keep_freed_memory()
torch.set_num_threads(1)
grown = {}
for name, width in json.loads(sys.argv[1]).items():
    run(name, 4, 100)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    before = psutil.Process().memory_info().rss
    run(name, width, 20_000)
    grown[name] = peak_memory_bytes(torch.device("cpu")) - before
print(json.dumps(grown))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measured by Linux's /proc")
def test_steps_take_the_memory_that_is_counted() -> None:
    widths = {"gcn": 512, "graphsage": 512, "gat": 128}
    code: dict[str, Any] = {}
    exec(STEPS, code)
    line = [sys.executable, "-c", STEPS + GROWTH, json.dumps(widths)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    for name, measured in json.loads(done.stdout).items():
        with rehearsing() as ledger:
            code["run"](name, widths[name], 20_000)
        counted = ledger.account("cpu").peak
        assert 0.8 < counted / measured < 1.15, (name, counted / 2**20, measured / 2**20)
