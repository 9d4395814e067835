"""Steps of PyG's layers, our baseline, sub-GCNs in turn, fused, and fused as CUDA graphs, on one GPU in one process.

`benchmarks.steps` gives every contender a process, which takes longer than all measurements here. So the contenders of
a case share a process, and take turns round by round; those of one m share Θ and its sub-GCNs. A contender's memory is
what it adds to that of the others, and what it shares.
"""

import functools
import gc
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.captured import ReadySteps
from benchmarks.case import Case
from benchmarks.gpu_stage import measure_all, parse
from benchmarks.machine import Machine
from benchmarks.ours import GISTContender
from benchmarks.report import summarise
from benchmarks.steps import contenders
from benchmarks.worker import Gauge, Pace, Spec
from gistgnn import GIST

MODELS, WIDTHS = ("graphsage", "gcn", "gat"), (4096, 1024, 8192)
PRECISIONS, SUB_GCNS = ("float32", "tf32", "bf16"), (2, 4, 8)
HEADS, LAYERS = 4, 2
AMAZON2M = {"features": 100, "classes": 47, "nodes": 1630, "edges": 40_000, "clusters": 60, "per_batch": 10}
TINY = {"features": 12, "classes": 5, "nodes": 60, "edges": 300, "clusters": 6, "per_batch": 3}
ROUNDS, SECONDS, PART_MS = 4, 0.05, 3.0
EPOCH_STEPS = 1500


def main() -> None:
    """Measure the cases in order of interest."""
    options = parse("gpu_steps", __doc__, 200)
    rounds = 2 if options.rehearse else ROUNDS
    wanted = (
        (name_of(case), partial(measure, case, rounds=rounds, tiny=options.rehearse))
        for case in cases(options.device, rehearse=options.rehearse)
    )
    measure_all(options, "cases", wanted)


def name_of(case: Case) -> str:
    """Return model, width and precision."""
    return f"{case.model} {case.hidden[0] * (case.heads if case.model == 'gat' else 1)} {case.precision}"


def cases(device: str, *, rehearse: bool) -> Iterator[Case]:
    """Yield the cases, the most interesting first: d = 4096 of every model, then the other widths.

    Cases of one shape follow one another, since they share Θ.
    """
    models, widths, precisions = MODELS, WIDTHS, PRECISIONS
    if rehearse:
        models, widths, precisions = ("graphsage",), (16,), ("float32",)
    for width, model, precision in itertools.product(widths, models, precisions):
        each = width // HEADS if model == "gat" else width  # the heads side by side have `width` features
        yield Case(
            model=model,
            hidden=(each,) * LAYERS,
            heads=HEADS,
            precision=precision,
            device=device,
            threads=torch.get_num_threads(),
            local_steps=500,
            precompute=False,
            **(TINY if rehearse else AMAZON2M),
        )


def specs(sub_gcns: Sequence[int]) -> list[Spec]:
    """List the contenders, the machine first."""
    more = [
        Spec(f"{name} m={m}", "ready", variant, (m,))
        for name, variant in (("fused, operators ready", "fused"), ("fused, as a CUDA graph", "captured"))
        for m in (1, *sub_gcns)
    ]
    return [*contenders(list(sub_gcns)), *more]


def measure(case: Case, *, rounds: int, tiny: bool) -> dict[str, Any]:
    """Measure all contenders of a case in turn, and return the record of `benchmarks.report.summarise`."""
    case.set_precision()
    device, wanted = torch.device(case.device), specs((2,) if tiny else SUB_GCNS)
    machine = Machine(case, list(wanted[0].sub_gcns), 0.2 if tiny else PART_MS)
    about: dict[str, Any] = {"machine": {"nodes": machine.nodes, "edges": machine.edges}}
    samples: dict[str, Any] = {spec.name: {"step": [], "stretch": []} for spec in wanted}
    gauges: dict[str, Any] = {}
    for spec in wanted[1:]:
        try:
            gist, held = (None, 0) if spec.kind == "pyg" else made(replace(case, precision="float32"), spec.sub_gcns[0])
            before = reset_peak(device)
            gauges[spec.name] = gauge(spec, case, gist, 0.002 if tiny else SECONDS)
            about[spec.name] = {"peak_bytes": peak(device) - before + held, "before_bytes": before}
        except Exception as error:  # such as too little memory
            about[spec.name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            free()
    for _ in range(rounds):
        samples["machine"]["step"].append(machine.measure())
        for name, own in list(gauges.items()):
            try:
                for what in ("step", "stretch") if isinstance(own, Gauge) else ("step",):
                    samples[name][what].append(own.measure(what))
            except Exception as error:
                about[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
                del gauges[name]
    found = summarise(case, wanted, about, samples, EPOCH_STEPS)
    gauges.clear()
    free()
    return found


@functools.lru_cache(maxsize=len(SUB_GCNS) + 1)
def made(case: Case, sub_gcns: int) -> tuple[GIST, int]:
    """Return Θ with its sub-GCNs, and their bytes on the GPU; the contenders of a shape share them."""
    before = reset_peak(torch.device(case.device))
    gist = GIST(case.build, case.hidden, sub_gcns, device=case.device)
    gist.begin_round()  # makes the sub-GCNs
    return gist, reset_peak(torch.device(case.device)) - before


def gauge(spec: Spec, case: Case, gist: GIST | None, seconds: float) -> Any:
    """Return what measures a contender."""
    if gist is None:
        from benchmarks.pyg import PyGContender

        return Gauge(PyGContender(case, spec.variant), case, Pace(seconds))
    if spec.kind == "ready":
        return ReadySteps(case, gist, captured=spec.variant == "captured", seconds=seconds)
    return Gauge(GISTContender(case, spec.variant, spec.sub_gcns[0], gist), case, Pace(seconds))


def reset_peak(device: torch.device) -> int:
    """Return the bytes that are allocated on the GPU now, from which a new peak counts; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak(device: torch.device) -> int:
    """Return the peak since `reset_peak`; 0 on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def free() -> None:
    """Give the memory of contenders that are gone back to the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
