"""Memory that all ranks on one machine read: one rank makes the tensors, and they lie in memory once."""

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed.world import Alone, World
from gistgnn.errors import InputError, reason
from gistgnn.graphs import CSR, Graph


def load_once(ranks: World | None, load: Callable[[], Graph]) -> Graph:
    """Load a graph on one rank of every machine; the other ranks of the machine map its memory, or its files.

    Args:
        ranks: the processes of the run, all of which call this; None: this process is alone.
        load: returns the graph.

    Raises:
        InputError: `load` has raised it on some rank; all ranks raise it.
    """
    ranks = ranks or Alone()
    first = ranks.together(lambda: load() if ranks.first_here == ranks.rank else None)
    if ranks.count == 1 or ranks.any(first is not None and first.folder is not None):  # every rank reads its parts
        return ranks.together(lambda: first or load())

    def make() -> dict[str, Any]:
        graph = first or load()
        values = {field.name: getattr(graph, field.name) for field in fields(Graph) if field.name != "edges"}
        return values | {"rowptr": graph.edges.rowptr, "col": graph.edges.col}

    values = ranks.share(make)
    return Graph(edges=CSR(values.pop("rowptr"), values.pop("col")), **values)


def machine_of_this_process() -> list[str]:
    """Return what only the processes of this machine have: its name, and an identifier of this boot and container."""
    return [socket.gethostname(), _boot()]


def write(values: dict[str, Any]) -> int | None:
    """Copy tensors into memory without a name (a memfd), which the system frees when the processes end, however.

    Returns:
        Its file handle; None without memfd, without room, or where tensors are on a GPU.
    """
    on_gpu = any(value.is_cuda for value in values.values() if isinstance(value, Tensor))
    if on_gpu or not hasattr(os, "memfd_create"):
        return None
    handle = os.memfd_create("gistgnn")
    try:
        torch.save(values, f"/proc/self/fd/{handle}")
    except (OSError, RuntimeError):  # torch raises the latter
        os.close(handle)
        return None
    return handle


def mapped(path: str) -> dict[str, Any]:
    """Map what a process on this machine has written."""
    try:
        return torch.load(path, mmap=True, weights_only=True)  # a write stays in the process that writes
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"the memory of this machine's first rank cannot be read ({reason(error)}): run all ranks of a machine as "
            "one user"
        ) from error


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return ""
