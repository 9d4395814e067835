"""Parsers of commands, and options that several commands share or that fields declare."""

import argparse
import json
import os
import re
import sys
import textwrap
from argparse import SUPPRESS
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from msgspec import inspect

from gistgnn.cli import values
from gistgnn.cli.messages import of_argparse
from gistgnn.cli.process import GRACE
from gistgnn.errors import one_line
from gistgnn.utils.checks import (
    choices_of,
    did_you_mean,
    meta_of,
    setting_types,
    types_of,
    words_of,
)

BAD_INPUT = 2  # exit status
# As in `gistgnn.graphs.clustering` and `gistgnn.evaluation`, which import torch.
CLUSTER_METHODS = ("metis", "stream", "random")
TRAINING_CLUSTER_METHODS = ("metis", "split", "stream", "random")
GRAPH_FILES = (".npz", ".pt")  # as in `gistgnn.graphs.files`
EVALUATION_METHODS = ("auto", "whole", "layers", "parts")
# The names of options, by the field of `Evaluation`, where these differ.
NAMES_OF_EVALUATION = {"memory": "evaluation_memory", "sample": "parts_sample"}
MOST_USED = (
    "--dataset", "--data-root", "--model", "--hidden", "--sub-gcns", "--epochs", "--sampler",
    "--clusters", "--device",
)  # fmt: skip
HELP_ALL = "--help-all"
_SCREEN = 79  # columns
_SHORT_COLUMN = 31  # where the help of an option begins on a screen


