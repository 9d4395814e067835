"""Runs that are killed, that lack a stream, that have others' files in their folder, or ranks that
differ.
"""

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

_SIGNALS = (
    signal.SIGKILL,
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
)
_LONGEST = 1.5  # times what the unbroken run takes
# seconds in which a process may not have its handlers yet, and ends as any other does
_STARTING = 0.2


def kills(rng: Random, workspace: Workspace) -> Report:
    """Start a run, end it by a signal up to three times, and resume it: its model must be the
    unbroken run's.
    """
    name = rng.choice(STOPPED)
    expected = json.loads((workspace.valid / f"{name}.json").read_text(encoding="utf-8"))
    words = [*words_of(name), "--out", "out", "--resume"]
    sent = []
    # the last one ends by itself
    for number in [*rng.choices(_SIGNALS, k=rng.choice([1, 1, 2, 3])), None]:
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
    """Run a valid command with one to three of its streams closed, on a full disk, or into a
    program that has ended.

    It ends with 0, or with 2 where its output is lost.
    """
    command = rng.choice(_QUICK)
    words = [
        command,
        *command_words(command, workspace),
        *rng.choice([[], [], ["--help"], ["--wrong"], ["--json"]]),
    ]
    ends = {handle: rng.choice(_ENDS) for handle in rng.sample((0, 1, 2), rng.choice([1, 1, 2, 3]))}
    outcome = Forked(_with_streams(ends, words), workspace.folder).outcome(workspace.limit)
    wrong = "" if outcome.status == 141 else fault(outcome)
    if 2 in ends:  # what it says is lost
        ended = outcome.status in (*ENDS, 141) and not outcome.late
        wrong = "" if ended else f"exit status {outcome.status}"
    if (
        not wrong
        and command == "train"
        and words[-1] == "out"
        and not (workspace.folder / "out/result.json").exists()
    ):
        wrong = "leaves no result"
    return Report(
        f"gistgnn {shown(words)}  # streams {ends}", wrong, outcome.status, outcome.seconds
    )


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
_THEIRS += [
    "round-00000003/state.json",
    "model-00001-of-00002.safetensors",
    "checkpoints/round-3/state.json",
]


def foreign(rng: Random, workspace: Workspace) -> Report:
    """Train into a folder with files of somebody else, and with links that lead to them: all must
    stay.
    """
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
    words = [
        "train",
        *command_words("train", workspace),
        "--store",
        rng.choice(["memory", "disk"]),
        *mode,
    ]
    return run_command(
        workspace,
        words,
        judge,
        f"{link or 'no link'}, {', '.join(path.name for path in theirs[:-4])}",
    )


_OTHER = [  # what one rank has, and the other has not; then what both may have
    *(
        "--lr 0.03",
        "--dropout 0.1",
        "--weight-decay 0.01",
        "--set precision=bf16",
        "--schedule step",
        "--local-steps 2",
    ),
    *(
        "--epochs 5",
        "--patience 3",
        "--evaluate-every 2",
        "--inductive",
        "--seed 7",
        "--hidden 8 16",
        "--sub-gcns 4",
    ),
    *(
        "--model graphsage",
        "--norm batch",
        "--optimizer adamw",
        "--set optimizer_state=reset",
        "--set training=each",
    ),
    *("--set clip_norm=1", "--method parts", "--set width_scaling=none", "--no-standardise"),
    *("--set label_smoothing=0.1", "--set momentum=0.5"),
    *(
        "--class-weights balanced",
        "--metric f1_macro",
        "--sampler neighbor",
        "--runner fused",
        "--set heads=2",
    ),
    *(
        "--partition categorical",
        "--set partition_dims=1",
        "--checkpoint-every 3",
        "--epochs x",
        "--device cuda:7",
    ),
    *("--clusters 3", "graph", "graph", "graph", "graph"),
]
_SAME = ["--standardise", "--evaluation layers", "--overwrite", "--resume", "--max-seconds 60s", ""]
_SOON = 40.0  # seconds: a rank that waits for one with wrong options ends by --timeout


def ranks(rng: Random, workspace: Workspace) -> Report:
    """Train on two ranks of which one has another setting or another graph: both refuse, and
    soon.
    """
    other = note = rng.choice([*_OTHER, *_SAME])
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
        # What torchrun would tell the rank by its environment; each takes itself to be alone on its
        # machine.
        told = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_WORLD_SIZE": 2,
            "MASTER_PORT": port,
        }
        told |= {
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RUN_ID": "attack",
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        environ = {name: str(value) for name, value in told.items()}
        processes.append(Forked(gistgnn([*words, *options_of_rank.split()]), folder, **environ))
    outcomes = [process.outcome(workspace.limit) for process in processes]
    statuses = [outcome.status for outcome in outcomes]
    slowest = max(outcome.seconds for outcome in outcomes)
    wrong = next(
        (text for outcome in outcomes if (text := fault(outcome) if outcome.err else "")), ""
    )
    allowed = [[0, 0]] if not other else [[2, 2], [0, 0]] if other in _SAME else [[2, 2]]
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
