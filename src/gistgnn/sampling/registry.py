"""The samplers by name. Importing this module does not import torch; a new sampler is a file and a line here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.sampling.sampler import Sampling

FULL = "full"  # every step sees the whole graph; it has no settings
SAMPLERS: Registry[type[Sampling]] = Registry(
    {
        "clusters": "gistgnn.sampling.clusters:ClusterSampling",
        "ladies": "gistgnn.sampling.ladies_fastgcn:LadiesSampling",
        "fastgcn": "gistgnn.sampling.ladies_fastgcn:FastGCNSampling",
        "neighbor": "gistgnn.sampling.neighbor:NeighborSampling",
        "saint-node": "gistgnn.sampling.saint:SaintNodeSampling",
        "saint-edge": "gistgnn.sampling.saint:SaintEdgeSampling",
        "saint-rw": "gistgnn.sampling.saint:SaintWalkSampling",
    }
)
"""The classes of the samplers' settings, by the name on the command line."""


def describe(sampling: Sampling | None) -> dict[str, Any] | None:
    """Return what result.json and checkpoints hold of a sampler's settings."""
    return None if sampling is None else {"name": sampling.name, **asdict(sampling)}


def from_description(fields: dict[str, Any] | None) -> Sampling | None:
    """Return the settings that `describe` has described; older descriptions are of clusters and have no name."""
    if fields is None:
        return None
    settings = dict(fields)
    return SAMPLERS[settings.pop("name", "clusters")](**settings)
