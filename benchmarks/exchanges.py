"""Trains on ranks of `benchmarks/cluster.sh`, and compares the time of their exchanges with that of
the formula.

    torchrun ... -m benchmarks.exchanges FOLDER train ...             # gistgnn with a clock
    python -m benchmarks.exchanges FOLDER report MBIT MILLISECONDS

The ranks share the cores of one machine, so they come to an exchange at different times. It counts
from the moment the last one has come until the last one has all it needs: they share a clock as
well.
"""

import atexit
import json
import os
import sys
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from gistgnn.cli.main import main as gistgnn
from gistgnn.distributed import Ranks


def main() -> None:
    folder, *words = sys.argv[1:]
    if words[0] == "report":
        report(Path(folder), float(words[1]), float(words[2]) / 1000)
        return
    times: list[tuple[float, float]] = []
    plain = Ranks.exchange

    def exchange(self: Ranks, *given: Any) -> Any:
        begun = time.monotonic()
        arrived = plain(self, *given)
        times.append((begun, time.monotonic()))
        return arrived

    Ranks.exchange = exchange  # type: ignore[method-assign]
    atexit.register(
        lambda: Path(folder, f"times-{os.environ['RANK']}.json").write_text(json.dumps(times))
    )
    sys.exit(gistgnn(words))


def report(folder: Path, mbit: float, delay: float) -> None:
    found = json.loads((folder / "result.json").read_text())["communication"]
    every = [json.loads(path.read_text()) for path in sorted(folder.glob("times-*.json"))]
    lasted = [
        max(end for _, end in one) - max(begun for begun, _ in one)
        for one in zip(*every, strict=True)
    ]
    formula = found["formula"]
    mean = {name: fmean(found[name]) for name in ("sent", "seconds", "waited")}
    least = 8 * formula["gist"] / mbit / 1e6
    print(f"{mbit:g} Mbit/s, {found['ranks']} ranks, {found['rounds']} rounds; a round of a rank: "
          "sent "
          f"{mean['sent'] / 1e6:.2f} MB (formula {formula['gist'] / 1e6:.2f}, local SGD "
          f"{formula['local_sgd'] / 1e6:.1f}, data parallel {formula['data_parallel'] / 1e6:.0f}), "
          "in its exchanges "
          f"{mean['seconds']:.2f} s, waiting and messages {mean['waited']:.2f} s")  # fmt: skip
    both = [2 * median(lasted[2:]), 2 * min(lasted[2:])]  # the first round has no moments yet
    print(
        f"two exchanges: median {both[0]:.2f} s, least {both[1]:.2f} s; the formula's bytes take "
        f"{least:.2f} s, with "
        f"the delays {least + 2 * delay:.2f} s: {both[0] / least:.2f} and "
        f"{both[0] / (least + 2 * delay):.2f} times"
    )


if __name__ == "__main__":
    main()
