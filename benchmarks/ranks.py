"""The cost of the distributed code with one rank: rounds in turn without it, and with either store.

python -m benchmarks.ranks
"""

import argparse
import os
import socket
import statistics
import time
from typing import Any

import torch

from benchmarks.case import Case
from gistgnn import GIST
from gistgnn.distributed import Ranks
from gistgnn.runners.registry import make_runner
from gistgnn.sampling import Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ranks",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--hidden", type=int, default=1024, metavar="D", help="width of both layers of GraphSAGE")
    parser.add_argument("--sub-gcns", type=int, default=8, metavar="M")
    parser.add_argument("--local-steps", type=int, default=100, metavar="ZETA")
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each, after one for warming up")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks, d, zeta = Ranks(), options.hidden, options.local_steps
    case = Case(
        "graphsage", (d, d), 100, 47, 1, 1600, 47600, 10, 100, "float32", "cpu", torch.get_num_threads(), zeta, True
    )
    kinds: dict[str, dict[str, Any]] = {
        "in turn": {},
        "one rank, memory": {"ranks": ranks},
        "one rank, sharded": {"ranks": ranks, "store": "sharded"},
        "in turn, again": {},  # the noise: how much two equal runs differ
    }
    gists = {kind: GIST(case.build, case.hidden, options.sub_gcns, **how) for kind, how in kinds.items()}
    sampler, training = case.sampler(), Training(1000, local_steps=zeta, lr=1e-3, optimizer_state="carry")
    measured: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(options.repeat + 1):
        for kind, gist in list(gists.items())[:: 1 if number % 2 else -1]:
            sample = one_round(gist, sampler, training, StepRange(number * zeta, zeta, 10**6))
            if number:
                measured[kind].append(sample)
    print(f"GraphSAGE, d = {d}, m = {options.sub_gcns}, ζ = {zeta}, moments carried; medians of {options.repeat}\n")
    print("| | round | beside its steps | of the round | round / in turn |")
    print("| --- | --- | --- | --- | --- |")
    for kind, samples in measured.items():
        whole, beside = (statistics.median(column) for column in zip(*samples, strict=True))
        ratio = statistics.median(a[0] / b[0] for a, b in zip(samples, measured["in turn"], strict=True))
        print(f"| {kind} | {whole:.2f} s | {1000 * beside:.0f} ms | {100 * beside / whole:.2f} % | {ratio:.3f} |")
    ranks.close()


def one_round(gist: GIST, sampler: Sampler, training: Training, stretch: StepRange) -> tuple[float, float]:
    """Return the seconds of a round, and its seconds outside steps."""
    begun = time.perf_counter()
    round_ = gist.begin_round()
    taken = time.perf_counter()
    losses = make_runner("in-turn")(round_, sampler, training, stretch, gist.seed)
    trained = time.perf_counter()
    round_.aggregate(losses)
    ended = time.perf_counter()
    return ended - begun, taken - begun + ended - trained


if __name__ == "__main__":
    main()
