"""Work done ahead in the background."""

from collections.abc import Generator, Iterable
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

from torch.utils._python_dispatch import is_in_torch_dispatch_mode

T = TypeVar("T")
_END = object()


def ahead(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yield the items while a thread makes the next ones, at most ``depth`` of them ahead.

    What making an item raises is raised here, in its place. Closing the generator, as an early end of a loop over it
    does, ends the thread first; so does an error in the loop's body, once the generator is closed or collected.

    Args:
        items: iterated over in the thread alone.
        depth: how many may be waiting.
    """
    if is_in_torch_dispatch_mode():  # a mode, such as a plan's tensors without values, holds for one thread alone
        yield from items
        return
    ready: SimpleQueue[object] = SimpleQueue()
    room, stopped = Semaphore(depth), Event()
    failed: list[BaseException] = []

    def make() -> None:
        try:
            iterator = iter(items)
            while room.acquire() and not stopped.is_set():
                ready.put(next(iterator, _END))
        except BaseException as error:  # whatever it is, it belongs to the consumer
            failed.append(error)
            ready.put(_END)

    thread = Thread(target=make, name="gistgnn-ahead", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield item  # type: ignore[misc]  # T, or the end
            del item  # the consumer may be done with it before the next one is there
            room.release()
        if failed:
            raise failed[0]
    finally:
        stopped.set()
        room.release()
        thread.join()
