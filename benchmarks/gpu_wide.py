"""The widest model that one GPU trains with Θ on the host: one round of ζ steps, and its peak beside the plan's."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.case import Case
from benchmarks.gpu_shapes import now
from benchmarks.gpu_stage import measure_all, parse
from gistgnn import GIST
from gistgnn.estimate import Resources, make_plan
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.runners.registry import make_runner
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import StepRange
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, peak_memory_bytes

WIDTH, LAYERS, M, STEPS = 32_768, (2, 4, 3), 8, 5  # the deepest before the last, in case time is short
SPARE = 1.3  # times Θ that the host has to have free: a round's trained sub-GCNs lie beside it
BATCH = {"features": 100, "classes": 47, "nodes": 1630, "edges": 40_000, "clusters": 60, "per_batch": 10}
TINY = {"features": 12, "classes": 5, "nodes": 60, "edges": 300, "clusters": 6, "per_batch": 3}


def main() -> None:
    """Train one model after another."""
    options = parse("gpu_wide", __doc__, 90)
    width, depths = (64, LAYERS[:1]) if options.rehearse else (WIDTH, LAYERS)
    batch = TINY if options.rehearse else BATCH
    measure_all(
        options,
        "rows",
        [(f"{width} x {layers}", partial(train, width, layers, options.device, batch)) for layers in depths],
    )


def train(width: int, layers: int, device: str, batch: dict[str, int]) -> dict[str, Any]:
    """Train and merge one round of m sub-GCNs, one at a time on the device."""
    case = Case(
        model="graphsage",
        hidden=(width,) * layers,
        heads=1,
        precision="float32",
        device=device,
        threads=torch.get_num_threads(),
        local_steps=STEPS,
        precompute=False,
        **batch,
    )
    case.set_precision()
    sampler = case.sampler()
    on = torch.device(device)
    planned = plan(case, sampler.steps_per_epoch)
    needed, there = SPARE * 4 * planned["parameters"], available_bytes(torch.device("cpu"))
    if needed > there:
        raise MemoryError(f"Θ on the host needs {size(round(needed))}, {size(there)} are free")
    if on.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(on)
    begun = now(device)
    gist = GIST(case.build, case.hidden, M, device=device, store="host")
    _ = gist.theta
    made = now(device)
    round_ = gist.begin_round()
    losses = make_runner("auto")(round_, sampler, case.training(), StepRange(0, STEPS, 10**9), 0)
    trained = now(device)
    loss = round_.aggregate(losses)
    merged = now(device)
    return {
        "width": width,
        "layers": layers,
        "sub_gcns": M,
        "local_steps": STEPS,
        "loss": loss,
        "seconds": {"making Θ": made - begun, "taking and training": trained - made, "merging": merged - trained},
        "peak_bytes": peak_memory_bytes(on),
        "process_peak": on.type != "cuda",  # on the CPU the process with torch counts
        **planned,
    }


def plan(case: Case, steps: int) -> dict[str, Any]:
    """Return the parameters of the model, and what the plan has for the device in a round, without the process."""
    model = ModelConfig("graphsage", case.hidden, dropout=0.2, norm="layer")
    sampling = ClusterSampling(case.clusters, case.per_batch, method="random", precompute=case.precompute)
    training = replace(case.training(), epochs=max(1, M * STEPS // steps))
    config = RunConfig("random", model, M, device=case.device, training=training, sampler=sampling, store="host")
    clusters = case.clusters // case.per_batch
    nodes, edges = case.nodes * clusters, case.edges * clusters  # an upper limit: most edges lie in clusters
    sizes = GraphSizes(nodes, edges, nodes, features=case.features, classes=case.classes)
    there = replace(Resources.here(case.device), base=0)
    found = make_plan(config, sizes, there, [M], ["host"], timed=False)
    device, [option] = torch.device(case.device).type, found.options
    return {"parameters": found.parameters, "planned_bytes": option.peaks[device], "planned_stage": option.phase}


if __name__ == "__main__":
    main()
