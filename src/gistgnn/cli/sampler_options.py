"""The sampler that the options of `gistgnn.cli.training_options` describe."""

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.sampling import Sampling


def sampler_of(args: argparse.Namespace) -> "Sampling | None":
    """Return the sampler that the options describe; None: every step sees the whole graph.

    The number of clusters is that of the graph's folder, unless it is given.

    Raises:
        InputError: an option of another sampler, or a setting that is missing or out of range.
    """
    from gistgnn.graphs import clusters_of
    from gistgnn.sampling import SAMPLERS

    settings = {name: [field.name for field in fields(kind)] for name, kind in SAMPLERS.items()}
    values = {}
    for name in dict.fromkeys(name for names in settings.values() for name in names):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in settings.get(args.sampler, []):
            samplers = " or ".join(sampler for sampler, names in settings.items() if name in names)
            option = {"method": "cluster_method", "fanouts": "fanout"}.get(name, name)
            raise InputError(f"{option} is given, but the sampler is {args.sampler}: add --sampler {samplers}")
        values[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
    if args.sampler == "clusters" and args.clusters is None:
        if (there := clusters_of(args.dataset)) is None:
            raise InputError("the sampler is clusters, but not how many: add --clusters, such as --clusters 50")
        values = {"clusters_per_batch": min(10, there), **values, "clusters": there}
    return SAMPLERS[args.sampler](**values) if args.sampler != "full" else None
