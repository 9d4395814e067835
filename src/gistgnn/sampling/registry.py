"""The samplers by name. Importing this module does not import torch; a new sampler is a file and a line here."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gistgnn.sampling.sampler import Sampling

FULL = "full"  # every step sees the whole graph; it has no settings
SAMPLERS = {
    "clusters": "clusters:ClusterSampling",
    "ladies": "ladies_fastgcn:LadiesSampling",
    "fastgcn": "ladies_fastgcn:FastGCNSampling",
    "neighbor": "neighbor:NeighborSampling",
    "saint-node": "saint:SaintNodeSampling",
    "saint-edge": "saint:SaintEdgeSampling",
    "saint-rw": "saint:SaintWalkSampling",
}
"""Where the class of each sampler's settings is, by the name on the command line: "module:Class"."""


def sampling_class(name: str) -> type[Sampling]:
    """Import and return the class of a sampler's settings; ``name`` is a key of `SAMPLERS`."""
    module, found = SAMPLERS[name].split(":")
    return getattr(importlib.import_module(f"gistgnn.sampling.{module}"), found)


def describe(sampling: Sampling | None) -> dict[str, Any] | None:
    """Return what result.json and checkpoints hold of a sampler's settings."""
    return None if sampling is None else {"name": sampling.name, **asdict(sampling)}


def from_description(fields: dict[str, Any] | None) -> Sampling | None:
    """Return the settings that `describe` has described; older descriptions are of clusters and have no name."""
    if fields is None:
        return None
    settings = dict(fields)
    return sampling_class(settings.pop("name", "clusters"))(**settings)
