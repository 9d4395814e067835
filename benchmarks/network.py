"""Rounds of GIST over a slow network between two hosts, compared with local SGD and data parallel training.

    python -m benchmarks.network --rate 100mbit --delay 20      # as root, on Linux

The hosts are network namespaces on one machine. `tc` limits the rate of their devices, and `benchmarks.delay` forwards
packets between them. The ranks share the machine's cores, so training times are this machine's, and exchange times the
network's.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOSTS = ("gistgnn-a", "gistgnn-b")
ADDRESSES = ("10.86.53.1", "10.86.53.2")
ENDS, DEVICE = ("gist-a", "gist-b"), "gist"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rate", default="100mbit", help="rate of each direction, in the syntax of tc")
    parser.add_argument("--delay", type=float, default=20, help="delay of each direction, in milliseconds")
    parser.add_argument("--hidden", type=int, default=1024, metavar="D", help="width of both layers of GraphSAGE")
    parser.add_argument("--features", type=int, default=100, help="features of a node")
    parser.add_argument("--sub-gcns", type=int, default=8, metavar="M")
    parser.add_argument("--local-steps", type=int, default=500, metavar="ZETA")
    parser.add_argument("--repeat", type=int, default=4, help="number of rounds or averages")
    parser.add_argument("--json", type=Path, help="file for all samples")
    options = parser.parse_args()
    with hosts(options.rate, options.delay):
        results = {method: run(method, options) for method in ("gist", "local-sgd", "data-parallel")}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    report(results, options)


@contextlib.contextmanager
def hosts(rate: str, delay: float) -> Iterator[None]:
    """Create two namespaces and a shaped link between them."""
    carrier = None
    try:
        for host in HOSTS:
            do("ip", "netns", "add", host)
            inside(host, "ip", "link", "set", "lo", "up")
        carrier = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.delay", str(delay), *ENDS], stdout=subprocess.PIPE
        )
        assert carrier.stdout
        carrier.stdout.readline()  # the devices exist
        for host, end, address, other in zip(HOSTS, ENDS, ADDRESSES, ADDRESSES[::-1], strict=True):
            do("ip", "link", "set", end, "netns", host, "name", DEVICE)
            inside(host, "ip", "address", "add", address, "peer", other, "dev", DEVICE)
            inside(host, "ip", "link", "set", DEVICE, "up")
            shape = ("tbf", "rate", rate, "burst", "64kb", "latency", "2s")
            inside(host, "tc", "qdisc", "add", "dev", DEVICE, "root", *shape)
        yield
    finally:
        if carrier:
            carrier.kill()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


def run(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Start a rank on each host and return the output of rank 0."""
    names = ("hidden", "features", "sub_gcns", "local_steps", "repeat")
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = []
    for k, host in enumerate(HOSTS):
        torchrun = [str(Path(sys.executable).with_name("torchrun")), "--nnodes", "2", "--node-rank", str(k)]
        torchrun += ["--master-addr", ADDRESSES[0], "--master-port", "29400", "-m", "benchmarks.on_network"]
        command = ["ip", "netns", "exec", host, *torchrun, "--method", method, "--interface", DEVICE, *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True))
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{method} failed")
    result: dict[str, Any] = json.loads(outputs[0])
    return result


def report(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Print a table of the bytes and seconds of a round."""
    gist, zeta = results["gist"], options.local_steps
    mean = {
        method: {key: statistics.fmean(entry[key] for entry in result["rounds"]) for key in result["rounds"][0]}
        for method, result in results.items()
    }
    own, sgd, parallel = (mean[method] for method in ("gist", "local-sgd", "data-parallel"))
    training = own["seconds"] - own["exchange"] - own["waited"]
    print(f"GraphSAGE, d = {options.hidden}, F = {options.features}, m = {options.sub_gcns}, W = 2, ζ = {zeta}, "
          f"{options.rate}, {options.delay:g} ms each way; means of {options.repeat}; MB are 10^6 bytes\n")  # fmt: skip
    print("| a round | a rank sends | on the wire | by the formula | seconds | of a round's training |")
    print("| --- | --- | --- | --- | --- | --- |")
    sent = own["sent"] / 1e6
    formula = {"gist": gist["formula"]["gist"], "local-sgd": gist["formula"]["local_sgd"]}
    row("GIST, sharded", sent, own["on_wire"], formula["gist"], own["exchange"] + own["waited"], training)
    average = sgd["on_wire"]
    row("local SGD (one average)", formula["local-sgd"] / 1e6, average, formula["local-sgd"], sgd["seconds"], training)
    row(f"data parallel ({zeta} averages, {options.repeat} run)", zeta * formula["local-sgd"] / 1e6,
        zeta * parallel["on_wire"], zeta * formula["local-sgd"], zeta * parallel["seconds"], training)  # fmt: skip
    parts = f"{training:.2f} s of training, {own['exchange']:.2f} s of exchanges, {own['waited']:.2f} s of waiting"
    print(f"\nGIST: {parts}; local SGD sends {average / own['on_wire']:.1f}x as much on the wire")


def row(name: str, sent: float, wire: float, formula: float, seconds: float, training: float) -> None:
    share = f"{100 * seconds / training:.1f} %"
    print(f"| {name} | {sent:.2f} MB | {wire / 1e6:.2f} MB | {formula / 1e6:.2f} MB | {seconds:.2f} | {share} |")


def do(*command: str) -> None:
    subprocess.run(command, check=True)


def inside(host: str, *command: str) -> None:
    do("ip", "netns", "exec", host, *command)


if __name__ == "__main__":
    main()
