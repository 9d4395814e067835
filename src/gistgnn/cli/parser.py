"""The parser of a command: a short help with what matters most, and a long one with every option."""

import argparse
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gistgnn.errors import one_line

BAD_INPUT = 2  # exit status

_WIDE = 28  # columns before the help texts


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong option in one line, and whose --help is short.

    --help shows the `common` options alone, such as "--dataset", and --help-all the rest, too; without any, --help
    shows all. Both show the `example`: commands, one a line.
    """

    def __init__(self, *, common: Sequence[str] = (), example: str = "", **options: Any) -> None:
        super().__init__(formatter_class=_formatter, allow_abbrev=False, **options)
        self._common, self._example = tuple(common), example
        if common:
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=SUPPRESS, help="show all options")

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(BAD_INPUT, f"{self.prog}: error: {one_line(message)} (see {self.prog} --help)\n")

    def format_help(self, *, every: bool = False) -> str:
        """Return the text of --help, or of --help-all."""
        every, formatter = every or not self._common, self._get_formatter()
        positionals = [action for action in self._actions if not action.option_strings]
        groups = [(group.title, group._group_actions) for group in self._action_groups]
        if not every:
            named = self._option_string_actions
            groups = [("arguments", positionals), ("most used options", [named[name] for name in self._common])]
        formatter.add_usage(f"{self.prog} [options]", positionals, [], "usage: ")
        formatter.add_text(self.description)
        for title, actions in groups:
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        text = formatter.format_help()
        if self._example:
            text += "\nexample:\n" + "".join(f"  $ {line}\n" for line in self._example.splitlines())
        if not every:
            hidden = len([action for action in self._actions if action.option_strings]) - len(self._common) - 2
            text += f"\n{self.prog} --help-all shows {hidden} more options.\n"
        return text


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, **options: Any
) -> Parser:
    """Return the parser of a new command: `run` does it, `text` says what it does; `options` are those of `Parser`."""
    parser: Parser = commands.add_parser(name, help=text, **options)
    parser.set_defaults(run=run)
    return parser


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_help(every=True), sys.stdout)
        parser.exit()


class _formatter(argparse.HelpFormatter):  # noqa: N801  # argparse calls it with the program's name
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_WIDE)

    def _format_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None) -> str:
        """Return the usage: "[options]" and the positional arguments, on one line."""
        words = " ".join(self._format_args(action, str(action.metavar or action.dest)) for action in actions)
        text = f"{'usage: ' if prefix is None else prefix}{usage or self._prog} {words}".rstrip()
        return f"{text}\n\n"  # `add_subparsers` strips it
