"""Chooses where Θ lies, and refuses a run that cannot fit."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

import torch

from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import STAGES, Memory
from gistgnn.estimate.plan import LACKING, PLANNED, SUB_GCNS
from gistgnn.estimate.resources import DISK, Resources
from gistgnn.estimate.shapes import RunShape
from gistgnn.fit.trials import even_parts
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling, chosen_sampling
from gistgnn.theta.registry import SHARES, STORES
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import peak_memory_bytes


def as_gist(config: RunConfig) -> RunConfig:
    """Return the run of GIST that takes as much memory as a run.

    For a run with a budget of time it is the narrowest one that may be chosen.
    """
    if config.training.budget:
        m = even_parts(config.model.hidden)[-1]
        narrow = replace(config.model, hidden=tuple(width // m for width in config.model.hidden))
        training = replace(config.training, budget=None, epochs=1)
        return replace(config, model=narrow, sub_gcns=1, training=training)
    if config.method == "data-parallel":
        return replace(config, sub_gcns=1, method="gist")
    if config.method == "local-sgd":
        return replace(config, partitioned=(), method="gist")
    # An upper bound for parts and for an ensemble, which train one narrow model at a time. On a
    # GPU, where GIST takes a step of all sub-GCNs at once, it may be far above what they take. With
    # Θ in files it is a little below: the trained parts of a rank wait in memory for the end.
    return replace(config, method="gist")


def _memory(config: RunConfig, sizes: GraphSizes, resources: Resources) -> Memory:
    return Memory(RunShape(config, sizes), config.store, resources)


def chosen_store(config: RunConfig, sizes: GraphSizes, resources: Resources) -> str:
    """Return the first place in which Θ fits by the plan.

    It is "memory" where no place has room for it, or the plan knows too little.
    """
    if config.store_precision != "float32":
        return DISK
    if config.method not in ("gist", "parts", "local-sgd") or config.model.own:
        return PLANNED[0]  # other methods hold all of it in memory
    run = RunShape(as_gist(config), sizes)
    for store in PLANNED:
        if Memory(run, store, resources).fits:
            return store
    return PLANNED[0]


def whole_model_fits(config: RunConfig, sizes: GraphSizes, resources: Resources) -> bool:
    """Tell whether the full model of a run of GIST would fit in memory in ordinary training.

    It is False where that is not known: for a model of the user's own.
    """
    if config.model.own:
        return False
    full = replace(config, sub_gcns=1, store="memory", store_precision="float32", share="whole")
    return _memory(full, sizes, resources).fits


def require_room(
    config: RunConfig, sizes: GraphSizes, resources: Resources, stores: Sequence[str] = PLANNED
) -> None:
    """Refuse a run that cannot fit, and say what would.

    A run of a model of the user's own is not refused: what it holds in a step is not known.

    Args:
        config: the run.
        sizes: of the graph.
        resources: what the run may take.
        stores: the places for Θ that may be named.

    Raises:
        InputError: the run does not fit.
    """
    if config.model.own:
        return
    run = as_gist(config)
    memory = _memory(run, sizes, resources)
    if memory.fits:
        return
    lacking = memory.lacking[0]
    m = f"m = {run.sub_gcns}"
    name = m if config.method == "gist" else f"{config.method}, {m},"
    needed = size(memory.peaks[lacking])
    available = size(resources.limits[lacking])
    if lacking == DISK:
        can_be_halved = STORES[run.store].holds == DISK and run.store_precision == "float32"
        ways = "choose another --out"
        if can_be_halved:
            ways += ", or add --set store_precision=bf16"
        raise InputError(
            f"{name} needs {needed} of the disk, {available} are free there: make room, {ways}"
        )
    on_ranks = f" on each of {resources.ranks} ranks" if resources.ranks > 1 else ""
    where = f"{LACKING[lacking]}{on_ranks} ({STAGES[memory.stage]})"
    ways = _what_would_fit(config, sizes, resources, stores)
    limit = resources.host_limit if lacking == "cpu" else ""
    if not limit:
        ways += "; --memory GIB allows more"
    raise InputError(f"{name} needs {needed} of {where}, {available} are available{limit}: {ways}")


def out_of_memory(device: torch.device, error: Exception) -> InputError:
    """Return the error of a run that could not get memory."""
    peak = f"it held up to {size(peak_memory_bytes(device))}"
    ways = "raise --sub-gcns, make --hidden smaller, or end other programs that take memory there"
    return InputError(f"out of {LACKING[device.type]} ({reason(error)}): {peak}; {ways}")


def _what_would_fit(
    config: RunConfig, sizes: GraphSizes, resources: Resources, stores: Sequence[str]
) -> str:
    """Say what would fit in place of a run that does not; for the arguments see `require_room`."""
    depends_on_m = config.method in ("gist", "parts")
    run = as_gist(config)
    if depends_on_m:
        for other in _alternatives(run, resources, stores):
            with suppress(InputError):  # more sub-GCNs than features, or fewer than ranks
                if _memory(other, sizes, resources).fits:
                    return f"{_difference(run, other)} would fit"
    sampling = chosen_sampling(config.sampler, sizes.nodes)
    by_clusters = isinstance(sampling, ClusterSampling)
    ways = ["make --hidden smaller"]
    if sampling is None or (sizes.stored and not by_clusters):
        ways.append("train by --sampler clusters")
    if not sizes.stored:
        ways.append("train from the disk, on a folder of `gistgnn partition --out`")
    if sizes.stored and by_clusters:
        ways.append("make --clusters-per-batch smaller")
    if config.evaluation.method != "parts":
        ways.append("evaluate by --evaluation parts --set parts=P")
    none = "no m and no store would fit; " if depends_on_m else ""
    return f"{none}{', or '.join(ways)}"


def _alternatives(
    config: RunConfig, resources: Resources, stores: Sequence[str]
) -> list[RunConfig]:
    """Return the same run with other m, other shares of Θ and slower stores, the nearest first."""
    possible = [
        store for store in stores if STORES[store].holds != "host" or config.device != "cpu"
    ]
    if config.store in possible:
        possible = possible[possible.index(config.store) :]
    shares = [config.share]
    if resources.ranks > 1:
        shares = list(SHARES)[list(SHARES).index(config.share) :]
    counts = dict.fromkeys((config.sub_gcns, *SUB_GCNS, 32))
    ways = product(possible, shares, counts)
    return [replace(config, sub_gcns=m, store=store, share=share) for store, share, m in ways]


def _difference(config: RunConfig, other: RunConfig) -> str:
    """Return the options that make the other run of a run."""
    options = []
    if other.sub_gcns != config.sub_gcns:
        options.append(f"--sub-gcns {other.sub_gcns}")
    if other.store != config.store:
        options.append(f"--store {other.store}")
    if other.share != config.share:
        options.append(f"--share {other.share}")
    return " ".join(options)
