"""What commands print beside their results: log messages, a spinner; and tables that keep paths whole."""

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from threading import Timer
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gistgnn.errors import printable

SLOW = 8.0  # seconds after which a task is named in a log, which has no spinner
_WIDEST = 1000  # columns: wider than any table

_showing = False  # one spinner at a time: the outermost


class Terminal(Console):
    """Standard error, with long lines left whole: the terminal breaks them, so that a path can be copied."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print without breaking lines."""
        super().print(*objects, **{"soft_wrap": True, **options})


def show_log(*, shown: bool = True) -> None:
    """Print gistgnn's log messages from level INFO on as ``gistgnn: note: ...`` on standard error, or hide them."""
    logger = logging.getLogger("gistgnn")
    logger.handlers.clear()
    logger.addHandler(_NoteHandler() if shown else logging.NullHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = f"gistgnn: note: {printable(record.getMessage())}"
        print(text, file=sys.stderr)  # read sys.stderr now: progress bars replace it


@contextlib.contextmanager
def spinner(task: str, *, shown: bool, logged: bool = False) -> Iterator[None]:
    """Say on standard error what the block does, if `shown`; within another spinner, nothing."""
    # A terminal shows a spinner. Elsewhere one line is printed: at once if `logged`, or else after `SLOW` seconds.
    global _showing
    if not shown or _showing:
        yield
        return
    console, task, notice = Terminal(), printable(task), None
    _showing = True
    try:
        if console.is_terminal:
            with console.status(Text(task)):
                yield
            return
        if logged:
            _log(task)
        else:
            notice = Timer(SLOW, _log, (task,))
            notice.daemon = True
            notice.start()
        yield
    finally:
        _showing = False
        if notice:
            notice.cancel()


def _log(task: str) -> None:
    print(f"gistgnn: {task}", file=sys.stderr, flush=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = ()) -> None:
    """Print a table, under a title if it has one, with whole cells. Columns in `left` are aligned left."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if title:
        print(printable(title))
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(width=_WIDEST, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)
