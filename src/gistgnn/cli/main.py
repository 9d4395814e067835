"""`gistgnn`: reads the command line and runs one command.

A command is a module with `add_parser(commands)`, which names the function that runs it. This
imports slow modules itself, so that `gistgnn --help` answers at once.
"""

import logging
import os
import signal
import sys
from argparse import SUPPRESS
from collections.abc import Sequence

from gistgnn.cli import (
    compare,
    convert,
    datasets,
    evaluate,
    export,
    list_runs,
    plan,
    reproduce,
    theory,
    train,
)
from gistgnn.cli.config_file import with_config_file
from gistgnn.cli.messages import as_typed
from gistgnn.cli.options import BAD_INPUT, Parser
from gistgnn.cli.process import Interrupted, leads, raising, say, tell_ranks
from gistgnn.cli.streams import open_streams
from gistgnn.errors import GistError, InputError, RankLostError, lacks_memory, one_line, reason

BROKEN_PIPE = 141  # exit status

_DESCRIPTION = (
    "Train wide graph neural networks by GIST: split every hidden layer into m random blocks, "
    "train the m narrow sub-networks, write them back, draw new blocks, repeat."
)
_EXAMPLE = """
gistgnn train --dataset cora --sub-gcns 4 --out runs/cora
gistgnn evaluate runs/cora
gistgnn train --help
"""


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="gistgnn", description=_DESCRIPTION, example=_EXAMPLE)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("--print-completion", action="store_true", help=SUPPRESS)
    commands = parser.add_commands("COMMAND", required=False)
    for command in (
        train,
        compare,
        list_runs,
        plan,
        evaluate,
        export,
        datasets,
        convert,
        reproduce,
        theory,
    ):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    It is 0, 2 for bad input, or 128 + signal where a signal has ended the command.
    """
    open_streams()
    words = sys.argv[1:] if argv is None else [*argv]
    others_wait = False  # whether the other ranks wait for this one, which refuses its options
    # Threads that wait by spinning slow torch tenfold on a busy machine; torch reads this when it
    # is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # torch prints traces of its own for connections that fail; our error says what to do.
    if "RANK" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with raising():
            try:
                return _run(words)
            finally:
                sys.stdout.flush()
    except SystemExit as end:
        if end.code == BAD_INPUT:
            tell_ranks(*words[:1])
        raise
    except GistError as error:
        others_wait = not (error.relayed or isinstance(error, RankLostError))
        rank = "" if leads() else f"rank {os.environ['RANK']}: "
        message = f"{rank}{one_line(error)}" if leads() or not error.relayed else ""
    except BrokenPipeError:  # the program that reads our output has ended, as `head` does
        return BROKEN_PIPE
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        message = f"out of memory ({one_line(reason(error))}): make the run smaller"
    # a path that the system refuses to look at, or standard output on a full disk
    except OSError as error:
        message = one_line(reason(error))
    except KeyboardInterrupt as interrupt:
        say("interrupted")
        return 128 + (interrupt.number if isinstance(interrupt, Interrupted) else signal.SIGINT)
    if message:  # written in one piece: lines of several ranks would mix
        sys.stderr.write(f"gistgnn: error: {message}\n")
    if others_wait:
        tell_ranks(*words[:1])
    return BAD_INPUT


def _run(words: Sequence[str]) -> int:
    """Read the command line, run its command, and return the exit status."""
    parser = make_parser()
    args = parser.parse_args(with_config_file(words, parser))
    if args.version:
        from gistgnn import __version__

        print(f"gistgnn {__version__}")
        return 0
    if args.print_completion:
        from gistgnn.cli.completion import completion_script

        print(completion_script(parser), end="")
        return 0
    if not hasattr(args, "run"):
        commands = ", ".join(parser.commands.choices)
        parser.error(f"COMMAND is missing, expected one of {commands}: see gistgnn --help")
    if args.quiet and args.verbose:
        raise InputError("--quiet and --verbose are both given: leave one out")
    from gistgnn.utils.console import show_log

    level = logging.ERROR if args.quiet else logging.DEBUG if args.verbose else logging.INFO
    show_log(level, shown=leads())
    try:
        status: int = args.run(args)
    except GistError as error:
        error.args = (as_typed(str(error), args.parser.options),)
        raise
    return status
