"""The processes of a run, and what they send each other."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gistgnn.distributed.rendezvous import meet
from gistgnn.errors import InputError, RankLostError, reason

TIMEOUT = 1800.0  # seconds that a rank is waited for: the others may have more steps to do, or rank 0 may evaluate


@dataclass
class Traffic:
    """What this rank has exchanged with others.

    Attributes:
        rounds: that have ended.
        sent: bytes to other ranks, of slices.
        received: bytes from other ranks, of slices.
        seconds: spent in exchanging them.
        waited: seconds until all others were there, and words were exchanged.
        slices: bytes of the slices of all sub-GCNs, of all ranks, in these rounds (once for there and back).
        read: bytes of Θ that went to rank 0, to be evaluated and written.
    """

    rounds: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    slices: int = 0
    read: int = 0


def started_by_torchrun() -> bool:
    """Whether this process is one of those that torchrun has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()


class Ranks:
    """The W processes that train one model together. Tensors and JSON are exchanged, never pickles.

    Args:
        device: where the tensors are that `exchange` is given: NCCL moves those of a GPU, Gloo all others.
        timeout: seconds that another rank is waited for.
        interface: of the network, such as "eth0", on whose address this rank listens and through which it reaches the
            others; None: that of the machine's name.

    Attributes:
        rank: this process's number, from 0.
        count: W.
        traffic: what `exchange` has moved.

    Raises:
        InputError: there is no such interface.
        RankLostError: the others cannot be reached.
    """

    def __init__(
        self, device: str | torch.device = "cpu", timeout: float = TIMEOUT, interface: str | None = None
    ) -> None:
        self._device = torch.device(device)
        if interface is not None:
            _bind_to(interface)
        self._patience = timedelta(seconds=timeout)
        if not dist.is_initialized():
            self._begin()
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._words = dist.new_group(backend="gloo", timeout=self._patience)
        self.traffic = Traffic()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def close(self) -> None:
        """Leave the others."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, value: Any) -> list[Any]:
        """Give every rank what each has to say.

        Args:
            value: what JSON can hold; numbers arrive bit for bit.

        Returns:
            Every rank's value, in order.

        Raises:
            RankLostError: a rank does not answer; the first such is named.
        """
        begun = time.perf_counter()
        own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with self.talking():
            dist.monitored_barrier(self._words, self._patience)
            size = torch.tensor([len(own)])
            sizes = [torch.zeros_like(size) for _ in range(self.count)]
            dist.all_gather(sizes, size, self._words)
            longest = max(int(each) for each in sizes)
            padded = torch.cat([own, own.new_zeros(longest - len(own))])
            said = [torch.empty_like(padded) for _ in range(self.count)]
            dist.all_gather(said, padded, self._words)
        self.traffic.waited += time.perf_counter() - begun
        return [json.loads(text[: int(n)].numpy().tobytes()) for text, n in zip(said, sizes, strict=True)]

    def exchange(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Send every rank its bytes and receive those for this one: a single all-to-all.

        Args:
            parts: for each rank what it is sent, uint8 [bytes].
            sizes: how many bytes each rank sends this one.

        Returns:
            What each rank has sent.

        Raises:
            RankLostError: a rank has died or hangs.
        """
        begun = time.perf_counter()
        given = [len(part) for part in parts]
        arrived = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
        with self.talking():
            dist.all_to_all_single(arrived, torch.cat(list(parts)), list(sizes), given)
        self.traffic.sent += sum(given) - given[self.rank]
        self.traffic.received += sum(sizes) - sizes[self.rank]
        self.traffic.seconds += time.perf_counter() - begun
        return list(arrived.split(list(sizes)))

    def tell(self, numbers: Tensor) -> None:
        """Give all ranks what rank 0 has in a tensor on the host, in place."""
        with self.talking():
            dist.broadcast(numbers, 0, self._words)

    def send(self, tensor: Tensor) -> None:
        """Send rank 0 a contiguous tensor on the host."""
        self.traffic.read += tensor.nbytes
        with self.talking():
            dist.send(tensor, 0, self._words)

    def receive(self, tensor: Tensor, rank: int) -> None:
        """Fill a contiguous tensor on the host with what a rank sends."""
        with self.talking():
            dist.recv(tensor, rank, self._words)

    def _begin(self) -> None:
        gpu = self._device.type == "cuda"
        if gpu:
            torch.cuda.set_device(self._device)
        try:
            store, rank, count = meet(self._patience)
            backend = "nccl" if gpu else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=self._patience)
        except (RuntimeError, ValueError) as error:
            raise RankLostError(
                f"the other ranks cannot be reached ({reason(error)}): start all of them by torchrun, with one "
                "--rdzv-endpoint that every machine can connect to"
            ) from error

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Within the block the ranks exchange something by torch.distributed.

        Raises:
            RankLostError: another rank has died or hangs.
        """
        try:
            yield
        except RuntimeError as error:
            if found := re.search(r"Rank (\d+) failed to pass monitoredBarrier", str(error)):
                waited = f"hangs (--timeout is {self._patience.total_seconds():g} s)"
                raise RankLostError(
                    f"rank {found[1]} does not answer: it has ended, {waited}, or cannot be reached; see what it "
                    "printed last"
                ) from error
            raise RankLostError(
                f"rank {self.rank} has lost another rank ({reason(error)}): see what that one printed last"
            ) from error


def _bind_to(interface: str) -> None:
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise InputError(f"interface is '{interface}', expected one of this machine's: {', '.join(names)}")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
