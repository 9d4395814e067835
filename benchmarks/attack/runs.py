"""Runs that are killed, that lack a stream, that meet a user's files, or whose ranks differ."""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.attack.case import ENDS, Outcome, Report, Workspace, fault, run_command, shown
from benchmarks.attack.options import command_words
from benchmarks.attack.process import Forked, gistgnn
from benchmarks.attack.valid import STOPPED, arrays, words_of
from benchmarks.kills import digest

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
_SIGNALS += (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_LONGEST = 1.5  # times what the unbroken run takes
# Seconds in which a process may not have its handlers yet, so that any signal ends it at once.
_STARTING = 0.2


def kills(rng: Random, workspace: Workspace) -> Report:
    """End a run by up to three signals, and resume it: its model must be the unbroken run's."""
    name = rng.choice(STOPPED)
    expected = json.loads((workspace.valid / f"{name}.json").read_text(encoding="utf-8"))
    words = [*words_of(name), "--out", "out", "--resume"]
    sent = []
    signals = rng.choices(_SIGNALS, k=rng.choice([1, 1, 2, 3]))
    for number in [*signals, None]:  # The last run gets no signal.
        after = rng.uniform(0, _LONGEST * expected["seconds"])
        process = Forked(gistgnn(words), workspace.folder)
        if number and not process.wait(after):
            process.send(number)
            sent.append(f"{number.name} after {after:.2f} s")
        outcome = process.outcome(workspace.limit)
        if wrong := _kill_fault(outcome, number, after) if number else fault(outcome):
            break
    if not wrong and outcome.status:
        wrong = f"the last run ends with {outcome.status}: {outcome.err[-200:]}"
    if not wrong and digest(workspace.folder / "out") != expected["model"]:
        wrong = "ends with another model than the unbroken run"
    shutil.rmtree(workspace.folder / "out", ignore_errors=True)
    title = f"gistgnn {shown(words)}  # {', '.join(sent) or 'it ended before the signal'}"
    return Report(title, wrong, outcome.status, outcome.seconds)


def _kill_fault(outcome: Outcome, number: signal.Signals, after: float) -> str:
    at_once = number == signal.SIGKILL or after < _STARTING
    if outcome.status == -number and at_once and not outcome.late:
        return ""
    if outcome.status in (0, 128 + number):
        return "" if "Traceback" not in outcome.err else fault(outcome)
    return (
        fault(outcome)
        or f"exit status {outcome.status} after {number.name}: {outcome.err[-200:]!r}"
    )


_ENDS = ("", "", "/dev/full", "pipe")
_QUICK = ("train", "plan", "list", "evaluate", "predict", "datasets", "partition", "convert")


def streams(rng: Random, workspace: Workspace) -> Report:
    """Run a valid command with one to three of its streams lost.

    A stream is closed, leads to a full disk, or to a program that has ended. The command ends with
    0, or with 2 where its output is lost.
    """
    command = rng.choice(_QUICK)
    words = [command, *command_words(command, workspace)]
    words += rng.choice([[], [], ["--help"], ["--wrong"], ["--json"]])
    ends = {handle: rng.choice(_ENDS) for handle in rng.sample((0, 1, 2), rng.choice([1, 1, 2, 3]))}
    outcome = Forked(_with_streams(ends, words), workspace.folder).outcome(workspace.limit)
    wrong = "" if outcome.status == 141 else fault(outcome)
    if 2 in ends:  # Its error line is lost, so only its exit status can be judged.
        ended = outcome.status in (*ENDS, 141) and not outcome.late
        wrong = "" if ended else f"exit status {outcome.status}"
    trains = command == "train" and words[-1] == "out"
    if trains and not wrong and not (workspace.folder / "out/result.json").exists():
        wrong = "leaves no result"
    title = f"gistgnn {shown(words)}  # streams {ends}"
    return Report(title, wrong, outcome.status, outcome.seconds)


def _with_streams(ends: dict[int, str], words: list[str]) -> Callable[[], int]:
    def work() -> int:
        for handle, end in sorted(ends.items()):
            os.close(handle)
            if end == "pipe":
                reader, writer = os.pipe()
                os.dup2(writer, handle)
                for other in {reader, writer} - {handle}:
                    os.close(other)
            elif end:
                os.dup2(os.open(end, os.O_RDWR), handle)
            else:
                setattr(sys, ("stdin", "stdout", "stderr")[handle], None)
        return gistgnn(words)()

    return work


_THEIRS = ["thesis.tex", "notes.json", "model.bin", "checkpoints/notes.txt", "runs/notes.txt"]
_THEIRS += ["round-00000003/state.json", "model-00001-of-00002.safetensors"]
_THEIRS += ["checkpoints/round-3/state.json"]


def foreign(rng: Random, workspace: Workspace) -> Report:
    """Train into a folder with a user's files, and with links that lead to them: all must stay."""
    out = workspace.folder / "out"
    elsewhere = workspace.folder / "elsewhere"
    elsewhere.mkdir()
    theirs = [out / name for name in rng.sample(_THEIRS, rng.choice([1, 2, 4]))]
    theirs += [
        elsewhere / name for name in ("state.json", "result.json", "theta.json", "notes.txt")
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{{}} {path.name}")
    link = rng.choice(["", "checkpoints/round-00000003", "theta", "checkpoints", "theta.tmp"])
    if link and not (out / link).exists():
        (out / link).parent.mkdir(exist_ok=True)
        (out / link).symlink_to(elsewhere, target_is_directory=True)
    before = {path: path.read_bytes() for path in [*theirs, workspace.valid / "own.npz"]}

    def judge(outcome: Outcome) -> str:
        lost = [
            path
            for path, content in before.items()
            if not path.is_file() or path.read_bytes() != content
        ]
        return f"takes {lost[0].relative_to(workspace.folder.parent)} for its own" if lost else ""

    mode = rng.choice([[], ["--overwrite"], ["--overwrite"], ["--resume"]])
    words = ["train", *command_words("train", workspace)]
    words += ["--store", rng.choice(["memory", "disk"]), *mode]
    names = ", ".join(path.name for path in theirs[:-4])
    return run_command(workspace, words, judge, f"{link or 'no link'}, {names}")


# What one rank has and the other has not: options with which both refuse; "graph" is another graph.
_OTHER = ["--lr 0.03", "--dropout 0.1", "--weight-decay 0.01", "--set precision=bf16"]
_OTHER += ["--schedule step", "--local-steps 2", "--epochs 5", "--patience 3"]
_OTHER += ["--evaluate-every 2", "--inductive", "--seed 7", "--hidden 8 16", "--sub-gcns 4"]
_OTHER += ["--model graphsage", "--norm batch", "--optimizer adamw"]
_OTHER += ["--set optimizer_state=reset", "--set training=each", "--set clip_norm=1"]
_OTHER += ["--method parts", "--set width_scaling=none", "--no-standardise"]
_OTHER += ["--set label_smoothing=0.1", "--set momentum=0.5", "--class-weights balanced"]
_OTHER += ["--metric f1_macro", "--sampler neighbor", "--runner fused", "--set heads=2"]
_OTHER += ["--partition categorical", "--set partition_dims=1", "--checkpoint-every 3"]
_OTHER += ["--epochs x", "--device cuda:7", "--clusters 3", "graph", "graph", "graph", "graph"]
# Options that one rank may have and the other not.
_SAME = ["--standardise", "--evaluation layers", "--overwrite", "--resume", "--max-seconds 60s", ""]
_SOON = 40.0  # seconds: a rank that waits for one with wrong options ends by --timeout


def ranks(rng: Random, workspace: Workspace) -> Report:
    """Train on two ranks that differ in a setting or in the graph: both refuse, and soon."""
    other = rng.choice([*_OTHER, *_SAME])
    note = other
    words = ["train", *command_words("train", workspace), "--epochs", "4", "--timeout", "20"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank, options_of_rank in enumerate(("", other)):
        folder = workspace.folder / str(rank)
        folder.mkdir()
        np.savez(folder / "own.npz", **arrays())
        if options_of_rank == "graph":
            options_of_rank = ""
            note = _change_graph(rng, folder / "own.npz")
        # The environment that torchrun would give to the rank.
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables |= {"TORCHELASTIC_RUN_ID": "attack", "TORCHELASTIC_MAX_RESTARTS": 0}
        environ = {name: str(value) for name, value in variables.items()}
        processes.append(Forked(gistgnn([*words, *options_of_rank.split()]), folder, **environ))
    outcomes = [process.outcome(workspace.limit) for process in processes]
    statuses = [outcome.status for outcome in outcomes]
    slowest = max(outcome.seconds for outcome in outcomes)
    faults = [fault(outcome) for outcome in outcomes if outcome.err]
    wrong = next(filter(None, faults), "")
    if not other:
        allowed = [[0, 0]]
    elif other in _SAME:
        allowed = [[2, 2], [0, 0]]
    else:
        allowed = [[2, 2]]
    if not wrong and statuses not in allowed:
        wrong = f"the ranks end with {statuses}, expected {allowed[0]}: {outcomes[0].err[-200:]!r}"
    if not wrong and slowest > _SOON:
        wrong = f"the ranks refuse after {slowest:.0f} s"
    return Report(f"two ranks: gistgnn {shown(words)}; rank 1: {note}", wrong, statuses[0], slowest)


def _change_graph(rng: Random, path: Path) -> str:
    graph = arrays()
    name = rng.choice(list(graph))
    if name == "x":
        graph["x"][rng.randrange(40), rng.randrange(3)] += rng.choice([1.0, 1e-6])
    elif name == "y":
        node = rng.randrange(40)
        graph["y"][node] = (graph["y"][node] + 1) % 3
    else:
        graph[name] = graph[name][..., : -rng.choice([1, 2, 10])]
    np.savez(path, **graph)
    return f"another {name}"
