"""The errors that a user can cause and mend."""


class InputError(ValueError):
    """A value that gistgnn cannot work with.

    The message is one line that says what is wrong, which value, and what to do; the command line
    prints it as it is and exits with status 2.
    """
