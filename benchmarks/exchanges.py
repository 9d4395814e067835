"""Compares the time of ranks' exchanges with that of the formula.

    torchrun ... -m benchmarks.exchanges FOLDER train ...             # gistgnn with a clock
    python -m benchmarks.exchanges FOLDER report MBIT MILLISECONDS

The ranks are those of `benchmarks/cluster.sh`. They share the cores of one machine, so they come to
an exchange at different times. It counts from the moment the last one has come until the last one
has all it needs: they share a clock as well.
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

    def exchange(self: Ranks, *arguments: Any) -> Any:
        begun = time.monotonic()
        arrived = plain(self, *arguments)
        times.append((begun, time.monotonic()))
        return arrived

    Ranks.exchange = exchange  # type: ignore[method-assign]
    atexit.register(
        lambda: Path(folder, f"times-{os.environ['RANK']}.json").write_text(json.dumps(times))
    )
    sys.exit(gistgnn(words))


def report(folder: Path, mbit: float, delay: float) -> None:
    communication = json.loads((folder / "result.json").read_text())["communication"]
    times_of_ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("times-*.json"))]
    lasted = []
    for exchange in zip(*times_of_ranks, strict=True):
        last_begin = max(begun for begun, _ in exchange)
        last_end = max(end for _, end in exchange)
        lasted.append(last_end - last_begin)
    formula = communication["formula"]
    ranks = communication["ranks"]
    rounds = communication["rounds"]
    mean = {name: fmean(communication[name]) for name in ("sent", "seconds", "waited")}
    print(
        f"{mbit:g} Mbit/s, {ranks} ranks, {rounds} rounds; a round of a rank: "
        f"sent {mean['sent'] / 1e6:.2f} MB "
        f"(formula {formula['gist'] / 1e6:.2f}, "
        f"local SGD {formula['local_sgd'] / 1e6:.1f}, "
        f"data parallel {formula['data_parallel'] / 1e6:.0f}), "
        f"in its exchanges {mean['seconds']:.2f} s, "
        f"waiting and messages {mean['waited']:.2f} s"
    )
    # A round has two exchanges. In the first round Adam has no moments yet to send.
    typical = 2 * median(lasted[2:])
    shortest = 2 * min(lasted[2:])
    transfer = 8 * formula["gist"] / mbit / 1e6
    with_delays = transfer + 2 * delay
    print(
        f"two exchanges: median {typical:.2f} s, least {shortest:.2f} s; "
        f"the formula's bytes take {transfer:.2f} s, with the delays {with_delays:.2f} s: "
        f"{typical / transfer:.2f} and {typical / with_delays:.2f} times"
    )


if __name__ == "__main__":
    main()
