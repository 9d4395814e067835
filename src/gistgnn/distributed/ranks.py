"""The processes of a run, and what they send each other."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from gistgnn.distributed.rendezvous import NobodyCameError, find_absent, meet
from gistgnn.distributed.world import T, World
from gistgnn.errors import DivergedError, GistError, InputError, RankLostError, reason
from gistgnn.utils.machine import usable_device
from gistgnn.utils.tensors import TensorSpec

# How many seconds to wait for another rank, which may have more steps to do, or may evaluate.
TIMEOUT = 1800.0
_ALIGNED = 8  # bytes of the largest number
_ANSWER = 3.0  # The last of these seconds are for ranks to answer after an exchange has failed.


def started_by_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return (
        "TORCHELASTIC_RUN_ID" in os.environ
        or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    )


class Ranks(World):
    """The W processes that torchrun has started. They exchange tensors and JSON, never pickles.

    Args:
        device: where this rank trains. NCCL moves tensors between GPUs, Gloo all others, through
            the host.
        timeout: seconds to wait for another rank.
        ready: False tells the others, which wait for this rank, that it refuses its settings.

    Raises:
        InputError: there is no such GPU; or another rank is not ready.
        RankLostError: the others cannot be reached.
    """

    is_distributed = True

    def __init__(
        self, device: str | torch.device = "cpu", timeout: float = TIMEOUT, *, ready: bool = True
    ) -> None:
        super().__init__()
        self._device = usable_device(device)
        self._timeout = timeout
        self._answer = min(_ANSWER, timeout / 4)
        self._exchange_timeout = timedelta(seconds=timeout - self._answer)
        self._store_of_all_starts: Store | None = None
        if not dist.is_initialized():
            self._begin()
        self._by_gpu = dist.get_backend() == "nccl"
        self._store = dist.distributed_c10d._get_default_store()
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()
        self.leads = self.rank == 0
        with self.talking():  # another rank may end while this one is still joining
            self._messages = dist.new_group(backend="gloo", timeout=self._exchange_timeout)
        answers = self.gather(ready)  # all have joined
        if ready and not all(answers):
            self.close()
            refusing = answers.index(False)
            message = f"rank {refusing} refuses its settings: see what it has printed"
            raise_first([["input", message]], None)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order, on every rank; numbers arrive bit for bit."""
        begun = time.perf_counter()
        message = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with self.talking():
            size = torch.tensor([len(message)])
            sizes = [torch.zeros_like(size) for _ in range(self.count)]
            dist.all_gather(sizes, size, self._messages)
            longest = max(int(length) for length in sizes)
            padded = torch.cat([message, message.new_zeros(longest - len(message))])
            texts = [torch.empty_like(padded) for _ in range(self.count)]
            dist.all_gather(texts, padded, self._messages)
        self.traffic.waited += time.perf_counter() - begun
        return [
            json.loads(text[: int(length)].numpy().tobytes())
            for text, length in zip(texts, sizes, strict=True)
        ]

    def lead(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        result = None
        error = None
        if self.leads:
            result, error = _attempt(work)
        else:
            meanwhile()
        shared, message = self.gather([result, error_message(error)])[0]
        raise_first([message], error)
        return cast(T, shared)

    def together(self, work: Callable[[], T]) -> T:
        result, error = _attempt(work)
        raise_first(self.gather(error_message(error)), error)
        return cast(T, result)

    def load(self, load: Callable[[], T]) -> T:
        first_here = os.environ.get("LOCAL_RANK", "0") == "0"
        first = self.together(lambda: load() if first_here else None)
        return self.together(lambda: load() if first is None else first)

    def exchange(
        self,
        outgoing: Sequence[Sequence[Tensor]],
        expected: Sequence[Sequence[TensorSpec]],
        device: torch.device,
    ) -> list[list[Tensor]]:
        """Exchange tensors with all ranks, by one all-to-all of bytes.

        Args:
            outgoing: the tensors for each rank.
            expected: the shapes and types of what each rank sends to this one.
            device: where the received tensors are returned.

        Returns:
            The tensors that each rank has sent.
        """
        begun = time.perf_counter()
        parts = [pack(tensors, device) for tensors in outgoing]
        sizes = [packed_bytes(specs) for specs in expected]
        lengths = [len(part) for part in parts]
        sent = torch.cat(parts).to(self._device if self._by_gpu else "cpu")
        del parts
        arrived = sent.new_empty(sum(sizes))
        with self.talking():
            dist.all_to_all_single(arrived, sent, sizes, lengths)
        buffers = arrived.to(device).split(sizes)
        self.traffic.sent += sum(lengths) - lengths[self.rank]
        self.traffic.received += sum(sizes) - sizes[self.rank]
        self.traffic.seconds += time.perf_counter() - begun
        return [unpack(buffer, specs) for buffer, specs in zip(buffers, expected, strict=True)]

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

    def remember(self, name: str, value: str) -> None:
        """Keep a value for the ranks that torchrun starts after these.

        It lives as long as torchrun itself.
        """
        if self._store_of_all_starts is not None:
            with self.talking():
                self._store_of_all_starts.set(name, value)

    def recall(self, name: str) -> str | None:
        """Return what ranks before a restart have remembered; None if they have not."""
        store = self._store_of_all_starts
        if store is None:
            return None
        with self.talking():
            return store.get(name).decode() if store.check([name]) else None

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Turn an error of torch.distributed in the block into a RankLostError.

        The message names the ranks that are lost.
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
            meeting = meet(timedelta(seconds=self._timeout))
            store, self._store_of_all_starts, rank, count = meeting
            uuid = str(torch.cuda.get_device_properties(self._device).uuid) if gpu else ""
            backend = "nccl" if each_has_a_gpu(store, rank, count, uuid) else "gloo"
            dist.init_process_group(
                backend,
                store=store,
                rank=rank,
                world_size=count,
                timeout=self._exchange_timeout,
            )
        except (RuntimeError, ValueError) as error:
            why = str(error) if isinstance(error, NobodyCameError) else reason(error)
            raise RankLostError(
                f"the other ranks cannot be reached within --timeout {self._timeout:g} ({why}): "
                "start all of them by torchrun, with one --rdzv-endpoint that every machine can "
                "connect to and nobody else listens on"
            ) from error

    def _lost(self, error: RuntimeError) -> str:
        """Say which ranks do not answer after an error in an exchange."""
        try:
            away = find_absent(self._store, self.rank, self.count, self._answer)
        except RuntimeError as of_store:
            return (
                "the machine of rank 0 or of torchrun's endpoint does not answer "
                f"({reason(of_store)})"
            )
        if not away:
            return f"rank {self.rank} has lost the connection to another rank ({reason(error)})"
        if len(away) == 1:
            who = f"rank {away[0]} does not answer: it has ended, hangs"
        else:
            who = f"ranks {', '.join(map(str, away))} do not answer: each has ended, hangs"
        timeout = f"(--timeout is {self._timeout:g} s)"
        return f"{who} {timeout}, or cannot be reached; see what it printed last"


def _attempt(work: Callable[[], T]) -> tuple[T | None, GistError | None]:
    try:
        return work(), None
    except GistError as error:
        return None, error


def error_message(error: GistError | None) -> list[Any] | None:
    """Return an error as something that JSON can hold."""
    if error is None:
        return None
    return (
        ["diverged", error.round_number, error.what]
        if isinstance(error, DivergedError)
        else ["input", str(error)]
    )


def raise_first(messages: list[list[Any] | None], rank_error: GistError | None) -> None:
    """Raise an error if some rank has one.

    It is this rank's own error, or else the first of the `error_message`s of all ranks.
    """
    if message := next(filter(None, messages), None):
        error = rank_error or (
            DivergedError(*message[1:]) if message[0] == "diverged" else InputError(message[1])
        )
        error.relayed = True
        raise error


def each_has_a_gpu(store: Store, rank: int, count: int, uuid: str) -> bool:
    """Whether every rank has a GPU that no other rank has, as NCCL needs.

    Args:
        store: of this start.
        rank: this rank.
        count: of the ranks.
        uuid: the name of this rank's GPU; empty if it has none.
    """
    store.set(f"gpu/{rank}", uuid)
    # `get` waits for the other rank.
    names = [store.get(f"gpu/{other}").decode() for other in range(count)]
    return all(names) and len(set(names)) == count


def pack(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Copy tensors into one buffer of bytes: uint8 [`packed_bytes`].

    The types with the largest numbers come first.
    """
    specs = [TensorSpec.of(tensor) for tensor in tensors]
    buffer = torch.empty(packed_bytes(specs), dtype=torch.uint8, device=device)
    for tensor, view in zip(tensors, unpack(buffer, specs), strict=True):
        view.copy_(tensor)
    return buffer


def unpack(buffer: Tensor, specs: Sequence[TensorSpec]) -> list[Tensor]:
    """Return the tensors of a buffer that `pack` has made; they share its memory."""
    order = sorted(range(len(specs)), key=lambda k: -specs[k].dtype.itemsize)
    sizes = [specs[k].nbytes for k in order]
    pieces = dict(zip(order, buffer[: sum(sizes)].split(sizes), strict=True))
    return [pieces[k].view(spec.dtype).view(spec.shape) for k, spec in enumerate(specs)]


def packed_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the size of the buffer that `pack` makes."""
    size = sum(spec.nbytes for spec in specs)
    return -(-size // _ALIGNED) * _ALIGNED
