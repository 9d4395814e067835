"""Ratios and the table of `benchmarks.peers`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.case import Case
from benchmarks.rounds import Samples
from benchmarks.tables import number, quartiles, spread, table

BASELINE = "m=1"
PEERS = ("PyG, edge_index", "PyG, CSR", "DGL")
WHATS = ("step", "epoch")
TITLES = {"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT"}


def record(case: Case, about: dict[str, Any], samples: Samples, facts: dict[str, Any]) -> dict[str, Any]:
    """Return all results of one case as a JSON record.

    Args:
        case: the shared settings.
        about: the facts of every contender, or why it could not run.
        samples: its samples of steps and of stretches.
        facts: the graph's name, the layers' width, and the epoch's number of steps ("epoch_steps").
    """
    times = {
        name: {what: quartiles(milliseconds(case, found, what, facts["epoch_steps"])) for what in WHATS}
        for name, found in samples.items()
        if "error" not in about[name]
    }
    errors = {name: found["error"] for name, found in about.items() if "error" in found}
    return {**asdict(case), **facts, "times_ms": times, "errors": errors, "ratios": list(ratios(times))}


def milliseconds(case: Case, samples: dict[str, list[Any]], what: str, epoch_steps: int) -> list[float]:
    """Return samples of one step of one model or sub-GCN, or of an epoch of such steps, with batches and Θ."""
    if what == "step":
        return [sample["step"] for sample in samples["step"]]
    return [epoch_steps * (each["run"] + _theta(case, each)) for each in samples["stretch"]]


def _theta(case: Case, stretch: dict[str, float]) -> float:
    """Return what taking and merging Θ costs a step. A round has ζ steps of every sub-GCN; the stretch has fewer."""
    return stretch["theta_per_round"] / (case.local_steps * stretch["sub_gcns"])


def ratios(times: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare every peer with our m = 1, and the fastest peer with our sub-GCNs, by ratios of the same round.

    "ahead" says that ours is faster even at the lower quartile of the ratios.
    """
    for what in WHATS:
        peers = [name for name in PEERS if name in times]
        fastest = sorted(peers, key=lambda name: times[name][what]["median"])[:1]
        for ours in (name for name in times if name not in PEERS):
            for peer in peers if ours == BASELINE else fastest:
                its, own = times[peer][what]["samples"], times[ours][what]["samples"]
                ratio = quartiles([theirs / mine for theirs, mine in zip(its, own, strict=True)])
                yield {"what": what, "peer": peer, "ours": ours, "ratio": ratio, "ahead": ratio["q1"] > 1}


def the_table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the table of all cases."""
    sub_gcns = list(dict.fromkeys(name for case in cases for name in case["times_ms"] if _is_split(name)))
    peers = [name for name in PEERS if any(name in case["times_ms"] for case in cases)]
    head = ["graph", "model", "width", "ms of", "ours, m=1"]
    head += [f"{name}; over ours" for name in peers] + [f"{name}; fastest peer over it" for name in sub_gcns]
    return table(head, (_row(case, what, peers, sub_gcns) for case in cases for what in WHATS))


def _row(case: dict[str, Any], what: str, peers: list[str], sub_gcns: list[str]) -> list[str]:
    times = {name: found[what] for name, found in case["times_ms"].items()}
    found = [each for each in case["ratios"] if each["what"] == what]
    to_ours = {each["peer"]: each for each in found if each["ours"] == BASELINE}
    to_split = {each["ours"]: each for each in found if each["ours"] != BASELINE}
    cells = [_cell(times.get(name), to_ours.get(name)) for name in peers]
    cells += [_cell(times.get(name), to_split.get(name)) for name in sub_gcns]
    return [case["graph"], TITLES[case["model"]], str(case["width"]), what, spread(times.get(BASELINE)), *cells]


def _cell(times: dict[str, Any] | None, found: dict[str, Any] | None) -> str:
    """Return the median time, and a ratio with its quartiles. An exclamation mark says that ours is not ahead."""
    if times is None:
        return "—"
    if found is None:
        return number(times["median"])
    ratio = found["ratio"]
    mark = "" if found["ahead"] else " !"
    return f"{number(times['median'])}; {ratio['median']:.2f} ({ratio['q1']:.2f}–{ratio['q3']:.2f}){mark}"


def _is_split(name: str) -> bool:
    return name not in PEERS and name != BASELINE


def behind(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for every comparison in which ours is not ahead."""
    return [
        f"{case['graph']}, {TITLES[case['model']]}, {case['width']}, {each['what']}: {each['peer']} / "
        f"{each['ours']} is {each['ratio']['median']:.2f} ({each['ratio']['q1']:.2f}–{each['ratio']['q3']:.2f})"
        for case in cases
        for each in case["ratios"]
        if not each["ahead"]
    ]


def print_report(cases: Sequence[dict[str, Any]], left_out: dict[str, str]) -> None:
    """Print the table, what is not in it and why, and where ours is not ahead."""
    print(the_table(cases), end="\n\n")
    for name, why in left_out.items():
        print(f"- {name} is left out: {why}")
    for case in cases:
        for name, error in case["errors"].items():
            print(f"- {case['graph']}, {TITLES[case['model']]}, {case['width']}: {name} not measured: {error}")
    lines = behind(cases)
    count = sum(len(case["ratios"]) for case in cases)
    print(f"\nOurs is ahead in {count - len(lines)} of {count} comparisons{', and not in:' if lines else '.'}\n")
    print(*(f"- {line}" for line in lines), sep="\n")
