"""`--config FILE`: options from a TOML file, or from the result.json of a finished run.

The file's entries become words of the command line, in front of those that are typed. So they are
read and checked in one way, and what is typed wins.
"""

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gistgnn.cli.further_settings import SETTINGS
from gistgnn.cli.options import Parser
from gistgnn.errors import InputError
from gistgnn.storage.whole_files import reading
from gistgnn.utils.checks import did_you_mean, shown

OPTION = "--config"
COMMANDS = ("train", "compare", "plan")
# Settings that say where a run trained. The next one may be on another machine, and chooses for
# itself.
_OF_MACHINE = ("device", "store", "share")
# The name of a setting where it is not that of the field, by the part of the run and the field.
_NAMES: dict[tuple[str, str], str] = {field: name for name, field in SETTINGS.items()}
_NAMES[("sampler", "fanouts")] = "fanout"


def add_option(parser: Parser) -> None:
    """Add ``--config`` to the options of a command."""
    text = "options from a .toml file, or from the result.json of a run; what is typed wins"
    parser.add_argument(OPTION, metavar="FILE", help=text)


def with_config_file(words: Sequence[str], parser: Parser) -> list[str]:
    """Return the words of a command line, with those of its configuration file in front.

    Args:
        words: the command and its options, as they are typed.
        parser: of `gistgnn`.

    Raises:
        InputError: the file cannot be read, or has an entry that is no option of the command.
    """
    words = list(words)
    if not words or words[0] not in COMMANDS:
        return words
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument(OPTION)
    try:
        path = finder.parse_known_args(words[1:])[0].config
    except argparse.ArgumentError:
        return words  # the command's own parser says what is wrong
    if path is None:
        return words
    settings = read_config_file(Path(path).expanduser())
    if path.lower().endswith(".json"):
        settings = _for_command(settings, words[0])
    command: Parser = parser.commands.choices[words[0]]
    return [words[0], *words_of(settings, command, str(path)), *words[1:]]


def read_config_file(path: Path) -> dict[str, Any]:
    """Return the settings of a file by the names of their options, with _ in place of -."""
    advice = "give a .toml file of options, or the result.json of a run"
    with reading(path, advice):
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".json":
            record = json.loads(text)
            try:
                return settings_of_run(record, path)
            except InputError:
                raise
            except (AttributeError, KeyError, TypeError, ValueError):  # other JSON
                raise InputError(f"{path} is not the record of a run; {advice}") from None
        entries = tomllib.loads(text)
    for name, value in entries.items():
        if isinstance(value, dict):
            raise InputError(
                f"{path}: {name} is a table, and options have values: write the options of "
                f"[{name}] at the top of the file"
            )
    return {name.replace("-", "_"): value for name, value in entries.items()}


def settings_of_run(record: Any, path: Path) -> dict[str, Any]:
    """Return the settings in the record of a finished run, by the names of their options."""
    config = dict(record["config"])
    model = dict(config.pop("model"))
    if model.get("own"):
        raise InputError(f"{path} is of a run from Python, whose model no option names")
    if config.pop("partition", "balanced") != "balanced":
        raise InputError(f"{path} is of a run with categorical blocks, which no option gives")
    training = dict(config.pop("training"))
    budget = training.pop("budget", None)
    if budget is not None:
        training["budget"] = f"{budget}s"
        del config["sub_gcns"]  # the budget chooses it
    sampler = dict(config.pop("sampler", None) or {"name": "full"})
    evaluation = dict(config.pop("evaluation"))
    memory = evaluation.pop("memory", None)
    arguments = model.pop("args", {})
    settings: dict[str, Any] = {
        "data_root": record.get("data_root"),
        "model_args": [f"{name}={json.dumps(value)}" for name, value in arguments.items()] or None,
        # In GiB, as the option reads it; half a byte more, as it is rounded down there.
        "evaluation_memory": None if memory is None else f"{(memory + 0.5) / 2**30:.12f}",
        "evaluation": evaluation.pop("method"),
        "model": model.pop("name"),
        "sampler": sampler["name"],
    }
    del sampler["name"]
    parts: dict[str, dict[str, Any]] = {
        "run": config,
        "model": model,
        "training": training,
        "sampler": sampler,
        "evaluation": evaluation,
    }
    for part, fields in parts.items():
        for field, value in fields.items():
            if field not in _OF_MACHINE:
                settings[_NAMES.get((part, field), field)] = value
    return {name: value for name, value in settings.items() if value is not None}


def _for_command(settings: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the settings of a run without those that a command chooses in another way."""
    left_out: tuple[str, ...] = ()
    if command == "compare":  # which has --methods and --seeds
        left_out = ("method", "seed")
    if command == "plan" and settings.get("method") == "gist":  # It plans no other method.
        left_out = ("method",)
    return {name: value for name, value in settings.items() if name not in left_out}


def words_of(settings: Mapping[str, Any], command: Parser, source: str) -> list[str]:
    """Return settings as words of the command line.

    Args:
        settings: by the names of their options, with _ in place of -, or by their names of
            ``--set``.
        command: has the options.
        source: what the message calls the settings, such as the name of their file.

    Raises:
        InputError: a name is neither that of an option nor that of a setting.
    """
    options = {word: option for option in command.options for word in option.option_strings}
    for word in ("-h", "--help", "--help-all", "--set", OPTION):
        del options[word]
    words: list[str] = []
    for name, value in settings.items():
        word = f"--{name.replace('_', '-')}"
        if name in SETTINGS:
            words += ["--set", f"{name}={_text_of(value)}"]
        elif word not in options:
            names = [other.removeprefix("--").replace("-", "_") for other in options]
            hint = (
                did_you_mean(name, [*names, *SETTINGS]) or f": {command.prog} --help-all lists them"
            )
            raise InputError(f"{source}: {shown(name)} is no option{hint}")
        elif options[word].nargs == 0:  # it is given or left out
            opposite = f"--no-{word[2:]}"
            words += _words_of_flag(
                name, value, word, opposite if opposite in options else None, source
            )
        elif isinstance(value, list):
            words += [word, *map(str, value)]
        else:
            words += [word, str(value)]
    return words


def _words_of_flag(
    name: str, value: Any, word: str, opposite: str | None, source: str
) -> list[str]:
    if not isinstance(value, bool):
        raise InputError(f"{source}: {name} is {shown(value)}, expected true or false")
    if value:
        return [word]
    return [] if opposite is None else [opposite]


def _text_of(value: Any) -> str:
    """Return a value as ``--set`` reads it."""
    return value if isinstance(value, str) else json.dumps(value)
