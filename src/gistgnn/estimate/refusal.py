"""Refuses a run that cannot fit before it starts, and says what would."""

from __future__ import annotations

from dataclasses import replace

import torch

from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import DISK
from gistgnn.estimate.plan import PLANNED, Option, make_plan
from gistgnn.estimate.resources import Resources
from gistgnn.estimate.shapes import possible_sub_gcns
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import peak_memory_bytes

_TRIED = (1, 2, 4, 8, 16, 32)


def require_room(config: RunConfig, sizes: GraphSizes, resources: Resources) -> None:
    """Refuse a run that cannot fit, and say what would. Of a run with phases it names the first that does not fit.

    A run of a model of the user's own is not refused: what it holds in a step is not known.

    Raises:
        InputError: the run's peak is more than there is of memory or of the disk; or a setting or m is out of range.
    """
    if config.model.own:
        return
    method, config = config.method, config.planned
    options = _options(config, sizes, resources, config.sub_gcns)
    option = next((option for option in options if option.lacking), None)
    if option is None:
        return
    short = option.lacking[0]
    run, part = option.name, "stage" if option.phased else "phase"
    if method != "gist":
        run = f"{method}, {run},"
    needed, there = size(option.peaks[short]), size(resources.limits[short])
    if short == DISK:
        half = STORES[config.store].holds == "disk" and config.store_precision == "float32"
        ways = f"choose another --out{', or add --store-precision bf16' if half else ''}"
        raise InputError(f"{run} needs {needed} of the disk, {there} are free there: make room, {ways}")
    where = f"{'memory' if short == 'cpu' else 'GPU memory'} (in its {option.phase} {part})"
    ways = _advice(config, sizes, resources, method)
    raise InputError(f"{run} needs {needed} of {where}, {there} are available: {ways}; --memory GIB allows more")


def out_of_memory(config: RunConfig, sizes: GraphSizes, device: torch.device, error: Exception) -> InputError:
    """Return the error of a run that could not get memory, in one line with what its plan says.

    Args:
        config: the run.
        sizes: of its graph.
        device: where its sub-GCNs train.
        error: what torch, NumPy or Python has raised.
    """
    where = "GPU memory" if device.type == "cuda" else "memory"
    parts = [f"it held up to {size(peak_memory_bytes(device))}"]
    if device.type == "cuda":
        parts.append(f"the GPU has {size(torch.cuda.mem_get_info(device)[1])}")
    try:
        run, resources = config.planned, replace(Resources.here(str(device)), base=0)
        option = max(_options(run, sizes, resources, run.sub_gcns), key=lambda option: option.peaks[device.type])
        parts.insert(0, f"its plan has {size(option.peaks[device.type])} for it, in its {option.phase} stage")
    except InputError:
        parts.insert(0, "there is no plan of such a run")
    ways = "raise --sub-gcns, make --hidden smaller, or end other programs that take memory there"
    return InputError(f"out of {where} ({reason(error)}): {', '.join(parts)}; {ways}")


def _advice(config: RunConfig, sizes: GraphSizes, resources: Resources, method: str) -> str:
    """Say what would fit; for other methods than GIST m does not decide it."""
    own, phased = config.sub_gcns, bool(config.training.phases)
    every = [own, *(m for m in possible_sub_gcns(config, sizes, () if phased else _TRIED) if m != own)]
    stores = [store for store in PLANNED if STORES[store].holds != "host" or config.device != "cpu"]
    for store in stores[stores.index(config.store) if config.store in stores else 0 :] if method == "gist" else ():
        option = "" if store == config.store else f" --store {store}"
        for m in every:
            if (m, store) == (own, config.store):
                continue
            if all(each.fits for each in _options(config, sizes, resources, m, store)):
                return f"{option.lstrip() if phased else f'--sub-gcns {m}{option}'} would fit"
    by_clusters = isinstance(config.sampler, ClusterSampling)
    ways = ["give this phase more sub-GCNs"] * phased + ["make --hidden smaller"]
    ways += ["train by --sampler clusters"] * (config.sampler is None or (sizes.stored is not None and not by_clusters))
    ways += ["make --clusters-per-batch smaller"] * (sizes.stored is not None and by_clusters)
    ways += ["evaluate by --evaluation parts --parts P"] * (config.evaluation.method != "parts")
    none = "no store would fit; " if phased else "no m and no store would fit; "
    return f"{none if method == 'gist' else ''}{', or '.join(ways)}"


def _options(
    config: RunConfig, sizes: GraphSizes, resources: Resources, m: int, store: str | None = None
) -> tuple[Option, ...]:
    """Return what a run takes; with phases, what each takes. Its store is that of the run, unless one is given."""
    return make_plan(config, sizes, resources, [m], [store or config.store], timed=False).options
