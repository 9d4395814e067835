"""`gistgnn train`: train one model on one graph."""

import argparse
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options, values
from gistgnn.cli.process import Stop, join_ranks, leads, locked_folder, say, stopping, world_size
from gistgnn.cli.training_options import (
    add_training_options,
    config_from_args,
    given_sub_gcns,
    graph_of,
    seconds_left,
    sizes_of,
    title_of,
    without_dataset,
)
from gistgnn.errors import DivergedError, InputError, lacks_memory, printable
from gistgnn.fit.loggers import LOGGERS, require_loggers, start_logger
from gistgnn.runs.config import RunConfig
from gistgnn.sampling.registry import AUTO
from gistgnn.utils.formats import NBSP, plural, size

if TYPE_CHECKING:
    from torch import Tensor

    from gistgnn.distributed import World
    from gistgnn.fit.result import Result
    from gistgnn.gist import GIST
    from gistgnn.graphs import Graph, Standardisation

log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = options.add_command(
        commands, "train", _run, "train a model on a graph",
        description="Train a model on a graph, and write its best version, its scores and a report "
        "into a folder. Ctrl-C and SIGTERM stop after the current round; --resume goes on.",
        example="gistgnn train --dataset cora --hidden 256 256 --sub-gcns 4 --out runs/cora\n"
        "gistgnn train --dataset mine.npz --budget 10min",
        common=(*options.MOST_USED, "--budget", "--lr", "--seed", "--out", "--resume",
        "--overwrite", "--json"),
    )  # fmt: skip
    add_training_options(parser)
    group = parser.add_group("run")
    add = group.add_argument
    options.add_fields(
        group, RunConfig, "seed", "init", special={"seed": {"help": "of all that is drawn"}}
    )
    options.add_shared(group, "--device", "--memory")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where results go (default: a new one in runs/)",
    )
    add("--overwrite", action="store_true", help="replace the results in DIR")
    add(
        "--checkpoint-every",
        type=values.count,
        default=10,
        metavar="K",
        help="in rounds (default: 10)",
    )
    add(
        "--max-seconds",
        type=values.duration,
        metavar="TIME",
        help="end in time, with the best model so far",
    )
    options.add_shared(group, *options.RANKS)
    add(
        "--resume",
        action="store_true",
        help="resume from the last checkpoint in DIR",
    )
    text = f"where the history also goes: {', '.join(LOGGERS)} (with torchrun: --logger)"
    add("--log", "--logger", action="extend", nargs="+", metavar="NAME", choices=LOGGERS, help=text)
    options.add_shared(group, "--json")


def _run(args: argparse.Namespace) -> int:
    args.log = [*dict.fromkeys(args.log or ())]
    if args.budget and args.max_seconds:
        raise InputError(
            "max_seconds is given, but a budget limits the time as well: leave one out"
        )
    if leads():
        require_loggers(args.log)
    store = RunConfig.store if args.store == AUTO else args.store
    config = config_from_args(args, given_sub_gcns(args), store, title_of(args))
    from gistgnn.utils.process_memory import limit_memory

    if config.device == "cpu":
        limit_memory(args.memory)  # what this process plans to take of the host's memory
    with join_ranks(args, config.device) as ranks, ExitStack() as folder:
        return _train(args, config, ranks, folder)


