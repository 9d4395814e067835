"""What the measurements of `benchmarks.gpu` have in common: their options, and that none costs the others."""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Measurement = tuple[str, Callable[[], dict[str, Any]]]  # its name, and what makes it


def parse(name: str, description: str | None, seconds: float) -> argparse.Namespace:
    """Parse the command line of a stage, which begins nothing after so many seconds."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=seconds, help="nothing begins after them")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, to try the code")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    return parser.parse_args()


def measure_all(options: argparse.Namespace, kind: str, wanted: Iterable[Measurement]) -> None:
    """Make one measurement after another until the time is over, and write what there is after each.

    Args:
        options: of `parse`.
        kind: what the file calls the results, such as "rows".
        wanted: the measurements, the most interesting first.
    """
    until = time.monotonic() + options.seconds
    record: dict[str, Any] = {kind: [], "failures": [], "not_measured": []}
    for name, measure in wanted:
        if time.monotonic() > until:
            record["not_measured"].append(name)
        else:
            try:
                record[kind].append(measure())
            except Exception as error:  # one measurement must not cost the others
                record["failures"].append(f"{name}: {type(error).__name__}: {error}".splitlines()[0])
        options.json.write_text(json.dumps(record, indent=1))
