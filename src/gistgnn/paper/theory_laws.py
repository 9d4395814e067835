"""How the kernels, and the error that GIST adds, depend on d_1, m and ζ, beside the analysis."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gistgnn import theory
from gistgnn.theory import Hyperparameters, LeadingOrder, Problem, exponent, recommended_step

KERNEL_WIDTHS = (64, 256, 1024, 4096)  # d_1 of the kernels
KERNEL_SPLITS = (1, 2, 4)  # m of the kernels
REMAINING = ((2, 1), (2, 4), (4, 1))  # m and ζ of the remaining error
GENTLE_STEPS = (1, 2, 4)  # ζ of the remaining error for small steps, at m = 2
SPLITS = (2, 4, 8)  # m of the remaining error for small steps, at ζ = 1
STEPS = (1, 2, 4, 8, 16, 32)  # ζ of the error that a round adds
# Small steps are the recommended η for m = 2, divided by one of these numbers.
GENTLE = 16
OWN = 4  # at m = 2, where every m has a step of its own, η ∝ 1/m, as in the theorem
SHORT = 400
# The rounds after which an error has settled; its mean over the second half is measured.
ENOUGH = 120
GENTLE_ENOUGH = 400  # local steps, with small steps
OWN_ENOUGH = 25  # times m²: with η ∝ 1/m, ηλ_0 is proportional to 1/m²
SAMPLES = 5000  # of θ, for the leading order
SHARE = 0.05  # convergence is compared by when the error reaches this share of the initial error
# The largest share that the initial error may have in what is measured as the remaining error.
TRANSIENT = 0.1

NONE = "–"
# "measured", "leading" (to leading order), "transient" (the rest of the initial error)
Measured = Mapping[str, float]


def middle_of(widths: Sequence[int]) -> int:
    """Return the d_1 at which is measured what does not depend on d_1."""
    return widths[len(widths) // 2]


def list_measurements(
    problem: Problem, widths: Sequence[int], seeds: int
) -> dict[str, list[partial[Any]]]:
    """Return what is measured, by name: functions, one for each value of what varies.

    Args:
        problem: one on which all assumptions hold.
        widths: every d_1, ascending. What a round adds is measured at the middle one.
        seeds: how many; cheap measurements take more.
    """
    eta = recommended_step(problem, 2)
    draws = min(25, 6 * seeds + 1)

    def of(
        measure: Callable[..., Any],
        m: int,
        zeta: int,
        step_size: float,
        **further_settings: Any,
    ) -> partial[Any]:
        settings = {
            "d_1": middle_of(widths),
            "sub_gcns": m,
            "local_steps": zeta,
            "step_size": step_size,
            **further_settings,
        }
        return partial(measure, problem, **settings)

    def remaining(m: int, zeta: int, d_1: int) -> partial[Any]:
        counts = {
            "d_1": d_1,
            "seeds": max(seeds, 6 * seeds * widths[0] // d_1),
            "rounds": ENOUGH,
        }
        return of(_remaining, m, zeta, recommended_step(problem, m), **counts)

    def settled(m: int, zeta: int, step_size: float, runs: int, rounds: int) -> partial[Any]:
        return of(_remaining, m, zeta, step_size, seeds=runs, rounds=rounds, from_zero=True)

    def added(m: int, zeta: int, step_size: float) -> partial[Any]:
        return of(_added, m, zeta, step_size, seeds=2 * seeds, draws=draws)

    def rate(m: int, step_size: float, **further_settings: int) -> partial[Any]:
        return of(
            _rounds,
            m,
            1,
            step_size,
            **{"seeds": seeds, "rounds": GENTLE_ENOUGH, **further_settings},
        )

    kernel = partial(theory.measure_kernel_distance, problem, draws=15 * seeds)
    return {
        **{
            f"kernel {m}": [partial(kernel, d_1, m) for d_1 in KERNEL_WIDTHS] for m in KERNEL_SPLITS
        },
        **{
            f"remaining {m} {zeta}": [remaining(m, zeta, d_1) for d_1 in widths]
            for m, zeta in REMAINING
        },
        "gentle ζ": [
            settled(2, zeta, eta / GENTLE, 3 * seeds, GENTLE_ENOUGH // zeta)
            for zeta in GENTLE_STEPS
        ],
        "gentle m": [settled(m, 1, eta / GENTLE, 3 * seeds, GENTLE_ENOUGH) for m in SPLITS],
        "own m": [
            settled(m, 1, eta / OWN * 2 / m, 12 * seeds // m, OWN_ENOUGH * m**2) for m in SPLITS
        ],
        "added long": [added(2, zeta, eta) for zeta in STEPS],
        "added short": [added(2, zeta, eta / SHORT) for zeta in STEPS],
        "added m": [added(m, 1, eta / SHORT) for m in SPLITS],
        "rate fixed": [rate(m, eta / OWN) for m in SPLITS],
        "rate own": [rate(m, eta / OWN * 2 / m) for m in SPLITS],
        "rate": [rate(m, recommended_step(problem, m), rounds=ENOUGH) for m in SPLITS],
        "rate d_1": [rate(2, eta, rounds=ENOUGH, d_1=d_1) for d_1 in widths],
        "local": [partial(theory.measure_contraction, problem, widths[0], 2, 5, seeds)],
        "lemma": [partial(theory.limit_error_term, problem, 2, 2, eta / 4)],
    }


def list_laws(widths: Sequence[int], results: Mapping[str, list[Any]]) -> Iterator[list[str]]:
    """Yield rows of four cells from the results of `list_measurements`.

    They are what is measured, the measurement, its value to leading order in 1/d_1, and what
    the analysis says.
    """
    slopes = [
        f"{exponent(KERNEL_WIDTHS, results[f'kernel {m}']):.3f} for m = {m}" for m in KERNEL_SPLITS
    ]
    yield ["‖Ĝ − G^∞‖: exponent of d_1", ", ".join(slopes), NONE, "−1/2"]
    yield from _list_lemmas(results)
    steps = {
        "rate fixed": f"η/{OWN} for every m",
        "rate own": f"η ∝ 1/m, as the theorem's step; at m = 2 η/{OWN}",
        "rate": "η as recommended, which grows with m",
    }
    for name, step in steps.items():
        rounds = _rounds_cell("m", SPLITS, results[name])
        yield [
            f"rounds to {SHARE:.0%}, by m ({step})",
            rounds,
            NONE,
            "fewer with more sub-GCNs",
        ]
    rounds = _rounds_cell("d_1", widths, results["rate d_1"])
    yield [f"rounds to {SHARE:.0%}, by d_1 (m = 2)", rounds, NONE, "fewer with wider models"]
    yield from _list_plateaus(widths, results)
    yield from _list_added_errors(results)


def _list_plateaus(
    widths: Sequence[int], results: Mapping[str, list[Measured]]
) -> Iterator[list[str]]:
    lines = {setting: results[f"remaining {setting[0]} {setting[1]}"] for setting in REMAINING}
    settled = all(_settled(result) for line in lines.values() for result in line)
    if len(widths) > 1:
        measured, leading = (
            ", ".join(
                f"{exponent(widths, _numbers(line, kind)):.3f} for m = {m}, ζ = {zeta}"
                for (m, zeta), line in lines.items()
            )
            for kind in ("measured", "leading")
        )
        yield ["plateau: exponent of d_1", *_if(settled, measured, leading), "−1"]
    widest = {setting: line[-1] for setting, line in lines.items()}
    by_zeta = _ratios((1, 4), [widest[2, 1], widest[2, 4]], float)
    by_m = _ratios((2, 4), [widest[2, 1], widest[4, 1]], _claimed)
    yield [
        f"plateau: ζ = 2, 4 (η/{GENTLE})",
        *_ratios(GENTLE_STEPS, results["gentle ζ"], float),
    ]
    yield ["plateau: ζ = 4 (η as recommended)", *_if(settled, *by_zeta[:2]), by_zeta[2]]
    yield [f"plateau: m = 4, 8 (η/{GENTLE})", *_ratios(SPLITS, results["gentle m"], _claimed)]
    yield [
        "plateau: m = 4 (η as recommended, which grows with m)",
        *_if(settled, *by_m[:2]),
        by_m[2],
    ]
    step = f"η ∝ 1/m, as the theorem's step; at m = 2 η/{OWN}"
    yield [f"plateau: m = 4, 8 ({step})", *_ratios(SPLITS, results["own m"], _claimed)]
    small = results["gentle ζ"][0]
    large = results["remaining 2 1"][widths.index(middle_of(widths))]
    ratios = [f"{small[kind] / large[kind]:.3g}" for kind in ("measured", "leading")]
    setting = f"d_1 = {middle_of(widths):,}, m = 2, ζ = 1"
    yield [
        f"plateau: η/{GENTLE} beside η as recommended ({setting})",
        *_if(_settled(large), *ratios),
        "1",
    ]


def _list_lemmas(results: Mapping[str, list[Any]]) -> Iterator[list[str]]:
    [local] = results["local"]
    times = (1 - local["slowest"]) / (1 - local["factor"])
    slowest = f"; the slowest step contracts {times:.2f} times as much" if local["met"] else ""
    yield [
        "lemma local_converge: a local step beside 1 − ηλ_0/2",
        f"{local['met']} of {local['trained']} sub-GCNs meet its conditions{slowest}",
        NONE,
        "once or more",
    ]
    [lemma] = results["lemma"]
    yield [
        "lemma error_term_bound: fall of the disagreement, as d_1 → ∞ (y = 0, m = 2, ζ = 2)",
        f"{lemma['fall']:.3g}",
        NONE,
        f"at most {lemma['allowed']:.3g}",
    ]


def _list_added_errors(results: Mapping[str, list[Measured]]) -> Iterator[list[str]]:
    short = results["added short"][:3]
    slopes = [
        f"{exponent(STEPS[:3], _numbers(short, kind)):.3f}" for kind in ("measured", "leading")
    ]
    yield [f"what a round adds: exponent of ζ, 1 to 4 (η/{SHORT})", *slopes, "1"]
    yield [
        f"what a round adds: m = 4, 8 (η/{SHORT})",
        *_ratios(SPLITS, results["added m"], _claimed),
    ]
    widest = [results[f"remaining {m} {zeta}"][-1] for m, zeta in REMAINING]
    compared = [
        *filter(_settled, widest),
        *results["gentle ζ"],
        *results["gentle m"][1:],
        *results["own m"],
    ]
    for name in ("added short", "added long", "added m"):
        compared += results[name]
    ratios = [result["measured"] / result["leading"] for result in compared]
    text = f"{min(ratios):.2f} to {max(ratios):.2f} times the leading order"
    yield [f"all {len(ratios)} measurements beside the leading order", text, "1", NONE]


def _remaining(
    problem: Problem, rounds: int, seeds: int, from_zero: bool = False, **settings: Any
) -> dict[str, float]:
    numbers = Hyperparameters(**settings)
    measured = theory.measure_remaining_error(problem, numbers, rounds, seeds, from_zero)
    added = LeadingOrder.of(problem, numbers, samples=SAMPLES).after(rounds)
    transient = 0.0
    if not from_zero:
        at_infinite_width = theory.limit_error(
            problem, numbers.sub_gcns, numbers.local_steps, numbers.step_size, rounds
        )
        transient = theory.mean_of_second_half(at_infinite_width)
    return {
        "measured": measured,
        "leading": theory.mean_of_second_half(added),
        "transient": transient,
    }


def _added(problem: Problem, draws: int, seeds: int, **settings: Any) -> dict[str, float]:
    numbers = Hyperparameters(**settings)
    return {
        "measured": theory.measure_added_error(problem, numbers, draws, seeds),
        "leading": LeadingOrder.of(problem, numbers, samples=SAMPLES).added,
    }


def _rounds(
    problem: Problem, d_1: int, sub_gcns: int, rounds: int, seeds: int, **settings: Any
) -> list[int | None]:
    """Return after how many rounds the mean error is `SHARE` of the first, or None.

    The second number is how many rounds were trained.
    """
    gists = [theory.make_gist(problem, d_1, sub_gcns, seed) for seed in range(seeds)]
    total: Any = sum(theory.train(gist, problem, rounds, **settings) for gist in gists)
    errors = total.tolist()
    return [next((t for t, error in enumerate(errors) if error <= SHARE * errors[0]), None), rounds]


def _settled(result: Measured) -> bool:
    return result["transient"] <= TRANSIENT * result["leading"]


def _numbers(line: Sequence[Measured], kind: str = "measured") -> list[float]:
    return [result[kind] for result in line]


def _if(settled: bool, measured: str, leading: str) -> list[str]:
    """Return the two cells of a plateau; where it has not settled, the reason."""
    if settled:
        return [measured, leading]
    return [f"not settled: the initial error is not gone after {ENOUGH // 2} rounds", NONE]


def _rounds_cell(symbol: str, values: Sequence[int], line: Sequence[Sequence[int]]) -> str:
    """Say after how many rounds the error reaches `SHARE` for every value, or that it does not."""
    cells = []
    for value, (reached, most) in zip(values, line, strict=True):
        rounds = f"more than {most}" if reached is None else str(reached)
        cells.append(f"{symbol} = {value:,}: {rounds}")
    return ", ".join(cells)


def _claimed(m: float) -> float:
    """What the printed error term is proportional to."""
    return (m - 1.0) ** 2 / m**2


def _ratios(
    values: Sequence[int], line: Sequence[Measured], claim: Callable[[float], float]
) -> list[str]:
    """Return the ratios of all results to the first: measured, to leading order, and claimed."""
    kinds = [_numbers(line), _numbers(line, "leading"), [claim(value) for value in values]]
    return [", ".join(f"{number / kind[0]:.3g}" for number in kind[1:]) for kind in kinds]
