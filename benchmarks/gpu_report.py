"""GPU.md: what `python -m benchmarks.gpu` has found, in Markdown."""

from collections.abc import Iterator
from typing import Any

from benchmarks.report import case_text
from benchmarks.tables import number, spread, table
from benchmarks.targets import line

GIB, GB = 2**30, 10**9
FLOOR, OVER_ONE, OVER_IN_TURN, WAITS, WIDEST, PLAN = 1.3, 20.0, 1.5, 0.10, 40 * GB, 0.10


def as_markdown(record: dict[str, Any]) -> str:
    """Return the whole page."""
    stages = record["stages"]
    parts = ["# On a GPU", machine_text(record), failures_text(stages)]
    if "tests" in stages or "ranks" in stages:
        parts += ["## Tests", tests_text(stages)]
    targets = list(judged(stages))
    if targets:
        parts += ["## Targets", "\n".join(f"- {line(target)}" for target in targets)]
    if "wide" in stages:
        parts += ["## The widest models", wide_text(stages["wide"])]
    if "shapes" in stages:
        parts += ["## The shapes of Tables 2 and 3", shapes_text(stages["shapes"])]
    if "steps" in stages:
        parts += ["## Steps", steps_text(stages["steps"])]
    return "\n\n".join(part.strip() for part in parts)


def machine_text(record: dict[str, Any]) -> str:
    """Describe the machine and the command."""
    machine, smi = record["machine"], record["machine"]["nvidia_smi"] or {}
    rows = [["command", f"`{record['command']}`"], ["GPU", str(machine["gpu"])]]
    rows += [[name.replace("_", " "), value] for name, value in smi.items()]
    for stage in record["stages"].values():
        if after := stage.get("nvidia_smi"):
            clocks = ", ".join(after.get(name, "?") for name in ("clocks.sm", "clocks.mem", "temperature.gpu"))
            rows.append([f"clocks and °C after {stage['title']}", clocks])
    rows += [[name, str(machine[name])] for name in ("cpu", "cores", "torch", "cuda", "cudnn", "python", "commit")]
    rows.append(["seconds", number(record["seconds"])])
    return table(["", ""], rows)


def failures_text(stages: dict[str, Any]) -> str:
    """List what failed, and what there was no time for."""
    lines = []
    for stage in stages.values():
        lines += [f"- **failed**, {stage['title']}: {failure}" for failure in stage.get("failures", [])]
        lines += [f"- no time, {stage['title']}: {name}" for name in stage.get("not_measured", [])]
    return "Nothing failed, and nothing was left out." if not lines else "\n".join(lines)


def tests_text(stages: dict[str, Any]) -> str:
    """Say how many tests passed, and which runs were not repeated bit for bit."""
    rows, noted = [], []
    for name in ("tests", "ranks"):
        if name in stages:
            stage, failed = stages[name], len(stages[name].get("failures", []))
            rows.append([stage["title"], str(stage.get("tests", 0)), str(failed), number(stage["seconds"])])
            noted += stage.get("not_bit_for_bit", [])
    compared = sum(stages[name].get("compared_bit_for_bit", 0) for name in ("tests", "ranks") if name in stages)
    text = table(["", "tests", "failed", "seconds"], rows)
    text += f"\n\nOf {compared} runs that were repeated, {compared - len(noted)} gave the same Θ bit for bit"
    return text + (
        ". The others agree within rounding:\n\n" + "\n".join(f"- {name}" for name in noted) if noted else "."
    )


def steps_text(stage: dict[str, Any]) -> str:
    """Say how steps are timed, and give every case's tables."""
    how = (
        "Spans are timed by CUDA events. All contenders of a case are in one process and take turns; memory is what a "
        "contender adds. GAT has 4 heads of a quarter of the width. In float32 products do not use TF32, in tf32 they "
        "do. The batches are cut on the host by a thread, with features on the GPU; the share of batches is the time "
        "in which the GPU waits for them. A CUDA graph repeats a pass on a batch whose operators are ready: what a "
        "runner with graphs could gain at most."
    )
    return "\n\n".join([how, *(case_text(case).replace("## ", "### ", 1) for case in stage.get("cases", []))])


