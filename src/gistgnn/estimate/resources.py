"""What a run may take of memory and disk on this machine."""

from dataclasses import dataclass
from pathlib import Path

import torch

from gistgnn.accounting.costs import free_disk
from gistgnn.runs.config import THETA
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, held_bytes, limit_in_force

DISK = "disk"
_LOADED = 80 * 2**20  # bytes of modules of Python that are loaded later


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes.

    Pages of mapped files do not count: they are the system's cache. With several ranks, the sizes
    are those of one rank, but for the disk.

    Attributes:
        host: memory of the process, with what it holds already.
        gpu: memory of the run's GPU, or None where the run is on the CPU.
        disk: space for the run's files, with what the Θ of a resumed run holds already.
        base: what the process holds already.
        ranks: W, the processes that train together.
        local: how many of the ranks share the memory of this machine.
        limit: the limit of a container or ulimit that leaves less than the machine has, or None.
    """

    host: int
    gpu: int | None
    disk: int
    base: int
    ranks: int = 1
    local: int = 1
    limit: int | None = None

    @classmethod
    def here(
        cls,
        device: str,
        out: Path | None = None,
        memory: int | None = None,
        ranks: int = 1,
        local: int = 1,
        *,
        started: bool = True,
    ) -> "Resources":
        """Return what this process can have now.

        Args:
            device: where the run trains.
            out: its folder. Defaults to the one that the process is in.
            memory: bytes of the device that it may take, in place of what is free.
            ranks, local: see the fields.
            started: the other ranks run already, so what they hold is no longer free.
        """
        where = torch.device(device)
        of_this_process = held_bytes()
        base = of_this_process + _LOADED
        disk = free_disk((out or Path()) / THETA)
        free = available_bytes(torch.device("cpu"))
        limit = limit_in_force()
        host = free // local + of_this_process if started else (free + of_this_process) // local
        if where.type == "cuda":
            sharing = 1 if where.index is None else local  # a GPU with a number serves all of them
            gpu = memory or available_bytes(where) // sharing
            return cls(host, gpu, disk, base, ranks, local, limit)
        # Asking for more lifts no limit of the system; a plan without a run may be for another
        # machine.
        is_beyond_limit = memory is not None and started and limit is not None and memory > host
        if memory is None or is_beyond_limit:
            return cls(host, None, disk, base, ranks, local, limit)
        return cls(memory, None, disk, base, ranks, local)

    @property
    def host_limit(self) -> str:
        """The end of a message on the host's memory: which limit it is part of, if there is one."""
        if not self.limit:
            return ""
        return f" of the limit of {size(self.limit)} that is set for this process"

    @property
    def device(self) -> str:
        """The place where sub-GCNs train: "cpu" or "cuda"."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def limits(self) -> dict[str, int]:
        """What every place may hold."""
        limits = {"cpu": self.host, DISK: self.disk}
        if self.gpu is not None:
            limits["cuda"] = self.gpu
        return limits