def _train(args: argparse.Namespace, config: RunConfig, ranks: "World", folder: ExitStack) -> int:
    """Train on this rank, or in the only process, and return the exit status.

    Everything that the ranks do together is in this function.

    Args:
        args: the options.
        config: the run that they describe.
        ranks: the processes of the run.
        folder: frees the folder of the run, and stops handling signals, when all is written.
    """
    from gistgnn.fit.callbacks import InterruptWhen
    from gistgnn.fit.saving import Saving
    from gistgnn.runs.run_folder import (
        CHECKPOINTS,
        check_finished,
        is_finished,
        record_of_command,
        trained_tensors,
        write_run,
    )
    from gistgnn.storage.json_files import plain
    from gistgnn.utils.console import spinner

    first = ranks.leads
    _require_same(args, config, ranks)
    out = Path(ranks.lead(lambda: str(folder.enter_context(_run_directory(args, config)))))
    finished = args.resume and ranks.lead(lambda: is_finished(out))
    if not finished:
        config = _with_store(args, config, out, ranks)
    with spinner(f"reading {config.dataset}", shown=first):
        init = ranks.together(lambda: trained_tensors(Path(config.init)) if config.init else None)
        graph, scale = ranks.load(lambda: _read_graph(args, config, init))
    # A resumed run must have the same budget; `fit` gets only what is left of it.
    budget = config.training.budget
    same_settings = {"budget": budget} if budget else {}
    saving = Saving(out / CHECKPOINTS, args.checkpoint_every, args.resume, same_settings)
    hooks: dict[str, Any] = {"init": init, "saving": saving, "standardise": scale or False}
    with spinner("preparing the model", shown=first):
        gist = config.trainer(graph.num_features, graph.num_classes, out, ranks)
        fingerprint = config.fingerprint(gist, graph, **hooks) if finished else {}
    if finished:
        ranks.lead(lambda: check_finished(out, fingerprint))
        if first:
            log.info("the run in %s is finished: nothing was trained", out)
        return _report(out, args, shown=first)
    callbacks = list[Any]()
    settings = plain(config.as_dict())
    ranks.lead(
        lambda: callbacks.extend(start_logger(name, out, settings, folder) for name in args.log)
    )
    stop = folder.enter_context(stopping(args.grace))
    notes = _notes(args, config, graph, out, ranks) if first else []
    callbacks += [_Announcement(_title(args, config, graph, out), notes), InterruptWhen(stop)]
    hooks |= {"callbacks": callbacks, "progress": first}
    try:
        result, diverged = _fit(config, gist, graph, max_seconds=args.max_seconds, **hooks)
    except Exception as error:
        if ranks.count == 1:
            _write_best_model(config, out, args.data_root, error)
        raise
    if result.interrupted and not result.history:
        return _interrupted(out, stop, ranks, best=False)
    try:
        record = record_of_command(config, result, args.data_root)
        ranks.lead(lambda: write_run(out, record, result.model))
    except Exception:
        if first:
            _say_how_to_go_on(out, "training is over, but its result cannot be written; ")
        raise
    if result.interrupted:
        return _interrupted(out, stop, ranks, best=True)
    if diverged:
        raise diverged
    return _report(out, args, shown=first)


class _Announcement:
    """A callback that says what is about to be trained, when nothing is refused any more.

    Args:
        title: the line that says it.
        notes: what the user may want to do instead.
    """

    def __init__(self, title: str, notes: Sequence[str]) -> None:
        self._title = title
        self._notes = notes
        self._is_said = False  # a run may train several narrow models

    def on_fit_begin(self, run: Any) -> None:
        if self._is_said:
            return
        self._is_said = True
        if log.isEnabledFor(logging.INFO):
            say(self._title)
        for note in self._notes if leads() else ():
            log.info("%s", note)


def _title(args: argparse.Namespace, config: RunConfig, graph: "Graph", out: Path) -> str:
    """Return what is about to be trained, in a line."""
    from gistgnn.estimate import PLACES

    split = "" if args.budget else f", m = {config.sub_gcns}"
    if split and args.sub_gcns is None and config.sub_gcns == 1:
        split += " (ordinary training; --sub-gcns splits the layers)"
    split += f", parameters in {PLACES[config.store]}"
    return f"{title_of(args)} ({plural(graph.num_nodes, 'node')}){split}; the results go to {out}"


def _notes(
    args: argparse.Namespace, config: RunConfig, graph: "Graph", out: Path, ranks: "World"
) -> list[str]:
    """Return what to say of a run that may not be what was meant, or is likely to disappoint."""
    from gistgnn.estimate import Resources, whole_model_fits
    from gistgnn.graphs import GraphSizes
    from gistgnn.graphs.doubts import suits_graphsage

    notes = []
    if missing := without_dataset(args):
        notes.append(missing)
    if "model" not in args.typed and suits_graphsage(graph):
        notes.append(
            "with so many training nodes of each class GraphSAGE often scores higher than the "
            "default, a GCN: try --model graphsage"
        )
    if config.method == "gist" and config.sub_gcns > 1 and not args.budget:
        here = Resources.here(
            config.device, out, args.memory, ranks.count, world_size("LOCAL_WORLD_SIZE")
        )
        if whole_model_fits(config, GraphSizes.of_graph(graph), here):
            notes.append(_instead_of_gist(args, ranks))
    return notes


