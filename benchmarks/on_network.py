"""One rank of `benchmarks.network`. Rank 0 prints its measurements as JSON."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.case import Case
from gistgnn import GIST
from gistgnn.distributed import Ranks, costs
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.registry import make_runner
from gistgnn.schedule import Schedule
from gistgnn.settings import Training


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=("gist", "local-sgd", "data-parallel"))
    parser.add_argument("--interface")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--sub-gcns", type=int)
    parser.add_argument("--local-steps", type=int)
    parser.add_argument("--features", type=int)
    parser.add_argument("--repeat", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ranks = Ranks(interface=options.interface)
    widths = (options.hidden, options.hidden)
    case = Case("graphsage", widths, options.features, 47, 1, 1600, 47600, 10, 100, "float32", "cpu", 1,
                options.local_steps, True)  # fmt: skip
    measure = of_gist if options.method == "gist" else of_averages
    results = measure(case, options, ranks)
    if ranks.leads:
        print(json.dumps(results), flush=True)
    ranks.close()


def of_gist(case: Case, options: argparse.Namespace, ranks: Ranks) -> dict[str, Any]:
    """Measure rounds of training: seconds, seconds of exchanges and waiting, and bytes sent."""
    gist = GIST(case.build, case.hidden, options.sub_gcns, store="sharded", ranks=ranks)
    sampler = case.sampler()
    epochs = -(-options.repeat * options.local_steps // sampler.steps_per_epoch)
    training = Training(epochs=epochs, local_steps=options.local_steps, lr=1e-3, training="each")
    rounds: list[dict[str, float]] = []
    before = snapshot(ranks, options.interface)

    runner, schedule = make_runner("in-turn"), Schedule(training, sampler.steps_per_epoch, gist.workers)
    for number in range(options.repeat):
        plan = schedule.plan(number)
        round_ = gist.begin_round(plan)
        round_.aggregate(runner(round_, sampler, training, plan.steps, gist.seed))
        rounds.append(since(before, ranks, options.interface))
        before = snapshot(ranks, options.interface)
    theta = sum(tensor.nbytes for tensor in named_tensors(case.build(case.hidden)).values())
    mean = [ranks.traffic.slices / ranks.traffic.rounds]
    expected = costs(theta, mean, ranks.count, options.local_steps, sharded=True)
    return {"rounds": rounds, "theta": theta, "formula": vars(expected)}


def of_averages(case: Case, options: argparse.Namespace, ranks: Ranks) -> dict[str, Any]:
    """Measure averages of all of Θ: local SGD averages once a round, data parallel training at every step."""
    theta = sum(tensor.nbytes for tensor in named_tensors(case.build(case.hidden)).values())
    values, rounds = torch.zeros(theta // 4), []
    for _ in range(options.repeat):
        ranks.gather(None)
        before = snapshot(ranks, options.interface)
        dist.all_reduce(values)
        rounds.append(since(before, ranks, options.interface))
    return {"rounds": rounds, "theta": theta}


def since(before: dict[str, float], ranks: Ranks, interface: str) -> dict[str, float]:
    """Return the changes since a snapshot, when everything has been sent."""
    seconds = time.perf_counter()
    time.sleep(1)  # until everything has left the machine
    return {key: value - before[key] for key, value in {**snapshot(ranks, interface), "seconds": seconds}.items()}


def snapshot(ranks: Ranks, interface: str) -> dict[str, float]:
    """Read the clock, the counters of the exchanges, and the bytes that the interface has sent."""
    traffic, counters = ranks.traffic, Path("/sys/class/net") / interface / "statistics"
    sent = float((counters / "tx_bytes").read_text())
    return {
        "seconds": time.perf_counter(),
        "exchange": traffic.seconds,
        "waited": traffic.waited,
        "sent": traffic.sent,
        "on_wire": sent,
    }


if __name__ == "__main__":
    main()
