"""Medians, ratios, shares and tables of the samples of `benchmarks.steps`."""

from dataclasses import asdict
from typing import Any

from benchmarks.case import Case
from benchmarks.counts import count
from benchmarks.floor import as_dict, bandwidth, floors
from benchmarks.machine import LARGE
from benchmarks.tables import number, percent, quartiles, spread, table
from benchmarks.targets import BASELINE, PYG, title
from benchmarks.worker import Spec

PHASES = ("forward", "backward", "optimiser")
GIB = 2**30


def summarise(
    case: Case, specs: list[Spec], about: dict[str, Any], samples: dict[str, Any], epoch_steps: int
) -> dict[str, Any]:
    """Return all results of one case as a JSON record."""
    machine = about["machine"]
    if "error" in machine:
        raise SystemExit(f"the machine's rates could not be measured: {machine['error']}")
    parts = {key: quartiles([s[key] for s in samples["machine"]["step"]]) for key in samples["machine"]["step"][0]}
    medians = {key: value["median"] for key, value in parts.items()}
    sub_gcns = list(specs[0].sub_gcns)
    size = (machine["nodes"], machine["edges"])
    floor = floors(case, sub_gcns, size, medians)
    contenders = {}
    for spec in specs[1:]:
        result = about[spec.name]
        if "error" not in result:
            batch_ms = medians["batch"] / (1 if spec.variant == "in-turn" else spec.sub_gcns[0])
            result = result | contender(case, spec.sub_gcns[0], samples[spec.name], epoch_steps, batch_ms)
            result["over_floor"] = result["step_ms"]["median"] / floor[spec.sub_gcns[0]].total
            result["over_products"] = result["step_ms"]["median"] / floor[spec.sub_gcns[0]].products
        contenders[spec.name] = result | {"sub_gcns": spec.sub_gcns[0]}
    return {
        **asdict(case),
        "hidden": list(case.hidden),
        "batch": {"nodes": size[0], "edges": size[1], "ms": medians["batch"], "operators_ms": medians["operators"]},
        "epoch_steps": epoch_steps,
        "contenders": contenders,
        "ratios": ratios(contenders),
        "parts_ms": parts,
        "bandwidth_gb_s": bandwidth(medians, LARGE) / 1e6,
        "floors": {str(m): as_dict(f) for m, f in floor.items()},
        "counts": {str(m): _counts(case, m, size) for m in sub_gcns},
    }


def contender(case: Case, sub_gcns: int, samples: dict[str, Any], epoch_steps: int, batch_ms: float) -> dict[str, Any]:
    """Summarise a contender: the times of one step of one sub-GCN, and the parts of an epoch's time.

    Args:
        case: the shared settings.
        sub_gcns: m.
        samples: samples of steps and stretches.
        epoch_steps: batches of an epoch, one step of one sub-GCN each.
        batch_ms: milliseconds of batches per step, made while nothing else runs.
    """
    step = quartiles([s["step"] for s in samples["step"]])
    known = [p for p in PHASES if p in samples["step"][0]]  # a CUDA graph has none
    phases = {p: quartiles([s[p] for s in samples["step"]])["median"] for p in known}
    result = {"step_ms": step, "phases_ms": phases}
    if not samples["stretch"]:
        return result
    run = quartiles([s["run"] for s in samples["stretch"]])
    batches = quartiles([s["batches"] for s in samples["stretch"]])["median"]
    per_round = quartiles([s["theta_per_round"] for s in samples["stretch"]])
    steps = samples["stretch"][0]["steps"]
    theta = per_round["median"] / (case.local_steps * sub_gcns)  # the measured stretch has fewer steps
    end_to_end = run["median"] + theta
    spent = {"batches": batches, **phases, "theta": theta}
    return result | {
        "end_to_end_ms": end_to_end,
        "run_ms": run,
        "theta_per_round_ms": per_round,
        "stretch_steps": steps,
        "epoch_seconds": end_to_end * epoch_steps / 1e3,
        "shares": {key: value / sum(spent.values()) for key, value in spent.items()},
        "batch_share": batch_ms / end_to_end,
    }