def _instead_of_gist(args: argparse.Namespace, ranks: "World") -> str:
    """Say what usually scores higher than GIST where the full model would fit, and what to type."""
    from gistgnn.estimate import SELDOM_BEST

    if ranks.count > 1:
        return f"{SELDOM_BEST}: the same command with --method parts usually scores higher"
    widths = " ".join(map(str, args.hidden))
    root = f" --data-root {args.data_root}" if "data_root" in args.typed else ""
    command = f"gistgnn train --dataset {args.dataset}{root} --model {args.model} --hidden {widths}"
    return f"{SELDOM_BEST}: `{command} --budget 1min` usually scores higher, or --method parts"


def _fit(
    config: RunConfig, gist: "GIST", graph: "Graph", *, max_seconds: float | None, **hooks: Any
) -> "tuple[Result, DivergedError | None]":
    """Train; return the result, and the error of a run that diverged."""
    import torch

    from gistgnn.estimate import out_of_memory

    try:
        # A budget began with the process. result.json has all of it, `fit` gets what is left.
        training = replace(config.training, budget=seconds_left(config.training.budget))
        within_budget = replace(config, training=training)
        result = within_budget.fit(gist, graph, max_seconds=seconds_left(max_seconds), **hooks)
        return result, None
    except DivergedError as error:
        return error.result, error
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        refusal = out_of_memory(torch.device(config.device), error)
        refusal.result = getattr(error, "result", None)  # type: ignore[attr-defined]
        for note in getattr(error, "__notes__", ()):
            refusal.add_note(note)
        raise refusal from error


def _write_best_model(config: RunConfig, out: Path, data_root: str, error: Exception) -> None:
    """Write the best model of a run that an error has ended, and say how to go on.

    Does nothing if no round is over.
    """
    from gistgnn.runs.run_folder import record_of_command, write_run

    if not getattr(error, "__notes__", None):  # nothing was trained
        return
    result: Result | None = getattr(error, "result", None)
    failure = "the run has failed; "
    if result is not None and result.progress.rounds:
        with suppress(Exception):  # such as a full disk, which the run's own error may be about
            write_run(out, record_of_command(config, result, data_root), result.model)
            say(f"{failure}its best model so far is in {out}, and `gistgnn evaluate {out}` runs it")
            failure = ""
    _say_how_to_go_on(out, failure)


def _say_how_to_go_on(out: Path, failure: str) -> None:
    """Say how to resume from the last checkpoint, if there is one."""
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.storage.checkpoints import Checkpoints

    if newest := Checkpoints(out / CHECKPOINTS).newest():
        say(
            f"{failure}what was trained is in {newest}: when the cause is mended, go on with the "
            f"same command and --out {out} --resume"
        )


@contextmanager
def _run_directory(args: argparse.Namespace, config: RunConfig) -> Iterator[Path]:
    """Yield the folder of the run: --out, or a new one in runs/.

    No other process writes it while the block lasts.
    """
    from gistgnn.runs.run_folder import clear_folder

    if args.overwrite and args.resume:
        raise InputError(
            "--resume and --overwrite are both given: one goes on with a run, the other replaces it"
        )
    if args.out is None and args.resume:
        raise InputError("--resume needs --out: say which run to resume")
    with ExitStack() as lock:
        if args.out:
            out = lock.enter_context(locked_folder(args.out))
        else:
            out = _lock_new_folder(Path("runs"), _name_of_run(config), lock)
        clear_folder(out, overwrite=args.overwrite, resume=args.resume)
        yield out


def _name_of_run(config: RunConfig) -> str:
    """Return the name of a run's folder, such as "cora-gcn-m4-seed0"."""
    from gistgnn.graphs import find

    # In the name of a synthetic graph a point is no suffix, and a file name should have no colon.
    dataset = (
        config.dataset.replace(":", "-") if find(config.dataset) else Path(config.dataset).stem
    )
    model = config.model.name.rpartition(":")[2]
    method = "" if config.method == "gist" else f"-{config.method}"
    split = "budget" if config.training.budget else f"m{config.sub_gcns}"
    return f"{dataset}-{model}{method}-{split}-seed{config.seed}"