def wide_text(stage: dict[str, Any]) -> str:
    """Give the table of the widest models."""
    head = ["width", "hidden layers", "parameters", "device peak, GB", "plan, GB", "plan / peak"]
    head += ["making Θ, s", "taking and training, s", "merging, s"]
    rows = [
        [
            f"{row['width']:,}",
            str(row["layers"]),
            f"{row['parameters'] / 1e9:.2f}·10⁹",
            number(row["peak_bytes"] / GB),
            number(row["planned_bytes"] / GB),
            f"{row['planned_bytes'] / row['peak_bytes']:.2f}",
            *(number(seconds) for seconds in row["seconds"].values()),
        ]
        for row in stage.get("rows", [])
    ]
    about = "GraphSAGE, one round of m = 8 sub-GCNs with ζ = 5 and Θ on the host (`--store host`), on batches of "
    return f"{about}Amazon2M's shape.\n\n{table(head, rows)}"


def shapes_text(stage: dict[str, Any]) -> str:
    """Give the table of the paper's shapes."""
    head = ["table", "graph", "width", "m", "pass, ms (quartiles)", "Θ, ms a round", "ζ", "epochs"]
    head += ["extrapolated to all epochs", "vs m=1", "peak memory, GiB"]
    rows, first = [], {}
    for row in stage.get("rows", []):
        key, seconds = (row["dataset"], row["hidden"]), row["extrapolated_seconds"]
        first.setdefault(key, seconds if row["sub_gcns"] == 1 else None)
        rows.append(
            [
                str(row["table"]),
                f"{row['dataset']}@{row['fraction']:g}",
                f"{row['hidden']:,} x 2",
                str(row["sub_gcns"]),
                spread(row["pass_ms"]),
                spread(row["exchange_ms"]),
                f"{row['local_steps']:,}",
                str(row["epochs"]),
                f"{number(seconds)} s",
                f"{first[key] / seconds:.2f}×" if first[key] else "—",
                "—" if row["peak_bytes"] is None else f"{row['peak_bytes'] / GIB:.2f}",
            ]
        )
    about = (
        "Rounds on a fraction of the graph, with clusters as large as the whole graph's, so that batches are as large; "
        f"{'; '.join(sorted({said(row) for row in stage.get('rows', [])}))}. A pass trains all m sub-GCNs on a batch. "
        "The time of all epochs is extrapolated from these, without evaluation."
    )
    return f"{about}\n\n{table(head, rows)}"


def said(row: dict[str, Any]) -> str:
    """Say how much of a graph was used, and how many steps were timed."""
    graph = f"{row['dataset']} {row['hidden']:,}: {100 * row['fraction']:g} %"
    return f"{graph}, clusters by {row['clusters_by']}, 3 rounds of {row['steps']} steps"


def judged(stages: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the targets that the results decide."""
    for case in stages.get("steps", {}).get("cases", []):
        if (case["model"], case["precision"], case["hidden"]) == ("graphsage", "float32", [4096, 4096]):
            yield from _of_steps(case["contenders"])
    for row in stages.get("wide", {}).get("rows", []):
        name = f"{row['width']:,} x {row['layers']}"
        yield _target(f"{name}: peak device memory, GB", row["peak_bytes"] / GB, WIDEST / GB, at_least=False)
        off = abs(row["planned_bytes"] / row["peak_bytes"] - 1)
        yield _target(f"{name}: the plan is off by", off, PLAN, at_least=False)


def _of_steps(contenders: dict[str, Any]) -> Iterator[dict[str, Any]]:
    step = {name: own["step_ms"]["median"] for name, own in contenders.items() if "step_ms" in own}
    if "m=1" in step:
        yield _target("d = 4096: m=1 over its floor", contenders["m=1"]["over_floor"], FLOOR, at_least=False)
    if {"m=1", "fused m=8"} <= step.keys():
        yield _target("d = 4096: a step fused m=8 over m=1", step["m=1"] / step["fused m=8"], OVER_ONE)
    if {"in turn m=8", "fused m=8"} <= step.keys():
        yield _target("d = 4096: fused m=8 over in turn", step["in turn m=8"] / step["fused m=8"], OVER_IN_TURN)
    for name in ("m=1", "in turn m=8", "fused m=8"):
        if "shares" in contenders.get(name, {}):
            waits = contenders[name]["shares"]["batches"]
            yield _target(f"d = 4096: the GPU waits for batches, {name}", waits, WAITS, at_least=False)


def _target(what: str, value: float, bound: float, *, at_least: bool = True) -> dict[str, Any]:
    met = value >= bound if at_least else value <= bound
    return {"target": what, "value": value, "bound": bound, "at_least": at_least, "met": met}
