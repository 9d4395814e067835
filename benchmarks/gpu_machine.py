"""The facts of a machine with a GPU: device, driver, clocks, versions, and the package's commit."""

import os
import platform
import subprocess
from typing import Any

import psutil
import torch

from gistgnn.utils.machine import processor

_ASKED = (
    "name", "uuid", "driver_version", "memory.total", "power.limit", "temperature.gpu", "clocks.sm", "clocks.mem",
    "clocks.max.sm", "clocks.max.mem", "clocks_throttle_reasons.active", "utilization.gpu", "persistence_mode",
)  # fmt: skip


def facts(device: str) -> dict[str, Any]:
    """Return what a measurement depends on; what cannot be had is None."""
    there = torch.device(device).type == "cuda" and torch.cuda.is_available()
    own = torch.cuda.get_device_properties(device) if there else None
    return {
        "gpu": own.name if own else None,
        "gpu_bytes": own.total_memory if own else None,
        "multiprocessors": own.multi_processor_count if own else None,
        "compute_capability": f"{own.major}.{own.minor}" if own else None,
        "nvidia_smi": nvidia_smi(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "host_bytes": psutil.virtual_memory().total,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "commit": answer("git", "describe", "--always", "--dirty"),
    }


def nvidia_smi() -> dict[str, str] | None:
    """Return what nvidia-smi says of the first GPU, by the names of its options; None: it is not there."""
    said = answer("nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader")
    return None if said is None else dict(zip(_ASKED, said.splitlines()[0].split(", "), strict=False))


def answer(*words: str) -> str | None:
    """Return what a program prints, or None if it cannot be run or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
