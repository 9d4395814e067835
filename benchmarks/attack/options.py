"""Every option of every command, as its parser has it, with the extremes of its type."""

import argparse
import math
from functools import cache
from random import Random

from benchmarks.attack.case import Outcome, Report, Workspace, run_command
from gistgnn.cli.main import make_parser

# For each command its share of the cases, and options with which it is quick and valid. DIR is a
# finished run.
COMMANDS = {
    "train": (60, "--dataset own.npz --hidden 8 8 --sub-gcns 2 --epochs 2 --device cpu --out out"),
    "plan": (20, "--dataset own.npz --hidden 8 8 --device cpu --no-measure"),
    "compare": (1, "--dataset own.npz --hidden 8 --sub-gcns 2 --epochs 1 --device cpu --out out"),
    "list": (2, "DIR"),
    "evaluate": (8, "DIR --device cpu"),
    "predict": (8, "DIR --device cpu --output out.csv"),
    "export": (4, "DIR --to pyg --out exported"),
    "datasets": (3, "own.npz"),
    "partition": (6, "--dataset own.npz --clusters 4"),
    "convert": (8, "own.npz out"),
    "reproduce ultrawide": (
        3,
        "--datasets own.npz --widths 8 --sub-gcns 2 --epochs 1 --clusters 4 --out out",
    ),
    "theory check": (6, "karate"),
}
# Settings that other options of a command that trains may need.
CONTEXTS = ["", "", "--sampler clusters --clusters 4 --clusters-per-batch 2"]
CONTEXTS += ["--sampler ladies", "--sampler fastgcn", "--sampler neighbor"]
CONTEXTS += ["--sampler saint-node", "--sampler saint-edge", "--sampler saint-rw"]
CONTEXTS += ["--model gat", "--runner fused", "--optimizer sgd", "--evaluation parts --set parts=2"]
INTEGERS = ["0", "-1", "1", "2"]
INTEGERS += map(str, (2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**31), -(2**63), 10**30))
INTEGERS += [str(-(10**30)), "1_000", "٣", "²", "+1", "0x10", "9" * 5000]
FLOATS = ["nan", "inf", "-inf", "-0.0", "0.0", "1e-320", "1e300", "-1e300", "1e30", "1e999"]
FLOATS += ["0.5", "1", "1.0000001"]
TEXTS = ["", " ", "a" * 5000, "a\nb", "\x1b[31mred", "$x_{$", "\udcff\udcfe", "../..", "/"]
TEXTS += ["a:b", ":", "%s%n{}", "-", "@", "/dev/zero", "/dev/null", "pipe", "pipe.npz", "pipe.pt"]
TEXTS += ["own.npz", "absent.npz", "~nobody/x", "own.npz/x"]
TEXTS += ["synthetic:reddit@1e-9", "synthetic:reddit@nan", "synthetic:reddit@1e300"]
TEXTS += ["1:1", "1e30:1", "2:nan", "1:1,lr=inf", "1e300min", "9" * 40 + "h"]
TEXTS += ["a=1", "a=" + "[" * 9000, "cuda:" + "9" * 30]


def command_words(command: str, workspace: Workspace) -> list[str]:
    """Return the quick and valid command line of a command, without its name."""
    _, line = COMMANDS[command]
    run = str(workspace.valid / "run")
    return [run if word == "DIR" else word for word in line.split()]


def options(rng: Random, workspace: Workspace) -> Report:
    """Run a command with one to three of its options at extremes."""
    command = rng.choices(list(COMMANDS), [share for share, _ in COMMANDS.values()])[0]
    words = [*command.split(), *command_words(command, workspace)]
    actions = actions_of(command)
    if command in ("train", "plan") and rng.random() < 0.6:
        words += rng.choice(CONTEXTS).split()
    impossible = False
    for action in rng.sample(actions, min(rng.choice([1, 1, 1, 2, 3]), len(actions))):
        if action.option_strings and action.nargs != 0 and rng.random() < 0.05:
            # Of this argparse makes an empty list.
            words.append(f"{action.option_strings[-1]}=--")
            impossible = True
            continue
        values = _values(rng, action)
        impossible |= any(_impossible(action, value) for value in values)
        if action.option_strings:
            words.append(rng.choice(action.option_strings))
        words += values

    def judge(outcome: Outcome) -> str:
        accepted = impossible and outcome.status == 0
        return "accepts a number that nothing can have" if accepted else ""

    return run_command(workspace, words, judge)


@cache
def actions_of(command: str) -> list[argparse.Action]:
    """Return the options of a command, without those that show a help text."""
    parser = make_parser()
    for word in command.split():
        parser = parser.commands.choices[word]
    return [action for action in parser.options if not action.dest.startswith("help")]


def _values(rng: Random, action: argparse.Action) -> list[str]:
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return []
    count = rng.choice([1, 1, 1, 2, 3, 0, 60]) if action.nargs in ("+", "*") else 1
    return [_value(rng, action) for _ in range(count)]


def _is_text(action: argparse.Action) -> bool:
    return action.type in (str, None) or "ath" in str(action.type)


def _value(rng: Random, action: argparse.Action) -> str:
    if action.choices and rng.random() < 0.6:
        return str(rng.choice(list(action.choices)))
    if _is_text(action):
        pools = (TEXTS, INTEGERS, FLOATS)
        weights = (6, 1, 1)
    elif action.type is float or "second" in str(action.type) or "bytes" in str(action.type):
        pools = (FLOATS, INTEGERS, TEXTS)
        weights = (6, 2, 1)
    else:
        pools = (INTEGERS, FLOATS, TEXTS)
        weights = (6, 2, 1)
    return rng.choice(rng.choices(pools, weights)[0])


def _impossible(action: argparse.Action, value: str) -> bool:
    """Return whether a number is one that no run can have: not finite, or beyond 64 bits."""
    if _is_text(action) or action.choices:
        return False
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        return not math.isfinite(number) or abs(number) >= 2**63
    return False
