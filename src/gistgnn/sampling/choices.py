"""The ways to make batches, by their names, and how result.json holds them."""

from dataclasses import asdict
from typing import Any

from gistgnn.sampling.clusters import ClusterSampling
from gistgnn.sampling.drawn import Sampling
from gistgnn.sampling.fastgcn import FastGCNSampling
from gistgnn.sampling.ladies import LadiesSampling
from gistgnn.sampling.neighbor import NeighborSampling
from gistgnn.sampling.saint import SaintEdgeSampling, SaintNodeSampling, SaintWalkSampling

SAMPLINGS: dict[str, type[Sampling]] = {
    each.name: each
    for each in (
        ClusterSampling,
        LadiesSampling,
        FastGCNSampling,
        NeighborSampling,
        SaintNodeSampling,
        SaintEdgeSampling,
        SaintWalkSampling,
    )
}
"""The ways to make batches, but for the whole graph, by their names on the command line."""


def describe(sampling: Sampling | None) -> dict[str, Any] | None:
    """What result.json and checkpoints hold of a way to make batches."""
    return None if sampling is None else {"name": sampling.name, **asdict(sampling)}


def described(fields: dict[str, Any] | None) -> Sampling | None:
    """The way to make batches that `describe` has described; older descriptions are of clusters, without a name."""
    if fields is None:
        return None
    given = dict(fields)
    return SAMPLINGS[given.pop("name", ClusterSampling.name)](**given)
