"""The processes of a run, and what they send each other."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from gistgnn.distributed import shared_memory
from gistgnn.distributed.rendezvous import NobodyCameError, absent, meet
from gistgnn.distributed.world import World
from gistgnn.errors import InputError, RankLostError, reason
from gistgnn.utils.machine import usable_device

TIMEOUT = 1800.0  # seconds to wait for another rank, which may have more steps to do, or may evaluate
_ANSWER = 3.0  # of these seconds, those in which ranks answer after an exchange has failed


def started_by_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()


class Ranks(World):
    """The W processes that torchrun has started. They exchange tensors and JSON, never pickles.

    Args:
        device: where this rank trains. NCCL moves tensors between GPUs, Gloo all others, through the host.
        timeout: seconds to wait for another rank.
        interface: the network interface to the others, such as "eth0"; None: the one of the machine's name.

    Raises:
        InputError: there is no such interface, or no such GPU.
        RankLostError: the others cannot be reached.
    """

    several = True

    def __init__(
        self, device: str | torch.device = "cpu", timeout: float = TIMEOUT, interface: str | None = None
    ) -> None:
        super().__init__()
        self._device = usable_device(device)
        if interface is not None:
            names = [name for _, name in socket.if_nameindex()]
            if interface not in names:
                raise InputError(f"interface is '{interface}', expected one of this machine's: {', '.join(names)}")
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
        self._timeout, self._answer = timeout, min(_ANSWER, timeout / 4)
        self._patience = timedelta(seconds=timeout - self._answer)  # of one exchange
        self._kept: Store | None = None  # outlives a restart
        if not dist.is_initialized():
            self._begin()
        self._by_gpu = dist.get_backend() == "nccl"
        self._store = dist.distributed_c10d._get_default_store()
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        with self.talking():  # another rank may end while this one is still joining
            self._messages = dist.new_group(backend="gloo", timeout=self._patience)
        machines = self.gather(shared_memory.machine_of_this_process())
        self.first_here = machines.index(machines[self.rank])
        self._here = machines.count(machines[self.rank])  # ranks on this machine

    def close(self) -> None:
        """Leave the other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order, on every rank; numbers arrive bit for bit.

        Raises:
            RankLostError: a rank does not answer; the message names it.
        """
        begun = time.perf_counter()
        own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with self.talking():
            size = torch.tensor([len(own)])
            sizes = [torch.zeros_like(size) for _ in range(self.count)]
            dist.all_gather(sizes, size, self._messages)
            longest = max(int(each) for each in sizes)
            padded = torch.cat([own, own.new_zeros(longest - len(own))])
            texts = [torch.empty_like(padded) for _ in range(self.count)]
            dist.all_gather(texts, padded, self._messages)
        self.traffic.waited += time.perf_counter() - begun
        return [json.loads(text[: int(n)].numpy().tobytes()) for text, n in zip(texts, sizes, strict=True)]

    def exchange(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Send bytes to every rank and return the bytes that each rank has sent, by one all-to-all.

        Args:
            parts: the bytes for each rank, uint8 [bytes].
            sizes: how many bytes each rank sends to this one.

        Raises:
            RankLostError: a rank has died or hangs.
        """
        begun = time.perf_counter()
        given, home = [len(part) for part in parts], parts[0].device
        sent = torch.cat(list(parts)).to(self._device if self._by_gpu else "cpu")
        arrived = sent.new_empty(sum(sizes))
        with self.talking():
            dist.all_to_all_single(arrived, sent, list(sizes), given)
        arrived = arrived.to(home)
        self.traffic.sent += sum(given) - given[self.rank]
        self.traffic.received += sum(sizes) - sizes[self.rank]
        self.traffic.seconds += time.perf_counter() - begun
        return list(arrived.split(list(sizes)))

    def broadcast(self, numbers: Tensor) -> None:
        """Copy rank 0's values of a tensor on the host to all ranks, in place."""
        with self.talking():
            dist.broadcast(numbers, 0, self._messages)

    def send(self, tensor: Tensor) -> None:
        """Send a contiguous tensor on the host to rank 0."""
        self.traffic.read += tensor.nbytes
        with self.talking():
            dist.send(tensor, 0, self._messages)

    def receive(self, tensor: Tensor, rank: int) -> None:
        """Fill a contiguous tensor on the host with the values that a rank sends."""
        with self.talking():
            dist.recv(tensor, rank, self._messages)

    def share(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make tensors and plain values on the first rank of every machine; its other ranks map their memory.

        All ranks call this, in the same order; nobody may change the tensors. Where memory cannot be shared, every rank
        makes its own.

        Raises:
            InputError: `make` has raised it on some rank; all ranks raise it.
        """
        first = self.rank == self.first_here
        made = self.together(lambda: make() if first else None)
        handle = shared_memory.write(made) if made is not None and self._here > 1 else None
        try:
            if handle is not None:
                made = None  # this rank maps the memory, as the others do
            paths = self.gather(None if handle is None else f"/proc/{os.getpid()}/fd/{handle}")
            path = paths[self.first_here]
            return self.together(lambda: (made or make()) if path is None else shared_memory.mapped(path))
        finally:
            if handle is not None:
                os.close(handle)  # mappings of it stay

    def remember(self, name: str, value: str) -> None:
        """Keep a value for the ranks that torchrun starts after these, as long as torchrun itself lives."""
        if self._kept is not None:
            with self.talking():
                self._kept.set(name, value)

    def recall(self, name: str) -> str | None:
        """Return what ranks before a restart have remembered; None: nothing."""
        if self._kept is None:
            return None
        with self.talking():
            return self._kept.get(name).decode() if self._kept.check([name]) else None

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Within the block the ranks exchange something by torch.distributed.

        Raises:
            RankLostError: another rank has died or hangs. Every rank that is left names it.
        """
        try:
            yield
        except RuntimeError as error:
            raise RankLostError(self._lost(error)) from error

    def _begin(self) -> None:
        gpu = self._device.type == "cuda"
        if gpu:
            torch.cuda.set_device(self._device)
        try:
            store, self._kept, rank, count = meet(timedelta(seconds=self._timeout))
            own = str(torch.cuda.get_device_properties(self._device).uuid) if gpu else ""
            backend = "nccl" if each_has_a_gpu(store, rank, count, own) else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=self._patience)
        except (RuntimeError, ValueError) as error:
            why = str(error) if isinstance(error, NobodyCameError) else reason(error)
            raise RankLostError(
                f"the other ranks cannot be reached within --timeout {self._timeout:g} ({why}): start "
                "all of them by torchrun, with one --rdzv-endpoint that every machine can connect to and nobody else "
                "listens on"
            ) from error

    def _lost(self, error: RuntimeError) -> str:
        """Say which ranks do not answer after an error in an exchange."""
        try:
            away = absent(self._store, self.rank, self.count, self._answer)
        except RuntimeError as of_store:
            return f"the machine of rank 0 or of torchrun's endpoint does not answer ({reason(of_store)})"
        if not away:
            return f"rank {self.rank} has lost the connection to another rank ({reason(error)})"
        who = "rank {} does not answer: it has ended, hangs"
        who = who if len(away) == 1 else "ranks {} do not answer: each has ended, hangs"
        timeout = f"(--timeout is {self._timeout:g} s), or cannot be reached; see what it printed last"
        return f"{who.format(', '.join(map(str, away)))} {timeout}"


def each_has_a_gpu(store: Store, rank: int, count: int, own: str) -> bool:
    """Whether every rank has a GPU that no other rank has, as NCCL needs; `own` is the name of this rank's, or ""."""
    store.set(f"gpu/{rank}", own)
    names = [store.get(f"gpu/{other}").decode() for other in range(count)]  # waits for the other rank
    return all(names) and len(set(names)) == count
