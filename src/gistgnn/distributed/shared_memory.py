"""What the ranks on one machine all read is made by one of them, and lies in memory once."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed.agreement import raise_first, together, words_of
from gistgnn.distributed.packing import Form, packed_bytes, unpack
from gistgnn.distributed.ranks import Ranks
from gistgnn.errors import GistError, InputError, reason
from gistgnn.graphs import Graph
from gistgnn.io.tensors import DTYPES, NAMES

Make = Callable[[], dict[str, Tensor]]


class Machine:
    """The ranks of a run that are on this machine.

    Args:
        ranks: all of the run, each of which makes one; None: this process is alone.
    """

    def __init__(self, ranks: Ranks | None) -> None:
        self._ranks = ranks
        if ranks:
            where = ranks.gather([socket.gethostname(), _boot()])
            self._here = [rank for rank, place in enumerate(where) if place == where[ranks.rank]]

    @property
    def first(self) -> int:
        """The rank here that works for the others."""
        return self._here[0]

    def share(self, make: Make) -> dict[str, Tensor]:
        """Make some tensors on the first rank of every machine, and map them into the memory of its others.

        All ranks call this, in the same order. The tensors are not to be changed. They lie in memory that has no name
        (a memfd), of which nothing is left when the processes end, however they do. Where there is none, or the tensors
        are on a GPU, every rank makes its own.

        Raises:
            InputError: what `make` raises, on all ranks.
        """
        ranks = self._ranks
        if ranks is None or ranks.count == 1:
            return make()
        made, handle, note, error = None, None, None, None
        if ranks.rank == self.first:
            try:
                made = make()
                handle = _write(made) if len(self._here) > 1 else None
                where = None if handle is None else f"/proc/{os.getpid()}/fd/{handle}"
                note = [where, {name: (list(tensor.shape), NAMES[tensor.dtype]) for name, tensor in made.items()}]
            except GistError as caught:
                error = caught
        try:
            if handle is not None:
                made = None  # the others' memory is this rank's, too
            said = ranks.gather([words_of(error), note])
            raise_first([words for words, _ in said], error)
            theirs, forms = said[self.first][1]
            if theirs is None:  # or this rank is alone on its machine
                return together(ranks, lambda: made or make())
            return together(ranks, lambda: _map(theirs, forms))
        finally:
            if handle is not None:
                os.close(handle)  # who has mapped it keeps it


def load_once(ranks: Ranks | None, load: Callable[[], Graph]) -> Graph:
    """Load a graph on one rank of every machine; the others map its memory.

    Args:
        ranks: all of them call this; None: this process is alone.
        load: returns the graph.

    Raises:
        InputError: what `load` raises, on all ranks.
    """
    rest: dict[str, Any] = {}

    def make() -> dict[str, Tensor]:
        values = vars(load())
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        rest.update((name, value) for name, value in values.items() if name not in tensors)
        return tensors

    machine = Machine(ranks)
    tensors: dict[str, Any] = machine.share(make)
    return Graph(**tensors, **(ranks.gather(rest)[machine.first] if ranks else rest))


def _write(tensors: Mapping[str, Tensor]) -> int | None:
    """Copy tensors into memory that others can map, and return the file that it is; None where there is none."""
    if not hasattr(os, "memfd_create") or any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return None
    forms = [(tensor.shape, tensor.dtype) for tensor in tensors.values()]
    size, handle = packed_bytes(forms), os.memfd_create("gistgnn")
    try:
        os.posix_fallocate(handle, 0, size)  # writing to a mapping without room is fatal
        whole = torch.from_file(f"/proc/self/fd/{handle}", shared=True, size=size, dtype=torch.uint8)
        for place, tensor in zip(unpack(whole, forms), tensors.values(), strict=True):
            place.copy_(tensor)
    except (OSError, RuntimeError):  # torch raises the latter
        os.close(handle)
        return None
    return handle


def _map(path: str, forms: Mapping[str, tuple[list[int], str]]) -> dict[str, Tensor]:
    known: list[Form] = [(torch.Size(shape), DTYPES[dtype]) for shape, dtype in forms.values()]
    try:  # not shared: what somebody writes is for himself, and a file that is not there is not made
        whole = torch.from_file(path, shared=False, size=packed_bytes(known), dtype=torch.uint8)
        return dict(zip(forms, unpack(whole, known), strict=True))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"what the first rank of this machine has loaded cannot be read ({reason(error)}): the ranks of a machine "
            "have to run as one user"
        ) from error


def _boot() -> str:
    """What tells apart machines, and containers, of the same name."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return ""
