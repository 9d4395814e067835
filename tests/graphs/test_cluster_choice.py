"""The sampler, the number of clusters and of those in a batch are chosen for the graph at hand."""

import math
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn.graphs.clustering import ENOUGH, entropy_share
from gistgnn.sampling import AutoSampling, Batch, ClusterSampling, chosen_sampling
from gistgnn.storage.record import BatchFacts
from tests.helpers.logs import logged

NODES = 4000
CLASSES = 100
IN_ORDER = torch.arange(NODES) * CLASSES // NODES  # neighbours share their class
ANY = torch.randint(CLASSES, (NODES,), generator=torch.Generator().manual_seed(0))


def facts(y: Tensor, ptr: Tensor | None = None, **options: Any) -> BatchFacts:
    chosen = ClusterSampling(**options).sampler(ring(y, ptr), 0).facts
    assert chosen is not None
    return chosen


def ring(y: Tensor, ptr: Tensor | None = None) -> Batch:
    """A path over the nodes, in both directions."""
    n = len(y)
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return Batch(
        torch.zeros(n, 1), torch.cat([edges, edges.flip(0)], 1), y, torch.arange(n), cluster_ptr=ptr
    )


def test_the_clusters_are_as_fine_as_the_classes_need() -> None:
    random_labels = facts(ANY)
    assert (random_labels.clusters, random_labels.clusters_per_batch) == (20, 10)
    chosen = facts(IN_ORDER)
    coarse = facts(IN_ORDER, clusters=20, clusters_per_batch=10)
    assert chosen.clusters > 60
    assert chosen.clusters_per_batch == round(chosen.clusters / 2)
    assert coarse.label_entropy is not None
    assert chosen.label_entropy is not None
    assert coarse.label_entropy < ENOUGH
    assert coarse.label_entropy + 0.05 < chosen.label_entropy


def test_more_of_given_clusters_make_a_batch() -> None:
    ptr = torch.arange(0, NODES + 1, 40)  # one for each class
    assert facts(ANY, clusters=100).clusters_per_batch == 50
    for batches in (facts(IN_ORDER, ptr), facts(IN_ORDER, ptr, clusters=100)):
        assert batches.clusters_per_batch == 100
        assert batches.label_entropy == pytest.approx(1)


def test_a_poor_choice_of_the_users_gets_one_note() -> None:
    of_folder = {"ptr": torch.arange(0, NODES + 1, 200)}
    for y, options, parts in (
        (ANY, {"clusters": 20, "clusters_per_batch": 5}, ()),
        (
            IN_ORDER,
            {"clusters": 20, "clusters_per_batch": 1},
            ("a batch of 1 of the 20 clusters", "leave clusters and "),
        ),
        (IN_ORDER, {**of_folder, "clusters_per_batch": 2}, ("gistgnn partition --clusters 200",)),
    ):
        with logged() as notes:
            facts(y, **options)
        few = [note for note in notes if "few classes" in note]
        assert len(few) == bool(parts)
        assert all(part in few[0] for part in parts)


def test_the_entropy_of_batches_is_a_share_of_that_of_random_nodes() -> None:
    train = torch.arange(NODES)
    blocks = torch.arange(NODES) * 10 // NODES  # with ten classes in each
    assert entropy_share(IN_ORDER, train, blocks, 10, 0) == pytest.approx(1)
    share = entropy_share(IN_ORDER, train, blocks, 1, 0)
    # The tolerance is for the few classes that 400 random nodes miss.
    assert share == pytest.approx(math.log(10) / math.log(100), rel=0.03)
    several = torch.nn.functional.one_hot(IN_ORDER).float()
    assert entropy_share(several, train, blocks, 1, 0) == pytest.approx(share)
    assert entropy_share(IN_ORDER.float(), train, blocks, 1, 0) is None  # a regression
    two_targets = torch.stack([IN_ORDER, IN_ORDER % 2], dim=1).float()
    assert entropy_share(two_targets, train, blocks, 1, 0) is None
    assert entropy_share(IN_ORDER * 0, train, blocks, 1, 0) is None  # one class


def test_large_graphs_and_independent_workers_train_by_clusters() -> None:
    assert chosen_sampling(AutoSampling(), 2_000) is None
    assert chosen_sampling(AutoSampling(), 2_001) == ClusterSampling()
    assert chosen_sampling(AutoSampling(batches="independent"), 100) == ClusterSampling(
        batches="independent"
    )
    assert chosen_sampling(None, 10**6) is None
    # A loop by hand draws its batches so.
    with closing(AutoSampling().sampler(ring(ANY[:90]), 0).batches(0, 2)) as batches:
        assert [len(batch.x) for batch in batches] == [90, 90]
