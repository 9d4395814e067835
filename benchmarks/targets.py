"""The project's targets, and whether this run meets them."""

from collections.abc import Iterator
from typing import Any

PYG, BASELINE = "PyG, edge_index", "m=1"


def judge(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every target that the measured cases decide, with its value and whether it is met."""
    decided = []
    for case in cases:
        for what, value, bound, at_least in _targets(case):
            met = value >= bound if at_least else value <= bound
            decided.append(
                {"target": f"{title(case)}: {what}", "value": value, "bound": bound, "at_least": at_least, "met": met}
            )
    return decided


def line(target: dict[str, Any]) -> str:
    """Describe the target in one line."""
    sign = "≥" if target["at_least"] else "≤"
    return (
        f"{'pass' if target['met'] else 'MISS'}: {target['target']}: {target['value']:.3g} ({sign} {target['bound']})"
    )


def title(case: dict[str, Any]) -> str:
    """Return model, widths and precision."""
    return f"{case['model']} {'×'.join(map(str, case['hidden']))} {case['precision']}"


def _targets(case: dict[str, Any]) -> Iterator[tuple[str, float, float, bool]]:
    step = {name: c["step_ms"]["median"] for name, c in case["contenders"].items() if "step_ms" in c}
    if case["model"] == "graphsage" and case["precision"] == "float32" and case["hidden"] == [4096, 4096]:
        yield from _wide(case, step)
    for name in step:
        if name.startswith("fused"):
            ratio = step[name.replace("fused", "in turn")] / step[name]
            yield f"{name} is faster than in turn", ratio, 0.95, True
            if name == "fused m=8" and case["hidden"] == [1024, 1024] and case["precision"] == "float32":
                yield "fused m=8 is much faster than in turn", ratio, 1.3, True


def _wide(case: dict[str, Any], step: dict[str, float]) -> Iterator[tuple[str, float, float, bool]]:
    if BASELINE in step:
        yield "m=1 over its floor", step[BASELINE] / case["floors"]["1"]["total"], 1.25, False
    if PYG in step and BASELINE in step:
        yield "m=1 is faster than PyG on edge_index", step[PYG] / step[BASELINE], 1.9, True
    for name in ("in turn m=8", "fused m=8"):
        if name not in step:
            continue
        if BASELINE in step:
            yield f"{name} is faster than m=1", step[BASELINE] / step[name], 30, True
        if PYG in step:
            yield f"{name} is faster than PyG on edge_index", step[PYG] / step[name], 60, True
        yield f"{name}: share of an epoch that its batches cost", case["contenders"][name]["batch_share"], 0.10, False