def ratios(contenders: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Compute the speed-up of a step over PyG on edge_index and over the baseline, from medians of the same run."""
    step = {name: result["step_ms"]["median"] for name, result in contenders.items() if "step_ms" in result}
    return {
        name: {f"vs {other}": step[other] / value for other in (PYG, BASELINE) if other in step}
        for name, value in step.items()
    }


def print_case(case: dict[str, Any]) -> None:
    """Print the tables of a case."""
    print(case_text(case))


def case_text(case: dict[str, Any]) -> str:
    """Return the tables of a case in Markdown."""
    batch = case["batch"]
    about = (
        f"## {title(case)}\n\nA batch: {batch['nodes']:,} nodes, {batch['edges']:,} edges, "
        f"{case['features']} features, {case['classes']} classes; "
        f"cut in {number(batch['ms'])} ms, its operators prepared in {number(batch['operators_ms'])} ms."
    )
    errors = [(name, result["error"]) for name, result in case["contenders"].items() if "error" in result]
    lacking = [f"- {name}: not measured: {error}" for name, error in errors]
    return "\n\n".join([about, _steps_table(case), _epochs_table(case), _floors_table(case), *lacking]) + "\n"


def _steps_table(case: dict[str, Any]) -> str:
    head = ["", "step, ms (quartiles)", "over floor", "vs PyG edge_index", "vs m=1", *(f"{p}, ms" for p in PHASES)]
    rows = []
    for name, result in case["contenders"].items():
        if "step_ms" in result:
            ratio = case["ratios"][name]
            rows.append(
                [
                    name,
                    spread(result["step_ms"]),
                    f"{result['over_floor']:.2f}×",
                    *(f"{ratio[key]:.2f}×" if key in ratio else "—" for key in (f"vs {PYG}", f"vs {BASELINE}")),
                    *(number(result["phases_ms"].get(p)) for p in PHASES),
                ]
            )
    return table(head, rows)


def _epochs_table(case: dict[str, Any]) -> str:
    keys = ("batches", *PHASES, "theta")
    head = [
        "end to end",
        "step, ms",
        f"epoch of {case['epoch_steps']:,} steps, s",
        *("batches (waited)", *PHASES, "Θ"),
        "batches alone",
        "Θ, ms a round",
        "peak memory, GiB",
    ]
    rows = []
    for name, result in case["contenders"].items():
        if "epoch_seconds" in result:
            rows.append(
                [
                    name,
                    number(result["end_to_end_ms"]),
                    number(result["epoch_seconds"]),
                    *(percent(result["shares"][key]) for key in keys),
                    percent(result["batch_share"]),
                    number(result["theta_per_round_ms"]["median"]),
                    f"{result['peak_bytes'] / GIB:.2f}",
                ]
            )
    return table(head, rows)


def _floors_table(case: dict[str, Any]) -> str:
    head = ["floor of a step", "GFLOP", "GFLOP/s", "products, ms", "at the best rate, ms", "sparse", "Adam", "all, ms"]
    keys = ("products", "at_best_rate", "sparse", "adam", "total")
    rows = [
        [
            f"m={m}",
            number(case["counts"][m]["flops"] / 1e9),
            number(floor["gflops"]),
            *(number(floor[key]) for key in keys),
        ]
        for m, floor in case["floors"].items()
    ]
    return table(head, rows) + f"\n\nA large copy reads and writes {number(case['bandwidth_gb_s'])} GB/s."


def _counts(case: Case, m: int, size: tuple[int, int]) -> dict[str, Any]:
    counts = count(case, tuple(width // m for width in case.hidden), *size)
    return {
        "flops": counts.flops,
        "sparse_bytes": counts.sparse_bytes,
        "adam_bytes": counts.adam_bytes,
        "parameters": counts.parameters,
        "products": [{**vars(p), "flops": p.flops} for p in counts.products],
    }