def _lock_new_folder(parent: Path, name: str, lock: ExitStack) -> Path:
    """Make and lock a folder in `parent`: `name`, or the first of NAME-2, NAME-3, ... that is new.

    `lock` frees it.
    """
    from gistgnn.storage.folder_lock import FolderInUseError

    folder = parent / name
    number = 1
    while True:
        if not folder.exists():
            with suppress(FolderInUseError):  # another process has made it meanwhile
                return lock.enter_context(locked_folder(folder))
        number += 1
        folder = parent / f"{name}-{number}"


def _require_same(args: argparse.Namespace, config: RunConfig, ranks: "World") -> None:
    """Refuse ranks with different options, before they do anything together."""
    from gistgnn.distributed.agreement import SAME_SETTINGS, require_same
    from gistgnn.fit.identity import flat_settings
    from gistgnn.graphs import find

    names = ("resume", "overwrite", "log", "checkpoint_every", "max_seconds", "budget", "store")
    options_of_run = {name: getattr(args, name) for name in names}
    # A file may lie elsewhere on another machine.
    dataset = config.dataset if find(config.dataset) else "a file"
    settings = {"dataset": dataset, **flat_settings(config.as_dict()), **options_of_run}
    require_same(ranks, {SAME_SETTINGS: settings})


def _with_store(
    args: argparse.Namespace, config: RunConfig, out: Path, ranks: "World"
) -> RunConfig:
    """Return the run with the first store of Θ that fits on every rank, unless --store names one.

    A run that does not fit is refused.
    """
    from gistgnn.estimate import PLACES, Resources, chosen_store, require_room

    here = Resources.here(
        config.device, out, args.memory, ranks.count, world_size("LOCAL_WORLD_SIZE")
    )
    if args.store == AUTO:
        stores = list(PLACES)
        first_fitting = ranks.together(
            lambda: stores.index(chosen_store(config, sizes_of(args), here))
        )
        config = replace(config, store=stores[max(ranks.gather(first_fitting))])
        log.debug(
            "parameters: in %s, the first place in which they fit, of %s of memory and %s of disk",
            PLACES[config.store], size(min(here.gpu or here.host, here.host)), size(here.disk),
        )  # fmt: skip
    ranks.together(lambda: require_room(config, sizes_of(args), here))
    return config


def _interrupted(out: Path, stop: Stop, ranks: "World", *, best: bool) -> int:
    """Say how to go on with a run that was interrupted, and return the exit status.

    `best` says whether it has written its best model so far.
    """
    advice = f"resume with the same command and --out {out} --resume"
    if best:
        say(f"interrupted; the best model so far is in {out}, and `gistgnn evaluate {out}` runs it")
        say(advice)
    else:
        say(f"interrupted; {advice}")
    return 128 + (max(ranks.gather(stop.number or 0)) or signal.SIGINT)


def _read_graph(
    args: argparse.Namespace, config: RunConfig, init: "Mapping[str, Tensor] | None"
) -> "tuple[Graph, Standardisation | None]":
    """Return the graph, and how its features were scaled."""
    from gistgnn.graphs import Standardisation

    graph = graph_of(args)
    scale = Standardisation.choose(config.standardise, graph, init)
    return scale.graph(graph) if scale else graph, scale


def _report(out: Path, args: argparse.Namespace, *, shown: bool) -> int:
    """Print what a run has written, and return the exit status 0."""
    from gistgnn.report import REPORT
    from gistgnn.report.names import summary
    from gistgnn.runs.run_folder import read_record
    from gistgnn.storage.record import MODEL, RESULT

    if not shown:
        return 0
    if args.json:
        print((out / RESULT).read_text(encoding="utf-8"), end="")
        return 0
    lines = summary(read_record(out)).replace(NBSP, " ").splitlines()
    print("\n".join(map(printable, lines)))
    written = (out / name for name in (RESULT, MODEL, REPORT))
    print(f"written: {', '.join(map(printable, written))}")
    if missing := without_dataset(args):
        print(missing)
    return 0
