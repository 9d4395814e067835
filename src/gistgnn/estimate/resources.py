"""What this machine has for a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from gistgnn.accounting.footprint import free_disk
from gistgnn.runs.config import THETA
from gistgnn.utils.process_memory import Kept, available_bytes, held_bytes

DISK = "disk"
_LOADED = 80 * 2**20  # bytes of modules of Python that are loaded later


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes. Pages of mapped files do not count: they are the system's cache."""

    host: int  # memory of the process, with what it holds already
    gpu: int | None  # memory of the run's GPU, or None where the run is on the CPU
    disk: int  # room for the run's files, with what the Θ of a resumed run holds already
    base: int  # what the process holds already
    limited: bool = False  # ``host`` is a limit for this process

    @classmethod
    def here(cls, device: str, out: Path | None = None, memory: int | None = None) -> Resources:
        """Return what this process can have now; ``memory``, if given, takes the place of what the device has free.

        ``out`` is the run's folder, which need not exist; None: this one.
        """
        base, disk = held_bytes() + _LOADED, free_disk((out or Path()) / THETA)
        host = available_bytes(torch.device("cpu")) + base
        if torch.device(device).type == "cuda":
            return cls(host, memory or available_bytes(torch.device(device)), disk, base)
        return cls(memory or host, None, disk, base, memory is not None)

    @property
    def device(self) -> str:
        """The place where sub-GCNs train: "cpu" or "cuda"."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def kept(self) -> Kept:
        """What the process keeps of freed memory."""
        return Kept.under(self.host if self.limited else None)

    @property
    def limits(self) -> dict[str, int]:
        """The bytes of every place."""
        return {"cpu": self.host, DISK: self.disk} | ({} if self.gpu is None else {"cuda": self.gpu})
