"""Refuses a model or a step that certainly does not fit on this machine, before anything is allocated.

These are lower limits, from shapes alone: what passes may still not fit. `gistgnn.planning` knows more, of our models.
"""

import shutil
from pathlib import Path

import psutil
import torch

from gistgnn.accounting.footprint import slice_bytes, theta_bytes
from gistgnn.errors import InputError
from gistgnn.partition import Partition
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.store import Store
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes


def require_theta_fits(spec: ModelSpec, store: Store, ranks: int) -> None:
    """Refuse a Θ that takes more than there is of the memory or the disk where the store keeps it.

    Args:
        spec: the model.
        store: where Θ is.
        ranks: how many share it, where the store shares it.

    Raises:
        InputError: it takes more.
    """
    theta, place = theta_bytes(spec), store.place
    if place.holds == "disk":
        assert store.folder is not None
        where, needed = "disk", theta // 2 if store.precision == "bf16" else theta
        there = shutil.disk_usage(_existing(store.folder)).free + _held(store.folder)
        advice = "make room, or make the widths smaller"
    else:
        device = spec.device if place.holds == "device" else torch.device("cpu")
        needed, there = theta // ranks if place.shared else theta, _free(device)
        where = "memory" if device.type == "cpu" else "GPU memory"
        advice = "make the widths smaller" + (
            "" if place.shared else ", or keep the parameters in files, by the store disk"
        )
    if needed > there:
        raise InputError(
            f"the model of widths {spec.widths} takes {size(needed)} of {where}, {size(there)} are free: {advice}"
        )


def require_step_fits(spec: ModelSpec, partition: Partition, input_axis: int | None, nodes: int) -> None:
    """Refuse sub-GCNs of which one alone, with the hidden features of some nodes, takes more memory than there is.

    Args:
        spec: the full model.
        partition: its blocks.
        input_axis: the axis of the input features, which are there already.
        nodes: whose features a step computes.

    Raises:
        InputError: it takes more.
    """
    counts = partition.sizes(0)[0]
    features = sum(count for axis, count in enumerate(counts) if axis != input_axis)
    needed = slice_bytes(spec, [tuple(map(torch.arange, counts))])[0] + 4 * nodes * features
    there = available_bytes(spec.device)
    where = "GPU memory" if spec.device.type == "cuda" else "memory"
    if needed > there:
        raise InputError(
            f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which takes {size(needed)} of "
            f"{where}; {size(there)} are free: make the widths smaller, or raise sub_gcns"
        )


def _free(device: torch.device) -> int:
    """Bytes that can be allocated; on the host also those that this process holds, which an earlier Θ may free."""
    held = psutil.Process().memory_info().rss if device.type == "cpu" else torch.cuda.memory_allocated(device)
    return available_bytes(device) + int(held)


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _held(folder: Path) -> int:
    """Bytes of files in a folder, which a new Θ replaces."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
