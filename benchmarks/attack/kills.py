"""Runs that signals end at random times, and that are resumed: the model must be that of the unbroken run."""

import json
import shutil
import signal
from random import Random

from benchmarks.attack.case import Outcome, Place, Report, fault, shown
from benchmarks.attack.process import Forked, gistgnn
from benchmarks.attack.valid import STOPPED, words_of
from benchmarks.kills import digest

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_LONGEST = 1.5  # times what the unbroken run takes
_STARTING = 0.2  # seconds in which a process may not have its handlers yet, and ends as any other does


def kills(rng: Random, place: Place) -> Report:
    """Start a run, end it by a signal up to three times, and let it go on to its end."""
    name = rng.choice(STOPPED)
    expected = json.loads((place.valid / f"{name}.json").read_text(encoding="utf-8"))
    words = [*words_of(name), "--dataset", "own.npz", "--out", "out", "--resume"]
    sent: list[str] = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        number, after = rng.choice(_SIGNALS), rng.uniform(0, _LONGEST * expected["seconds"])
        process = Forked(gistgnn(words), place.own)
        if not process.wait(after):
            process.send(number)
            sent.append(f"{number.name} after {after:.2f} s")
        outcome = process.outcome(place.limit)
        if wrong := _fault(outcome, number, after):
            return Report(_title(words, sent), wrong, outcome.status, outcome.seconds)
    outcome = Forked(gistgnn(words), place.own).outcome(place.limit)
    wrong = fault(outcome) or (
        f"the last run ends with {outcome.status}: {outcome.err[-200:]}" if outcome.status else ""
    )
    if not wrong and digest(place.own / "out") != expected["model"]:
        wrong = "ends with another model than the unbroken run"
    shutil.rmtree(place.own / "out", ignore_errors=True)
    return Report(_title(words, sent), wrong, outcome.status, outcome.seconds)


def _fault(outcome: Outcome, number: signal.Signals, after: float) -> str:
    at_once = number == signal.SIGKILL or after < _STARTING
    if outcome.status == -number and at_once and not outcome.late:
        return ""
    if outcome.status in (0, 128 + number):
        return "" if "Traceback" not in outcome.err else fault(outcome)
    return fault(outcome) or f"exit status {outcome.status} after {number.name}: {outcome.err[-200:]!r}"


def _title(words: list[str], sent: list[str]) -> str:
    return f"gistgnn {shown(words)}  # {', '.join(sent) or 'it ended before the signal'}"
