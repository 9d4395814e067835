"""Bytes that a run holds and sends, from the shapes of tensors; and the refusal of what certainly does not fit."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from gistgnn.distributed import Costs, World, costs
from gistgnn.errors import InputError
from gistgnn.graphs import Graph
from gistgnn.partition import Blocks, Partition
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Place
from gistgnn.theta.slices import Slices
from gistgnn.theta.store import Store
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes


def memory_of(
    graph: Graph,
    training: Training,
    place: Place,
    device: torch.device,
    ranks: World,
    *,
    theta: int,
    slices: Sequence[int],
) -> dict[str, int]:
    """Bytes that a process holds from the beginning of a run to its end.

    Args:
        graph: the graph.
        training: says how many moments the optimiser keeps, and whether they are carried.
        place: where Θ lies.
        device: where the sub-GCNs train.
        ranks: the processes of the run.
        theta: bytes of Θ.
        slices: bytes of every sub-GCN's parameters and buffers.

    Returns:
        "graph"; "sub_gcns", with gradients and the optimiser's state; and "theta", "best", "moments" where these are in
        the memory of the device.
    """
    held = {"graph": graph.held_bytes}
    moments = moments_of(training)
    own = slices[ranks.rank :: ranks.count] or slices
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


def slice_bytes(spec: ModelSpec, blocks: Sequence[Blocks]) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers."""
    specs, slices = spec.tensor_specs(), Slices(spec.layout, spec.widths)
    return [
        sum(slices.shape(name, shape, own).numel() * dtype.itemsize for name, (shape, dtype) in specs.items())
        for own in blocks
    ]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of every parameter."""
    return 2 if training.optimizer != "sgd" else int(training.momentum > 0)


def require_theta_fits(spec: ModelSpec, store: Store, ranks: int) -> None:
    """Refuse a Θ that takes more than is free of the memory or the disk where the store keeps it.

    Args:
        spec: the model.
        store: where Θ is.
        ranks: how many processes share it, where the store shares it.

    Raises:
        InputError: it takes more.
    """
    theta, place = theta_bytes(spec), store.place
    if place.holds == "disk":
        assert store.folder is not None
        where, needed = "disk", theta // 2 if store.precision == "bf16" else theta
        there = free_disk(store.folder)
        advice = "make room, or make the widths smaller"
    else:
        device = spec.device if place.holds == "device" else torch.device("cpu")
        where, needed = _memory(device), theta // ranks if place.shared else theta
        # The memory that this process holds may be that of a Θ that is replaced.
        held = psutil.Process().memory_info().rss if device.type == "cpu" else torch.cuda.memory_allocated(device)
        there = available_bytes(device) + int(held)
        advice = "make the widths smaller" + (
            "" if place.shared else ", or keep the parameters in files, by the store disk"
        )
    if needed > there:
        raise InputError(
            f"the model of widths {spec.widths} takes {size(needed)} of {where}, {size(there)} are free: {advice}"
        )


def require_step_fits(spec: ModelSpec, partition: Partition, input_axis: int | None, nodes: int) -> None:
    """Refuse sub-GCNs if one of them, with the hidden features of some nodes, takes more memory than is free.

    Args:
        spec: the full model.
        partition: its blocks.
        input_axis: the axis of the input features, which are in memory already.
        nodes: the nodes whose features a step computes.

    Raises:
        InputError: it takes more.
    """
    counts = partition.sizes(0)[0]
    features = sum(count for axis, count in enumerate(counts) if axis != input_axis)
    needed = slice_bytes(spec, [tuple(map(torch.arange, counts))])[0] + 4 * nodes * features
    there = available_bytes(spec.device)
    if needed > there:
        raise InputError(
            f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which takes {size(needed)} of "
            f"{_memory(spec.device)}; {size(there)} are free: make the widths smaller, or raise sub_gcns"
        )


def free_disk(folder: Path) -> int:
    """Return the bytes that a folder, which need not exist, may have: those free on its disk, and what it has."""
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    exists = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(exists).free + held


def _memory(device: torch.device) -> str:
    return "GPU memory" if device.type == "cuda" else "memory"
