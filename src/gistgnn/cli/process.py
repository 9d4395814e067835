"""The process of a command: its signals, its slow imports, its folder, and the ranks beside it.

This module imports nothing slow: signals are handled before the rest is imported.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from gistgnn.errors import GistError, InputError, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from gistgnn.distributed import World

ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)
)
"""They end a run as Ctrl-C does. SIGHUP comes when a terminal is closed; schedulers send SIGTERM or
SIGUSR1.
"""

GRACE = 30.0  # seconds that a round has to end after such a signal
_TELLING = 60.0  # seconds that a rank with wrong options waits for the others, to tell them
# Seconds after a Ctrl-C in which another one is the same: it may arrive twice, from the terminal
# and from torchrun.
_SAME_CTRL_C = 1.0

_WITH_TEMPORARY_FILES = ("checkpoints/*", "theta", "runs", "runs/*", "runs/*/*")
"""Folders in an output folder in which a killed command may have left temporary files."""


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def leads() -> bool:
    """Return whether this process prints messages: it is rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def world_size(name: str = "WORLD_SIZE") -> int:
    """Return the number of ranks that torchrun has started; "LOCAL_WORLD_SIZE": on this machine."""
    count = os.environ.get(name, "1") if "RANK" in os.environ else "1"
    return int(count) if count.isdigit() else 1


def say(text: str) -> None:
    """Print a line for the user on standard error."""
    # A handler of a signal that interrupts a print cannot print: then the line is left out.
    with contextlib.suppress(RuntimeError):
        if leads():
            print(f"gistgnn: {printable(text)}", file=sys.stderr, flush=True)


def ending_at_once() -> AbstractContextManager[None]:
    """Let a signal end the process at once inside the block, with one line.

    This is for imports, which leave nothing to clean up. An exception in the middle of an import
    would be printed with its trace, or be lost in the module.
    """

    def end(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            if leads():
                os.write(2, b"gistgnn: interrupted\n")
        _end(number)

    return _handling(end)


def raising() -> AbstractContextManager[None]:
    """Let a signal raise `Interrupted` inside the block, so that files and processes are closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    return _handling(interrupt)


class Stop:
    """Whether a signal has asked a run to stop; call it.

    Attributes:
        number: of the first such signal; None: there was none.
    """

    number: int | None = None

    def __call__(self) -> bool:
        return self.number is not None


@contextmanager
def stopping(grace: float = GRACE) -> Iterator[Stop]:
    """Let a signal ask the run to stop after its round, inside the block.

    A second Ctrl-C raises `Interrupted`. After any of `ENDING` the process ends `grace` seconds
    later if the block has not.
    """
    stop = Stop()
    since = 0.0
    timer = threading.Timer(grace, lambda: _give_up(stop.number or 0, grace))
    timer.daemon = True

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal since
        is_first = stop.number is None
        if is_first:
            stop.number = number
            since = time.monotonic()
        if number == signal.SIGINT:
            if is_first:
                say("stopping after this round; Ctrl-C again to stop at once")
            elif time.monotonic() - since > _SAME_CTRL_C:
                raise Interrupted(number)
        elif not timer.is_alive():
            timer.start()
            name = signal.Signals(number).name
            say(f"{name}: stopping after this round, or in {grace:g} s (--grace)")

    with _handling(ask):
        try:
            yield stop
        finally:
            timer.cancel()


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C and the other signals within the block.

    Signals that the caller's shell ignores stay ignored.
    """
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # no other gets signals
            for number in (signal.SIGINT, *ENDING):
                if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)


def _give_up(number: int, grace: float) -> None:
    """End the process, and those that it has started."""
    import psutil

    say(f"the round did not end within {grace:g} s: resume from the last checkpoint with --resume")
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            child.kill()
    _end(number)


def _end(number: int) -> NoReturn:
    """End the process without cleaning up.

    Only the terminal's cursor is shown again, which progress bars hide.
    """
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")
    os._exit(128 + number)


seconds_of_loading: dict[str, float] = {}
"""The seconds that this process took to import a module, by its name: they show how busy the
machine is.
"""


def load_torch(module: str = "torch", title: str = "") -> None:
    """Import torch, or a module that needs it.

    This takes seconds. A terminal shows that something happens.

    Args:
        module: what is imported.
        title: what is about to be trained, in a few words. A log has it as its first line.
    """
    from gistgnn.utils.console import spinner

    task = f"starting: {title}" if title else "starting"
    is_slow = "torch" not in sys.modules
    begun = time.perf_counter()
    with spinner(task, shown=leads(), logged=bool(title) and is_slow), ending_at_once():
        import_module(module)
    if is_slow:
        seconds_of_loading["torch"] = time.perf_counter() - begun
    # PyG imports torch._dynamo for a check of compiled models. Without it a run with layers of PyG
    # begins a second earlier; other runs do not import PyG.
    sys.modules.setdefault("torch._dynamo", Later("torch._dynamo"))


class Later(ModuleType):
    """Stands for a slow module, which is imported when something asks for what it holds."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # as `inspect` asks of all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def locked_folder(out: Path) -> Iterator[Path]:
    """Yield a folder that no other process writes while the block lasts.

    What killed processes left there is removed.
    """
    from gistgnn.storage.folder_lock import FolderLock
    from gistgnn.storage.whole_files import remove_leftovers

    with FolderLock(out, advice="give another --out"):
        remove_leftovers(out, _WITH_TEMPORARY_FILES)
        yield out


def refuse_torchrun(what: str, more: str = "") -> None:
    """Raise an InputError if torchrun has started this process; `what` is done in one."""
    if "RANK" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        error = InputError(
            f"{what} in one process, but torchrun has started it: start gistgnn itself{more}"
        )
        error.relayed = True  # every rank raises it
        raise error


_ranks_have_met = False


def tell_ranks(command: str = "") -> None:
    """Tell the other ranks, which wait for this one, that it refuses its options.

    Does nothing if all ranks have met already.
    """
    if command in ("train", "reproduce") and not _ranks_have_met and "RANK" in os.environ:
        from gistgnn.distributed import Ranks

        with contextlib.suppress(GistError):
            Ranks("cpu", _TELLING, ready=False).close()


@contextmanager
def join_ranks(args: "Namespace", device: str) -> "Iterator[World]":
    """Join the other ranks while the block lasts.

    Yields `Alone` if torchrun has not started this process.
    """
    from gistgnn.distributed import Alone, Ranks, started_by_torchrun

    if not started_by_torchrun():
        yield Alone()
        return
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and not args.resume:
        raise InputError(
            "torchrun may restart the ranks (--max-restarts), but --resume is not given: add "
            "--resume and --out DIR"
        )
    if device == "cuda":  # each rank has a GPU of its own
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    with contextlib.closing(Ranks(device, args.timeout)) as ranks:
        global _ranks_have_met
        _ranks_have_met = True
        yield ranks
