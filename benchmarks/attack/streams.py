"""Commands whose standard streams are closed or full: they end with 0, or with 2 where their output is lost."""

import os
import sys
from random import Random

from benchmarks.attack.case import ENDS, Place, Report, fault, shown
from benchmarks.attack.options import COMMANDS
from benchmarks.attack.process import Forked, Outcome, gistgnn

_ENDS = ("", "", "/dev/full", "pipe")
_QUICK = ("train", "plan", "list", "evaluate", "predict", "datasets", "partition", "convert")


def streams(rng: Random, place: Place) -> Report:
    """Run a valid command with one or two of its streams closed, on a full disk, or into a program that has ended."""
    command = rng.choice(_QUICK)
    words = [str(place.valid / "run") if word == "DIR" else word for word in COMMANDS[command][1].split()]
    words = [*command.split(), *words, *rng.choice([[], [], ["--help"], ["--wrong"], ["--json"]])]
    ends = {handle: rng.choice(_ENDS) for handle in rng.sample((0, 1, 2), rng.choice([1, 1, 2, 3]))}
    outcome = Forked(_with_streams(ends, words), place.own).outcome(place.limit)
    wrong = _fault(outcome, ends)
    if not wrong and command == "train" and words[-1] == "out" and not (place.own / "out/result.json").exists():
        wrong = "leaves no result"
    return Report(f"gistgnn {shown(words)}  # streams {ends}", wrong, outcome.status, outcome.seconds)


def _with_streams(ends: dict[int, str], words: list[str]):  # type: ignore[no-untyped-def]
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


def _fault(outcome: Outcome, ends: dict[int, str]) -> str:
    if 2 in ends:  # what it says is lost
        return "" if outcome.status in (*ENDS, 141) and not outcome.late else f"exit status {outcome.status}"
    return "" if outcome.status == 141 else fault(outcome)
