"""What denormal numbers cost: the time of operations and of steps with and without them.

    python -m benchmarks.denormals --operations
    python -m benchmarks.denormals --dataset amazon-computers --data-root ../shared/data --lr 0.04

Times are those of the processor. Operations take turns. So do two copies of one GraphSAGE, step by
step, on the same batches: a row is the median of some steps, and says which share of the numbers
was denormal in the copy that keeps them.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from benchmarks.tables import describe_machine, on, table
from gistgnn import GIST
from gistgnn.fit.prepare import make_sampler
from gistgnn.graphs import load
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import Batch, ClusterSampling, forward
from gistgnn.utils.denormals import denormals_as_zero

SMALLEST_NORMAL = torch.finfo(torch.float32).smallest_normal


def step(model: nn.Module, optimizer: Optimizer, batch: Batch) -> tuple[list[float], Tensor, float]:
    """Take a step; return the seconds of its parts, the training nodes' logits, and the loss."""
    times = [time.thread_time()]
    optimizer.zero_grad()
    logits = forward(model, batch)[batch.loss_nodes]
    loss = F.cross_entropy(logits, batch.y[batch.loss_nodes])
    times.append(time.thread_time())
    loss.backward()
    times.append(time.thread_time())
    optimizer.step()
    times.append(time.thread_time())
    seconds = [end - begin for begin, end in pairwise(times)]
    return seconds, logits.detach(), loss.item()


def share(tensors: list[Tensor]) -> float:
    """Return the share of denormal numbers, of all that are not zero."""
    sizes = [tensor.abs() for tensor in tensors]
    denormal = sum(int(((size > 0) & (size < SMALLEST_NORMAL)).sum()) for size in sizes)
    return denormal / max(sum(int(size.count_nonzero()) for size in sizes), 1)


def shares(model: nn.Module, optimizer: Optimizer, logits: Tensor) -> list[float]:
    """Return the shares of probabilities, gradients, and Adam's means and squares."""
    parameters = list(model.parameters())
    states = [optimizer.state[parameter] for parameter in parameters]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    means = [state["exp_avg"] for state in states]
    squares = [state["exp_avg_sq"] for state in states]
    return [share([logits.softmax(dim=1)]), share(gradients), share(means), share(squares)]


def operations(scale: float) -> dict[str, Callable[[], object]]:
    """Return operations whose operands or results are near this scale; 1 for normal numbers."""
    draws = torch.rand(1_000_000) + 0.5
    small = draws * scale
    root = draws * scale**0.5
    wide = torch.randn(256, 512)
    square = torch.randn(512, 512)
    logits = torch.randn(50_000, 40) * (1 if scale == 1 else 40)
    exponents = -draws if scale == 1 else -95 * draws.clamp(0.95, 1.05)
    steps = {}
    for name, options in {"fused": {"fused": True}, "plain": {"foreach": False}}.items():
        parameter = nn.Parameter(torch.ones_like(root))
        parameter.grad = root.clone()
        optimizer = torch.optim.Adam([parameter], **options)
        steps[name] = optimizer.step
    return {
        "product": partial(torch.mul, small, 0.9),
        "square": partial(torch.mul, root, root),
        "sum": partial(torch.add, small, small),
        "square root": small.sqrt,
        "exponential": exponents.exp,
        "softmax": partial(logits.softmax, 1),
        "matrix product": partial(torch.mm, wide * scale, square),
        "fused Adam": steps["fused"],
        "plain Adam": steps["plain"],
    }


def print_operations(turns: int = 12, calls: int = 3) -> None:
    """Print the least processor milliseconds of every operation, of some turns."""
    cases = {"normal": operations(1.0), "denormal": operations(1e-39), "zero": operations(1e-39)}
    least: dict[tuple[str, str], float] = {}
    for _ in range(turns):
        for case, operations_of_case in cases.items():
            with denormals_as_zero() if case == "zero" else nullcontext():
                for name, operation in operations_of_case.items():
                    begun = time.thread_time()
                    for _ in range(calls):
                        operation()
                    milliseconds = 1000 * (time.thread_time() - begun) / calls
                    least[name, case] = min(least.get((name, case), milliseconds), milliseconds)
    rows = [[name, *(f"{least[name, case]:.2f}" for case in cases)] for name in cases["zero"]]
    print(table(["ms", *cases], rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.denormals", description=__doc__)
    parser.add_argument("--operations", action="store_true", help="time operations, not steps")
    parser.add_argument("--dataset", default="synthetic:amazon2m@0.01")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--width", type=int, default=4096, help="of two hidden layers")
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--clusters-per-batch", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--every",
        dest="row_steps",
        type=int,
        default=10,
        metavar="STEPS",
        help="steps of a row",
    )
    parser.add_argument("--lr", type=float, default=0.04)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument(
        "--plain-adam", action="store_true", help="torch's default, instead of the fused one"
    )
    parser.add_argument(
        "--reset", action="store_true", help="a new Adam in every row, as in rounds that reset it"
    )
    options = parser.parse_args()
    print(on(describe_machine(torch.get_num_threads(), "cpu")))
    if options.operations:
        print_operations()
        return
    logging.basicConfig(level=logging.ERROR)
    graph = load(options.dataset, options.data_root)

    def build(widths: tuple[int, ...]) -> nn.Module:
        return GraphSAGE(graph.num_features, widths, graph.num_classes, dropout=options.dropout)

    gist = GIST(build, (options.width, options.width), 1)
    sampling = ClusterSampling(options.clusters, options.clusters_per_batch)
    sampler = make_sampler(gist, graph, sampling, False)
    models = {name: gist.full_spec.from_seed().train() for name in ("denormal", "zero")}
    adam = {"lr": options.lr, "fused": not options.plain_adam}

    def make_optimizers() -> dict[str, Optimizer]:
        return {
            name: torch.optim.Adam(model.parameters(), **adam) for name, model in models.items()
        }

    optimizers = make_optimizers()
    seconds: dict[str, list[list[float]]] = {name: [] for name in models}
    rows = []
    with closing(sampler.batches(0, options.steps)) as batches:
        for number, batch in enumerate(batches, 1):
            losses = {}
            if options.reset and number % options.row_steps == 1:
                optimizers = make_optimizers()
            # The copy that goes first reads the batch into the cache, so they take turns in it.
            order = list(models) if number % 2 else list(reversed(models))
            for name in order:
                model = models[name]
                torch.manual_seed(number)
                with denormals_as_zero() if name == "zero" else nullcontext():
                    seconds_of_step, logits, losses[name] = step(model, optimizers[name], batch)
                seconds[name].append(seconds_of_step)
                if name == "denormal" and number % options.row_steps == 0:
                    shares_of_row = shares(model, optimizers[name], logits)
            if number % options.row_steps == 0:
                row = [f"{number - options.row_steps + 1} to {number}"]
                for name in models:
                    columns = zip(*seconds[name], strict=True)
                    parts = [statistics.median(column) for column in columns]
                    summands = " + ".join(f"{part:.2f}" for part in parts)
                    row.append(f"{summands} = {sum(parts):.2f}")
                    seconds[name].clear()
                row += [f"{100 * value:.1f} %" for value in shares_of_row]
                row += [f"{losses['denormal']:.4g}, {losses['zero']:.4g}"]
                rows.append(row)
    head = ["steps", "s (forward + backward + Adam), denormal", "s, zero"]
    head += ["probabilities", "gradients", "Adam's means", "its squares", "losses"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
