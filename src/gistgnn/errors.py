"""The errors that a user can cause and mend, and their one-line messages."""

from typing import Any

_LONGEST = 160


class InputError(ValueError):
    """A value that gistgnn cannot work with.

    The message is one line that says what is wrong, which value, and what to do; the command line
    prints it as it is and exits with status 2.

    Attributes:
        relayed: all ranks of a run raise it, and rank 0 alone has to say so.
    """

    relayed = False


class DivergedError(InputError):
    """A sub-GCN's loss or parameters became NaN or infinite; Θ is as it was before that round.

    Args:
        round_number: t of the round in which it happened, from 0; the message counts from 1, as result.json does.
        what: the value that is not finite.
    """

    def __init__(self, round_number: int, what: str) -> None:
        super().__init__(
            f"training diverged in round {round_number + 1}: {what}; the parameters from before that round are kept; "
            "try a smaller learning rate or clip the gradient"
        )
        self.round_number, self.what = round_number, what
        self.result: Any = None  # of `GIST.fit`: what the run had reached

    def __reduce__(self) -> tuple[type["DivergedError"], tuple[int, str]]:
        """Let the error cross processes; the result stays behind."""
        return type(self), (self.round_number, self.what)


def reason(error: BaseException) -> str:
    """The type and text of an error on one line, cut to a length that a terminal shows.

    Args:
        error: what another library raised; its text may run over many lines.

    Returns:
        For example ``"BadZipFile: File is not a zip file"``.
    """
    text = " ".join(str(error).split())
    if len(text) > _LONGEST:
        text = text[:_LONGEST].rstrip() + "..."
    name = type(error).__name__
    return f"{name}: {text}" if text else name