class Group:
    """Options of a command under a title of their own; `options` has those that were added."""

    def __init__(self, title: str, add: Callable[..., argparse.Action]) -> None:
        self.title = title
        self.options: list[argparse.Action] = []
        self._add = add

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an option, or an argument without a name; see `ArgumentParser.add_argument`."""
        option = self._add(*names, **settings)
        self.options.append(option)
        return option


class Parser(argparse.ArgumentParser):
    """The options of a command; a wrong one is refused in one line, with the nearest that exists.

    What a command's parser returns has `typed`: the names of the options that were given, with a
    value that may be their default.

    Args:
        common: the options that --help shows; --help-all shows the others, too. Defaults to all.
        example: command lines at the end of the help.
        settings: of `argparse.ArgumentParser`.

    Attributes:
        groups: the groups of options, first those without a group of their own.
        commands: what `add_subparsers` has returned, whose `choices` has the commands by name.
        names_of_set: the settings that ``--set`` takes.
        details: what --help-all shows below the options.
    """

    def __init__(self, *, common: Sequence[str] = (), example: str = "", **settings: Any) -> None:
        self.groups = [Group("options", super().add_argument)]
        self.commands: Any = None
        self.common = set(common)
        self.names_of_set: Collection[str] = ()
        self.details = ""
        self._example = example.strip()
        formatter = partial(argparse.HelpFormatter, max_help_position=28)
        super().__init__(allow_abbrev=False, formatter_class=formatter, **settings)
        if common:
            self.common |= {"--help", HELP_ALL, "--quiet", "--verbose"}
            text = "show all options"
            self.add_argument(HELP_ALL, action="store_true", default=SUPPRESS, help=text)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        return self.groups[0].add_argument(*names, **settings)

    def add_group(self, title: str) -> Group:
        """Return a new group of options."""
        self.groups.append(Group(title, self.add_argument_group(title).add_argument))
        return self.groups[-1]

    def add_commands(self, metavar: str, *, required: bool = True) -> Any:
        """Return what new commands are added to; see `add_command`."""
        self.commands = self.add_subparsers(metavar=metavar, prog=self.prog, required=required)
        self.usage = f"%(prog)s [options] {metavar} ..."
        return self.commands

    @property
    def options(self) -> list[argparse.Action]:
        """Everything that the command takes."""
        return [option for group in self.groups for option in group.options]

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with status 2."""
        text = one_line(of_argparse(message))
        if re.search(r" (is|are) missing$", text):
            text += f": see {self.prog} --help"
        self.exit(BAD_INPUT, f"gistgnn: error: {text}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Read words as argparse does; refuse here what is unknown, not in the root's parser."""
        words = sys.argv[1:] if args is None else list(args)
        if self.commands is not None:
            self._require_command(words)
        if self.common and HELP_ALL in words:
            self.common = set()
            self.print_help()
            self.exit()
        args, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(next((word for word in unknown if word.startswith("-")), unknown[0]))
        if self.commands is None:
            args.typed = self._typed_options(words)
        for name, value in vars(args).items():  # a shell leaves the ~ in --out=~/run as it is
            setattr(args, name, _in_home(value))
        for option in self.options:  # argparse makes an empty list of --option=--
            if option.option_strings and getattr(args, option.dest, None) == []:
                self.error(f"argument {'/'.join(option.option_strings)}: has no value, but --")
        return args, unknown

    def _typed_options(self, words: Sequence[str]) -> set[str]:
        """Return the names of the options that are among the words of a command line."""
        typed = {word.partition("=")[0] for word in words}
        return {
            option.dest for option in self.options if not typed.isdisjoint(option.option_strings)
        }

    def _refuse(self, word: str) -> NoReturn:
        """Refuse an option, or an argument without a name, that the command does not have."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"'{word}' is one argument too many: {self.prog} --help shows its options")
        setting = name.lstrip("-").replace("-", "_")
        if setting in self.names_of_set:
            hint = f": give --set {setting}=VALUE"
        else:
            flags = [flag for option in self.options for flag in option.option_strings]
            help_option = HELP_ALL if self.common else "--help"
            hint = did_you_mean(name, flags) or f": {self.prog} {help_option} lists them"
        self.error(f"{name} is no option of {self.prog}{hint}")

    def _require_command(self, words: Sequence[str]) -> None:
        """Refuse a command that does not exist; no option before the command takes a value."""
        names = list(self.commands.choices)
        name = next((word for word in words if not word.startswith("-")), None)
        if name is not None and name not in names:
            kind = self.commands.metavar.lower()
            self.error(
                f"'{name}' is no {kind}, expected one of {', '.join(names)}"
                f"{did_you_mean(name, names)}"
            )

    def format_help(self) -> str:
        hidden = [option for option in self.options if not self._is_common(option)]
        if self.common and hidden:
            text = self._short_help(len(hidden))
        else:
            text = super().format_help()
            if self.details:
                text += f"\n{self.details}\n"
        if self._example:
            text += "\nexample:\n"
            text += "".join(f"  $ {line}\n" for line in self._example.splitlines())
        return text

    def _short_help(self, hidden: int) -> str:
        """Return a help of one screen: the most used options, with short lists of choices."""
        shown = [option for option in self.options if self._is_common(option)]
        lines = [
            *self.format_usage().splitlines(),
            "",
            *textwrap.wrap(self.description or "", _SCREEN),
            "",
            *chain.from_iterable(map(_short_lines, shown)),
            "",
            f"{self.prog} --help-all says more of these, and shows {hidden} more options.",
        ]
        return "\n".join(lines) + "\n"

    def _is_common(self, option: argparse.Action) -> bool:
        return not option.option_strings or not self.common.isdisjoint(option.option_strings)


def _short_lines(option: argparse.Action) -> list[str]:
    """Return an option with what it is for, as lines of a screen."""
    value = option.metavar if isinstance(option.metavar, str) else option.dest.upper()
    text = (option.help or "").replace("%%", "%")
    choices = ", ".join(choices_shown(option))
    if choices:  # They take the place of the help, but for the name of the default.
        value = "NAME"
        default = re.search(r" \(default: [^:;]*", text)
        text = choices + (f"{default[0].rstrip(')')})" if default else "")
    if option.nargs in ("+", "*"):
        value += " ..."
    name = ", ".join(option.option_strings)
    if option.nargs != 0:
        name = f"{name} {value}".strip()
    lines = textwrap.wrap(text, _SCREEN - _SHORT_COLUMN) or [""]
    indent = " " * _SHORT_COLUMN
    return [f"  {name:<{_SHORT_COLUMN - 2}}{lines[0]}", *(indent + line for line in lines[1:])]


def choices_shown(option: argparse.Action) -> list[str]:
    """Return the words that an option offers; it may take others as well.

    Those of a model are in its metavar, as "{gcn,gat}", since it may be a function of the user's.
    """
    if option.choices:
        return [str(choice) for choice in option.choices]
    metavar = option.metavar
    if isinstance(metavar, str) and metavar.startswith("{"):
        return metavar.strip("{}").split(",")
    return []


def _in_home(value: Any) -> Any:
    """Return a path, or paths, with the user's home folder for a ~; other values as they are."""
    if isinstance(value, list):
        return [_in_home(item) for item in value]
    if isinstance(value, (str, Path)) and str(value).startswith("~"):
        return type(value)(os.path.expanduser(value))
    return value


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    *,
    takes: str = "",
    **settings: Any,
) -> Parser:
    """Return the parser of a new command.

    Args:
        commands: what `Parser.add_commands` has returned.
        name: of the command.
        run: does what the command is for, and returns the exit status.
        text: what the command does, in the list of commands.
        takes: the arguments without a name, as the usage shows them, such as "DIR".
        settings: of `Parser`.
    """
    usage = f"%(prog)s [options] {takes}".rstrip()
    parser: Parser = commands.add_parser(name, help=text, usage=usage, **settings)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="show errors and the result alone"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is chosen, and why")
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_fields(
    options: Parser | Group,
    settings: Any,
    *names: str,
    special: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Add the options of some settings, as the types of their fields describe them.

    Args:
        options: what they are added to.
        settings: a dataclass, or an object of one, whose values are then the defaults.
        names: of the fields. For their types see `gistgnn.utils.checks.setting_types`.
        special: arguments of `add_argument` that replace those of a field, by its name. Two are not
            argparse's: "flag" is the option's name, and "shown" is the default in the help.
    """
    hints = setting_types(settings if isinstance(settings, type) else type(settings))
    for name in names:
        arguments = {
            "default": getattr(settings, name, None),
            **_arguments(hints[name]),
            **special.get(name, {}),
        }
        shown = arguments.pop("shown", arguments["default"])
        if isinstance(shown, float):
            shown = f"{shown:g}"
        note = "" if shown is None or shown is False else f" (default: {shown})"
        arguments["help"] = f"{arguments['help']}{note}".strip().replace("%", "%%")
        options.add_argument(
            arguments.pop("flag", f"--{name.replace('_', '-')}"),
            dest=arguments.pop("dest", name),
            **arguments,
        )


def _arguments(hint: Any) -> dict[str, Any]:
    """Return what `add_argument` takes, as it follows from the type of a setting."""
    meta = meta_of(hint)
    types = types_of(hint)
    first = types[0]
    arguments: dict[str, Any] = {"help": meta.description or ""}
    if isinstance(first, inspect.BoolType):
        may_be_none = len(types) > 1
        arguments["action"] = argparse.BooleanOptionalAction if may_be_none else "store_true"
        return arguments
    if choices := choices_of(hint):
        return {**arguments, "choices": list(choices)}
    arguments["metavar"] = (meta.extra or {}).get("metavar")
    if isinstance(first, inspect.VarTupleType):
        return {**arguments, "nargs": "+", "type": int}
    if isinstance(first, inspect.IntType):
        words = words_of(types)
        return {**arguments, "type": partial(values.word_or_integer, words) if words else int}
    return {**arguments, "type": float} if isinstance(first, inspect.FloatType) else arguments


def data_root() -> str:
    """Return where named data sets are, unless an option says it.

    That is the environment variable GISTGNN_DATA, or else data.
    """
    return os.environ.get("GISTGNN_DATA") or "data"


def add_data_options(options: Parser | Group, *, default: str | None) -> None:
    """Add --dataset and --data-root; without a default they are the run's."""
    text = (
        f"a name of `gistgnn datasets`, a {' or '.join(GRAPH_FILES)}, or a folder of "
        "`gistgnn convert` "
        f"(default: {default or 'the data set of the run'})"
    )
    options.add_argument("--dataset", default=default, metavar="NAME|FILE|FOLDER", help=text)
    if default:
        add_shared(options, "--data-root")
    else:
        options.add_argument(
            "--data-root", metavar="DIR", help="where named data sets are (default: as in the run)"
        )


def print_json(record: Any) -> int:
    """Print what --json asks for; return the exit status 0."""
    print(json.dumps(record, indent=2, default=list))
    return 0


def add_evaluation_options(
    parser: Parser, *, default: str | None, parts: bool = True, sample: bool = True
) -> None:
    """Add the options of the evaluation.

    Args:
        parser: of the command.
        default: the method without the option; None: that of the run.
        parts: whether the command has --parts.
        sample: whether it has --parts-sample, too.
    """
    add = parser.add_group("evaluation").add_argument
    text = (
        "whole: all of the graph at once; layers: layer by layer, exact; parts: part by part, "
        "approximate; auto: layers if the whole graph takes more memory than it may "
        f"(default: {default or 'as in the run'})"
    )
    add("--evaluation", choices=EVALUATION_METHODS, help=text)
    add(
        "--evaluation-memory",
        type=values.memory_size,
        metavar="GIB",
        help="for a pass (default: half of what is available)",
    )
    if parts:
        add(
            "--parts",
            type=values.count,
            metavar="P",
            help="number of parts that METIS cuts the graph into",
        )
    if parts and sample:
        shown = "as in the run; all, if --parts is given"
        add(
            "--parts-sample",
            type=values.count,
            metavar="K",
            help=f"score K random parts, by the seed (default: {shown})",
        )


_SHARED: dict[str, dict[str, Any]] = {
    "--data-root": dict(
        metavar="DIR", help="where named data sets are, or go (default: $GISTGNN_DATA, or data)"
    ),
    "--device": dict(
        type=values.device,
        default="auto",
        metavar="DEVICE",
        help="auto, cpu, cuda or cuda:N (default: auto)",
    ),
    "--json": dict(action="store_true", help="print JSON alone on standard output"),
    "--memory": dict(
        type=values.memory_size,
        metavar="GIB",
        help="what it may take on its device (default: what is free)",
    ),
    "--out": dict(
        type=Path, metavar="DIR", help="where runs, table and report are kept; the same DIR resumes"
    ),
    "--timeout": dict(
        type=values.seconds,
        default=1800.0,
        metavar="TIME",
        help="torchrun: for a rank (default: 30min)",
    ),
    "--grace": dict(
        type=values.seconds,
        default=GRACE,
        metavar="TIME",
        help="for the round after SIGTERM (default: 30s)",
    ),
}
RANKS = ("--timeout", "--grace")


def add_shared(options: Parser | Group, *names: str, **changes: Any) -> None:
    """Add options that several commands have; `changes` are other arguments of `add_argument`."""
    for name in names:
        arguments = {**_SHARED[name], **changes}
        if name == "--data-root":
            arguments["default"] = data_root()
        elif changes:
            arguments["help"] += f" (default: {changes['default']})"
        options.add_argument(name, **arguments)
