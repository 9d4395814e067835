"""The errors that a user can cause and mend, and their one-line messages."""

_LONGEST = 160


class InputError(ValueError):
    """A value that gistgnn cannot work with.

    The message is one line that says what is wrong, which value, and what to do; the command line
    prints it as it is and exits with status 2.
    """


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
