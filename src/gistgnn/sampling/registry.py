"""The samplers by name. Importing this module does not import torch; a new sampler is a file and a line here."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from gistgnn.errors import InputError
from gistgnn.utils.checks import shown
from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.sampling.sampler import Sampling

SamplerName = Literal[
    "full", "auto", "clusters", "ladies", "fastgcn", "neighbor", "saint-node", "saint-edge", "saint-rw"
]
AUTO = "auto"
FULL = "full"  # every step sees the whole graph; it has no settings
SAMPLERS: "Registry[type[Sampling]]" = Registry(
    {
        "auto": "gistgnn.sampling.clusters:AutoSampling",
        "clusters": "gistgnn.sampling.clusters:ClusterSampling",
        "ladies": "gistgnn.sampling.ladies_fastgcn:LadiesSampling",
        "fastgcn": "gistgnn.sampling.ladies_fastgcn:FastGCNSampling",
        "neighbor": "gistgnn.sampling.layered:NeighborSampling",
        "saint-node": "gistgnn.sampling.saint:SaintNodeSampling",
        "saint-edge": "gistgnn.sampling.saint:SaintEdgeSampling",
        "saint-rw": "gistgnn.sampling.saint:SaintWalkSampling",
    }
)
"""The classes of the samplers' settings, by the name on the command line."""


def named_sampling(sampling: "Sampling | str | None") -> "Sampling | None":
    """Return the default settings of a sampler given by name, such as "clusters"; settings as they are."""
    if sampling is None or (not isinstance(sampling, str) and hasattr(type(sampling), "sampler")):
        return sampling
    if not isinstance(sampling, str) or (sampling != FULL and sampling not in SAMPLERS):
        said = f"sampler is {shown(sampling)}, expected one of {', '.join((FULL, *SAMPLERS))}, or settings such as"
        raise InputError(f"{said} ClusterSampling(clusters=50)")
    return None if sampling == FULL else SAMPLERS[sampling]()


def describe(sampling: "Sampling | None") -> dict[str, Any] | None:
    """Return what result.json and checkpoints hold of a sampler's settings."""
    return None if sampling is None else {"name": sampling.name, **asdict(sampling)}


def from_description(fields: dict[str, Any] | None) -> "Sampling | None":
    """Return the settings that `describe` has described."""
    if fields is None:
        return None
    settings = dict(fields)
    return SAMPLERS[settings.pop("name")](**settings)
