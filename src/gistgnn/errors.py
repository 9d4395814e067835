"""The errors that a user can cause and fix.

Their messages are one line, which the command line prints as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unicodedata import category

_LONGEST_REASON = 160  # In characters.
# The characters of a line, and of its end where its middle is left out.
_LONGEST_LINE = 700
_END = 200


class GistError(Exception):
    """Base of the errors that gistgnn raises on purpose.

    The message is one line: what is wrong, the value, and what to do. The command line prints it
    and exits with status 2.
    """

    relayed = False  # Whether every rank of the run raises this error, and rank 0 alone prints it.


class InputError(GistError, ValueError):
    """A value, a file or a setting that gistgnn cannot work with.

    Any function that is given one may raise it.
    """


class RankLostError(GistError):
    """Another rank has died, hangs, or cannot be reached."""


class DivergedError(GistError):
    """The loss or the parameters of a sub-GCN became NaN or infinite.

    Θ is as it was before that round.

    Attributes:
        result: what `GIST.fit` had reached, a `Result`; None outside of `fit`.
    """

    def __init__(self, round_number: int, what: str) -> None:
        super().__init__(
            f"training diverged in round {round_number + 1}: {what}; the parameters from before "
            "that round are kept; try a smaller learning rate or clip the gradient"
        )
        self.round_number = round_number
        self.what = what
        self.result: Any = None

    def blame_nodes(self, nodes: str) -> None:
        """Say in the message for which nodes even an untrained model has no finite output.

        Args:
            nodes: these nodes in words.
        """
        self.args = (
            f"training diverged in round {self.round_number + 1}: {self.what}, and also untrained "
            f"the model's output is not finite for {nodes}; the parameters from before that round "
            "are kept; see what the model does with these nodes, or leave them out",
        )

    def __reduce__(self) -> tuple[type["DivergedError"], tuple[int, str]]:
        """Let the error travel between processes, without the result."""
        return type(self), (self.round_number, self.what)


def printable(text: object) -> str:
    r"""Return a text with escapes, such as \n, for all characters that cannot be printed.

    Names of files may have any characters: a terminal would obey some of them, and others cannot be
    written.
    """
    return "".join(
        c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in str(text)
    )


def one_line(text: object) -> str:
    """Return a text as `printable` does; the middle of a very long one is left out."""
    line = printable(text)
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[: _LONGEST_LINE - _END]} ... {line[-_END:]}"


def reason(error: BaseException) -> str:
    """Return the type and the text of another library's error on one line.

    An example is "BadZipFile: File is not a zip file".
    """
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_REASON:
        text = text[:_LONGEST_REASON].rstrip() + "..."
    name = type(error).__name__
    return f"{name}: {text}" if text else name


@contextmanager
def users_code(failure: str, advice: str = "") -> Iterator[None]:
    """Turn an error of the user's code in the block into an InputError.

    Its message is the failure, the reason and the advice.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # The user's code may raise anything.
        raise InputError(f"{failure} ({reason(error)}){advice and ': '}{advice}") from error


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that Python, NumPy or torch could not get memory."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "allocate mem" in str(error)
    )
