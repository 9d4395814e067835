"""Tensors that all ranks on one machine read: one rank makes them, and they lie in memory once."""

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed.world import Alone, World, error_message, raise_first
from gistgnn.errors import GistError, InputError, reason
from gistgnn.graphs import CSR, Graph

Make = Callable[[], dict[str, Any]]


class Machine:
    """The ranks of a run that are on this machine.

    Args:
        ranks: the processes of the run; every rank makes a `Machine`.
    """

    def __init__(self, ranks: World) -> None:
        self._ranks = ranks
        hosts = ranks.gather([socket.gethostname(), _boot()])
        self._here = [rank for rank, host in enumerate(hosts) if host == hosts[ranks.rank]]

    @property
    def first(self) -> int:
        """The rank on this machine that works for the others."""
        return self._here[0]

    def share(self, make: Make) -> dict[str, Any]:
        """Make tensors and plain values on the first rank of every machine, and map them into the others' memory.

        All ranks call this, in the same order. Nobody may change the tensors. They lie in a memfd: memory without a
        name, which the system frees when the processes end, however they end. Without memfd, or with tensors on a GPU,
        every rank makes its own tensors.

        Raises:
            InputError: `make` has raised it on some rank; all ranks raise it.
        """
        ranks = self._ranks
        if ranks.count == 1:
            return make()
        made, handle, path, error = None, None, None, None
        try:
            if ranks.rank == self.first:
                try:
                    made = make()
                    handle = _write(made) if len(self._here) > 1 else None
                except GistError as caught:
                    error = caught
            if handle is not None:
                made, path = None, f"/proc/{os.getpid()}/fd/{handle}"  # this rank maps the memory, as the others do
            answers = ranks.gather([error_message(error), path])
            raise_first([message for message, _ in answers], error)
            shared = answers[self.first][1]  # None: no memfd, or this rank is alone on its machine
            return ranks.together(lambda: (made or make()) if shared is None else _map(shared))
        finally:
            if handle is not None:
                os.close(handle)  # mappings of it stay


def load_once(ranks: World | None, load: Callable[[], Graph]) -> Graph:
    """Load a graph on one rank of every machine; the other ranks of the machine map its memory, or its files.

    Args:
        ranks: the processes of the run, all of which call this; None: this process is alone.
        load: returns the graph.

    Raises:
        InputError: `load` has raised it on some rank; all ranks raise it.
    """
    ranks = ranks or Alone()
    if ranks.count == 1:
        return load()
    machine = Machine(ranks)
    first: list[Graph] = []

    def read() -> bool:
        if ranks.rank == machine.first:
            first.append(load())
        return bool(first) and first[0].folder is not None

    if ranks.any(ranks.together(read)):  # every rank reads its parts of the files
        return ranks.together(lambda: first[0] if first else load())

    def make() -> dict[str, Any]:
        graph = first.pop() if first else load()
        values = {field.name: getattr(graph, field.name) for field in fields(Graph) if field.name != "edges"}
        return values | {"rowptr": graph.edges.rowptr, "col": graph.edges.col}

    values = machine.share(make)
    return Graph(edges=CSR(values.pop("rowptr"), values.pop("col")), **values)


def _write(values: dict[str, Any]) -> int | None:
    """Copy tensors into memory that other processes can map; return its file handle, or None where this cannot be."""
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


def _map(path: str) -> dict[str, Any]:
    try:
        return torch.load(path, mmap=True, weights_only=True)  # a write stays in the process that writes
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"the memory of this machine's first rank cannot be read ({reason(error)}): run all ranks of a machine as "
            "one user"
        ) from error


def _boot() -> str:
    """Return an identifier of this boot and container, for machines of the same name."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return ""
