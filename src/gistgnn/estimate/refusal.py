"""Refuses a run that cannot fit before it starts, and says what would."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch

from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import DISK, Resources
from gistgnn.estimate.plan import PLANNED, plan_of
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import peak_memory_bytes

_TRIED = (1, 2, 4, 8, 16, 32)


def require_room(config: RunConfig, sizes: GraphSizes, resources: Resources) -> None:
    """Raise an `InputError` if a run cannot fit, which says what would. It names the first phase that does not fit.

    A run of a model of the user's own is not refused: what it holds in a step is not known.
    """
    method, own, config = config.method, config.model.own, config.planned
    option = None if own else next((each for each in plan_of(config, sizes, resources).options if each.lacking), None)
    if option is None:
        return
    short = option.lacking[0]
    run = option.name if method == "gist" else f"{method}, {option.name},"
    needed, there = size(option.peaks[short]), size(resources.limits[short])
    if short == DISK:
        half = STORES[config.store].holds == "disk" and config.store_precision == "float32"
        ways = f"choose another --out{', or add --store-precision bf16' if half else ''}"
        raise InputError(f"{run} needs {needed} of the disk, {there} are free there: make room, {ways}")
    where = f"{_name(short)} (in its {option.phase} {'stage' if option.phased else 'phase'})"
    ways = _advice(config, sizes, resources, method)
    raise InputError(f"{run} needs {needed} of {where}, {there} are available: {ways}; --memory GIB allows more")


def out_of_memory(config: RunConfig, sizes: GraphSizes, device: torch.device, error: Exception) -> InputError:
    """Return the error of a run that could not get memory, in one line with what its plan says."""
    planned = "there is no plan of such a run"
    with suppress(InputError):
        plan = plan_of(config.planned, sizes, replace(Resources.here(str(device)), base=0))
        option = max(plan.options, key=lambda option: option.peaks[device.type])
        planned = f"its plan has {size(option.peaks[device.type])} for it, in its {option.phase} stage"
    held = f"it held up to {size(peak_memory_bytes(device))}"
    ways = "raise --sub-gcns, make --hidden smaller, or end other programs that take memory there"
    return InputError(f"out of {_name(device.type)} ({reason(error)}): {planned}, {held}; {ways}")


def _name(place: str) -> str:
    return "GPU memory" if place == "cuda" else "memory"


def _advice(config: RunConfig, sizes: GraphSizes, resources: Resources, method: str) -> str:
    """Say what would fit; for other methods than GIST m does not decide it."""
    own, phased = config.sub_gcns, bool(config.training.phases)
    stores = [store for store in PLANNED if STORES[store].holds != "host" or config.device != "cpu"]
    for store in stores[stores.index(config.store) if config.store in stores else 0 :] if method == "gist" else ():
        for m in dict.fromkeys((own, *(() if phased else _TRIED))):
            with suppress(InputError):  # more sub-GCNs than features
                if plan_of(replace(config, sub_gcns=m, store=store), sizes, resources).totals[0].fits:
                    changed = [f"--sub-gcns {m}"] * (not phased) + [f"--store {store}"] * (store != config.store)
                    return f"{' '.join(changed)} would fit"
    by_clusters = isinstance(config.sampler, ClusterSampling)
    ways = ["give this phase more sub-GCNs"] * phased + ["make --hidden smaller"]
    ways += ["train by --sampler clusters"] * (config.sampler is None or (sizes.stored is not None and not by_clusters))
    ways += ["make --clusters-per-batch smaller"] * (sizes.stored is not None and by_clusters)
    ways += ["evaluate by --evaluation parts --parts P"] * (config.evaluation.method != "parts")
    none = "no store would fit; " if phased else "no m and no store would fit; "
    return f"{none if method == 'gist' else ''}{', or '.join(ways)}"
