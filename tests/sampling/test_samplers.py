"""What holds for every sampler: seeds and steps, sub-GCNs, columns, refused settings, and unbiased sums."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gistgnn import sampling as kinds
from gistgnn.sampling import Batch, Sampling, whole_graph
from gistgnn.sampling.registry import SAMPLERS as SAMPLERS_BY_NAME
from gistgnn.sampling.sampler import RandomBatches
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused
from tests.sampling import reference
from tests.sampling.reference import SAMPLERS, converges, features, layers_of, nodes_of, random_graph

WHOLE = whole_graph(tiny_graph(60))
each_sampling = pytest.mark.parametrize("sampling", SAMPLERS.values(), ids=SAMPLERS)


def content(batch: Batch) -> list[object]:
    """All that a batch holds, to compare."""
    found = [batch.x, batch.y, batch.loss_nodes]
    for layer in layers_of(batch):
        found += [layer.pattern.rowptr, layer.pattern.col, getattr(layer, "weight", None)]
    return [None if tensor is None else tensor.tolist() for tensor in found]


def listed(sampler: RandomBatches, first: int, steps: int) -> list[list[object]]:
    with closing(sampler.batches(first, steps)) as batches:
        return [content(batch) for batch in batches]


@each_sampling
def test_a_batch_follows_from_seed_and_step_alone(sampling: Sampling) -> None:
    sampler, again = (sampling.sampler(WHOLE, 4, layers=2) for _ in range(2))
    expected = listed(sampler, 0, 6)
    with closing(again.batches(0, 100)) as left_early:
        next(left_early)
    torch.manual_seed(5)
    assert listed(again, 4, 2) + [one for step in range(4) for one in listed(again, step, 1)] == (
        expected[4:] + expected[:4]
    )
    assert listed(again, 2, 0) == []
    assert len({str(one) for one in expected}) == 6  # also across epochs
    assert listed(sampling.sampler(WHOLE, 5, layers=2), 0, 6) != expected


@each_sampling
def test_sub_gcns_share_their_batches_or_not_and_may_have_some_columns(sampling: Sampling) -> None:
    shared = sampling.sampler(WHOLE, 0, layers=2)
    assert shared.for_sub_gcn(1) is shared
    own, columns = replace(sampling, batches="independent").sampler(WHOLE, 0, layers=2), torch.tensor([4, 1])
    first, second = (listed(own.for_sub_gcn(i), 0, 3) for i in (1, 2))
    assert first != second
    assert first == listed(own.for_sub_gcn(1), 0, 1) + listed(own.for_sub_gcn(1), 1, 2)
    own = own.for_sub_gcn(2)
    for some, whole in zip(own.select_columns(columns).batches(0, 3), own.batches(0, 3), strict=True):
        assert torch.equal(some.x, whole.x[:, columns])
        assert content(some)[1:] == content(whole)[1:]


@pytest.mark.parametrize(
    ("sampling", "options", "said"),
    [
        (kinds.ClusterSampling, {"clusters": 5, "clusters_per_batch": 11}, "clusters_per_batch is 11, more than the 5"),
        (kinds.ClusterSampling, {"clusters": 0}, "clusters is 0"),
        (kinds.ClusterSampling, {"clusters": 10, "clusters_per_batch": 0}, "clusters_per_batch is 0"),
        (kinds.ClusterSampling, {"clusters": 10, "method": "best"}, "expected one of metis, stream, random"),
        (kinds.ClusterSampling, {"clusters": 10, "batches": "own"}, "expected one of shared, independent"),
        (kinds.ClusterSampling, {"clusters": 40, "precompute": "shared"}, "precompute is 'shared'"),
        (kinds.LadiesSampling, {"batch_size": 0}, "batch_size is 0"),
        (kinds.LadiesSampling, {"nodes_per_layer": 0}, "nodes_per_layer is 0"),
        (kinds.LadiesSampling, {"nodes_per_layer": (5, True)}, "nodes_per_layer is True"),
        (kinds.LadiesSampling, {"row_normalise": 1}, "row_normalise is 1"),
        (kinds.FastGCNSampling, {"row_normalise": float("-inf")}, "row_normalise is -inf"),
        (kinds.FastGCNSampling, {"nodes_per_layer": ()}, "nodes_per_layer is ()"),
        (kinds.NeighborSampling, {"fanouts": (10, -2)}, "fanouts is -2"),
        (kinds.NeighborSampling, {"fanouts": 0}, "fanouts is 0"),
        (kinds.NeighborSampling, {"batch_size": 2.5}, "batch_size is 2.5"),
        (kinds.SaintEdgeSampling, {"batch_size": "many"}, "batch_size is 'many'"),
        (kinds.SaintWalkSampling, {"walk_length": 0}, "walk_length is 0"),
        (kinds.SaintWalkSampling, {"sample_coverage": -1}, "sample_coverage is -1"),
    ],
)
def test_bad_settings(sampling: type[Sampling], options: dict[str, object], said: str) -> None:
    with refused(said, "expected"):
        sampling(**options)  # type: ignore[arg-type]


SPARSE, DENSE, DIRECTED = random_graph(30, 60), random_graph(30, 90), random_graph(30, 120, both_ways=False)
FOUR, HALF = torch.tensor([2, 7, 11, 20]), torch.arange(0, 30, 2)
CASES: dict[str, tuple[Sampling, Batch, Tensor]] = {
    "ladies": (kinds.LadiesSampling(nodes_per_layer=(8,), row_normalise=False), DENSE, FOUR),
    "fastgcn": (kinds.FastGCNSampling(nodes_per_layer=(8,), row_normalise=False), DENSE, FOUR),
    "neighbor": (kinds.NeighborSampling((2,), batch_size=30), DIRECTED, torch.arange(30)),
    "saint-node": (kinds.SaintNodeSampling(batch_size=12), SPARSE, HALF),
    "saint-edge": (kinds.SaintEdgeSampling(batch_size=7), SPARSE, HALF),
    "saint-rw": (kinds.SaintWalkSampling(batch_size=5, walk_length=2, sample_coverage=20_000), SPARSE, HALF),
}


@pytest.mark.parametrize("operator", ["gcn", "mean"])
@pytest.mark.parametrize("name", CASES)
def test_sums_at_the_outputs_are_unbiased(name: str, operator: str) -> None:
    sampling, graph, outputs = CASES[name]
    a = reference.adjacency(graph)
    exact = torch.tensor(reference.laplacian(a) if operator == "gcn" else reference.mean(a)).double()
    x, whole = features(graph.x), Batch(graph.x, graph.edges, graph.y, outputs, sparse=False)

    def samples() -> Iterator[tuple[Tensor, Tensor]]:
        with closing(sampling.sampler(whole, 3).batches(0, 10**6)) as batches:
            for batch in batches:
                nodes = nodes_of(batch)
                sums = getattr(batch.adj, operator).to_dense().double() @ x[nodes]
                rows, there = torch.zeros(30, 8, dtype=torch.float64), torch.zeros(30, 1)
                rows[nodes[: len(sums)]], there[nodes[: len(sums)]] = sums, 1
                yield rows[outputs], there[outputs]

    converges(samples(), (exact @ x)[outputs], at=(200, 1600))


def test_the_registry_is_read_without_torch() -> None:
    code = "import sys, gistgnn.sampling.registry; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_settings_class_is_registered_by_its_name() -> None:
    assert {SAMPLERS_BY_NAME[name].name for name in SAMPLERS_BY_NAME} == {*SAMPLERS_BY_NAME}
    assert {type(sampling) for sampling in SAMPLERS.values()} == {SAMPLERS_BY_NAME[name] for name in SAMPLERS_BY_NAME}
