"""The samplers by name; a new sampler is a file and a line here.

Importing this module does not import torch.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from gistgnn.errors import InputError
from gistgnn.utils.checks import shown
from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.sampling.sampler import Sampling

SamplerName = Literal[
    "full",
    "auto",
    "clusters",
    "ladies",
    "fastgcn",
    "neighbor",
    "saint-node",
    "saint-edge",
    "saint-rw",
]
AUTO = "auto"
FULL = "full"  # every step sees the whole graph; it has no settings
LOADER = "loader"  # an object of the user's own; it has no name on the command line
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


def named_sampling(sampling: "Sampling | str | Iterable[Any] | None") -> "Sampling | None":
    """Return the settings of a sampler.

    It is given by its name, as settings, or as a loader of batches.
    """
    if isinstance(sampling, str) and (sampling == FULL or sampling in SAMPLERS):
        return None if sampling == FULL else SAMPLERS[sampling]()
    if sampling is None:
        return None
    if not isinstance(sampling, (str, type)):
        from gistgnn.sampling.loaders import FromLoader
        from gistgnn.sampling.sampler import Sampling

        if isinstance(sampling, Sampling):
            return sampling
        if isinstance(sampling, Iterable):
            return FromLoader(sampling)
    names = ", ".join((FULL, *SAMPLERS))
    alternatives = "settings such as ClusterSampling(clusters=50), or a loader of batches"
    raise InputError(f"sampler is {shown(sampling)}, expected one of {names}, {alternatives}")


def describe(sampling: "Sampling | None") -> dict[str, Any] | None:
    """Return what result.json and checkpoints hold of a sampler's settings."""
    return None if sampling is None else sampling.as_dict()


def from_description(fields: dict[str, Any] | None) -> "Sampling | None":
    """Return the settings that `describe` has described."""
    if fields is None:
        return None
    settings = dict(fields)
    name = settings.pop("name")
    if name == LOADER:
        kind = settings["class"]
        raise InputError(
            f"the batches were those of a {kind}, a Python object: give it to GIST.fit"
        )
    return SAMPLERS[name](**settings)
