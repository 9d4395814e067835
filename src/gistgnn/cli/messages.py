"""Messages of errors in the user's own words: settings are called by their options, as typed."""

import re
from argparse import Action
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from gistgnn.errors import InputError
from gistgnn.utils.checks import did_you_mean

# What argparse says of a value, and how our own messages say it.
_OF_ARGPARSE = (
    (r"invalid int value: (.*)", r"is \1, expected an integer"),
    (r"invalid float value: (.*)", r"is \1, expected a number"),
    (r"expected (.*) arguments?", r"has too few values: give \1"),
)


def as_typed(message: str, options: Iterable[Action]) -> str:
    """Return a message in which settings have the names of options, such as --sub-gcns.

    Settings are called by the names of fields in Python: one at the beginning of a message, of
    which it says what it is, and those with an underscore anywhere. What stands in quotes, in a
    path or before a = is the user's own, or Python.

    Args:
        message: of an error.
        options: those of the command.
    """
    names = {
        option.dest: max(option.option_strings, key=len)
        for option in options
        if option.option_strings
    }
    first = re.match(r"(\w+)(?= (?:is|has|are) )", message)
    if first is not None and first[1] in names:
        message = names[first[1]] + message[first.end() :]
    message = re.sub(r"^(--\S+ is -?\d+)\.0,", r"\1,", message)  # 0 was typed, and read as 0.0
    long_names = "|".join(re.escape(name) for name in names if "_" in name)
    if not long_names:
        return message
    return re.sub(
        rf"(?<![\w./'\"`-])({long_names})(?![\w./'\"`=-])", lambda name: names[name[1]], message
    )


@contextmanager
def fields_as_options(names: Mapping[str, str]) -> Iterator[None]:
    """Let refusals in the block call a field by the name of its option.

    Args:
        names: of options, by the field, where these differ. A message begins with the field.
    """
    try:
        yield
    except InputError as error:
        field, *words = str(error).split(" ")
        raise InputError(" ".join([names.get(field, field), *words])) from None


def of_argparse(message: str) -> str:
    """Return what argparse says of an option or an argument as our own messages say it."""
    parts = re.fullmatch(r"argument ([^:]+): (.*)", message)
    if parts is None:
        missing = re.fullmatch(r"the following arguments are required: (.*)", message)
        if missing is None:
            return message
        return f"{missing[1]} {'are' if ', ' in missing[1] else 'is'} missing"
    name = max(parts[1].split("/"), key=len)
    text = parts[2]
    if choice := re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", text):
        value = choice[1].strip("'")
        choices = choice[2].replace("'", "")
        hint = did_you_mean(value, choices.split(", "))
        return f"{name} is '{value}', expected one of {choices}{hint}"
    for pattern, replacement in _OF_ARGPARSE:
        text = re.sub(f"^{pattern}$", replacement, text)
    return f"{name} {text}" if re.match(r"(?:is|has) ", text) else f"{name}: {text}"
