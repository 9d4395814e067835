"""Bytes that a run holds and sends, from the shapes of tensors; and the refusal of what certainly does not fit."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import torch

from gistgnn.distributed import Costs, World, costs
from gistgnn.errors import InputError
from gistgnn.graphs import Graph
from gistgnn.partition import Partition
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Place
from gistgnn.theta.store import Store
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes


def memory_of(
    graph: Graph, training: Training, place: Place, device: torch.device, ranks: World, theta: int, slices: list[int]
) -> dict[str, int]:
    """Bytes that a process holds from the beginning of a run to its end, by what holds them.

    Sub-GCNs count with gradients and the optimiser's state; Θ, the best Θ and moments where the device holds them.
    """
    moments, own = moments_of(training), slices[ranks.rank :: ranks.count] or slices
    held = {"graph": graph.held_bytes}
    if place.holds == "device" or (place.holds == "host" and device.type == "cpu"):
        share = ranks.count if place.shared else 1
        carried = moments * theta if training.keeps_moments or len(slices) == 1 else 0
        held |= {"theta": theta // share, "best": theta // share, "moments": carried // share}
    one_at_a_time = place.streams and not place.shared
    return {**held, "sub_gcns": (2 + moments) * (max(own) if one_at_a_time else sum(own))}


def round_costs(training: Training, sub_gcns: int, workers: int, *, theta: int, slices: Sequence[int]) -> Costs:
    """Bytes that a worker sends in a round, with each sub-GCN on its own worker and Θ shared out to the workers."""
    assert training.local_steps is not None  # a run's schedule has chosen it
    carried = moments_of(training) if training.keeps_moments and sub_gcns > 1 else 0
    return costs(theta, [(1 + carried) * size for size in slices], workers, training.local_steps, sharded=True)


def theta_bytes(spec: ModelSpec) -> int:
    """Bytes of a model's parameters and buffers."""
    return sum(own.nbytes for own in spec.tensor_specs().values())


def slice_bytes(spec: ModelSpec, counts: Sequence[Sequence[int]]) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers, by its number of features on each axis."""
    widths = [spec.layout.widths(own) for own in counts]
    known = {each: theta_bytes(replace(spec, widths=each)) for each in {*widths}}
    return [known[each] for each in widths]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of every parameter."""
    return 2 if training.optimizer != "sgd" else int(training.momentum > 0)


def require_theta_fits(spec: ModelSpec, store: Store, ranks: int) -> None:
    """Refuse a Θ, or a rank's share of it, that takes more than is free where the store keeps it."""
    needed, place, advice = theta_bytes(spec), store.place, "make the widths smaller"
    if place.holds == "disk":
        assert store.folder is not None
        needed = needed // 2 if store.precision == "bf16" else needed
        where, there, advice = "disk", free_disk(store.folder), f"make room, or {advice}"
    else:
        device = spec.device if place.holds == "device" else torch.device("cpu")
        # The memory that this process holds may be that of a Θ that is replaced.
        held = psutil.Process().memory_info().rss if device.type == "cpu" else torch.cuda.memory_allocated(device)
        where, there = _memory(device), available_bytes(device) + int(held)
        needed = needed // ranks if place.shared else needed
        advice += "" if place.shared else ", or keep the parameters in files, by the store disk"
    _require(f"the model of widths {spec.widths}", needed, where, there, advice)


def require_step_fits(spec: ModelSpec, partition: Partition, input_axis: int | None, nodes: int) -> None:
    """Refuse sub-GCNs if one of them, with the hidden features of some nodes, takes more memory than is free."""
    counts = partition.sizes(0)[0]
    features = sum(count for axis, count in enumerate(counts) if axis != input_axis)  # the input is in memory already
    needed = slice_bytes(spec, [counts])[0] + 4 * nodes * features
    what = f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which"
    advice = "make the widths smaller, or raise sub_gcns"
    _require(what, needed, _memory(spec.device), available_bytes(spec.device), advice)


def _require(what: str, needed: int, where: str, there: int, advice: str) -> None:
    if needed > there:
        raise InputError(f"{what} takes {size(needed)} of {where}, {size(there)} are free: {advice}")


def free_disk(folder: Path) -> int:
    """Return the bytes that a folder, which need not exist, may have: those free on its disk, and what it has."""
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    exists = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(exists).free + held


def _memory(device: torch.device) -> str:
    return "GPU memory" if device.type == "cuda" else "memory"
