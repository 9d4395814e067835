"""How the kernels, and the error that GIST adds, depend on d_1, m and ζ: measured exponents beside the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

from gistgnn.paper.experiment import Curve, CurveChart, Verdict
from gistgnn.theory import LeadingOrder, Problem, recommended_step
from gistgnn.theory.leading_order import limit_error
from gistgnn.theory.lemmas import limit_error_term
from gistgnn.theory.measure_training import (
    exponent,
    mean_of_second_half,
    measure_added_error,
    measure_contraction,
    measure_kernel_distance,
    measure_remaining_error,
)

KERNEL_WIDTHS, KERNEL_SPLITS = (64, 256, 1024, 4096), (1, 2, 4)  # d_1 and m of the kernels
REMAINING = ((2, 1), (2, 4), (4, 1))  # m and ζ of the remaining error; the verdict on d_1 is about the first
GENTLE_STEPS, SPLITS = (1, 2, 4), (2, 4, 8)  # ζ (at m = 2) and m (at ζ = 1) of the remaining error for small steps
STEPS = (1, 2, 4, 8, 16, 32)  # ζ of the error that a round adds
GENTLE, OWN, SHORT = 16, 4, 400  # the small steps are the recommended η for m = 2, divided by these
OWN_ENOUGH = 25  # times m² rounds: with η ∝ 1/m, as the theorem's step, ηλ_0 is proportional to 1/m²
ENOUGH, GENTLE_ENOUGH = 120, 400  # rounds, or local steps if steps are small; the error has settled after half of them
SAMPLES = 5000  # of θ, for the leading order
HALF_TOLERANCE, ONE_TOLERANCE = 0.1, 0.15  # how far a measured exponent may be from -1/2, and from ±1
CLAIM_TOLERANCE = 0.25  # how far ratios may be from the ratios of (m−1)²/m²
LEADING_TOLERANCE = 0.25  # how far a measurement may be from the leading order
TRANSIENT = 0.1  # the largest share that the initial error may have in what is measured as the remaining error

Claim = tuple[str, bool | None, str]  # the claim, whether it holds, the numbers
Measured = Mapping[str, float]  # "measured", "leading" (to leading order), "transient" (the rest of the initial error)


@dataclass(frozen=True)
class Laws:
    """Measurements on one problem on which all assumptions hold, at the m and ζ above; `dataset` is its name.

    `widths` are every d_1 for the remaining error, ascending; what a round adds is measured at the middle one. `seeds`
    are the experiment's; cheap measurements take more.
    """

    dataset: str
    problem: Problem
    widths: tuple[int, ...]
    seeds: int

    def wanted(self) -> dict[str, tuple[Mapping[str, Any], Callable[[], Any]]]:
        """Return all measurements by name, as `Measurements.all` takes them."""
        about = {"dataset": self.dataset, "problem": self.problem.checksum, "samples": SAMPLES}
        return {
            name: ({**about, **settings}, partial(measure, self.problem, **settings))
            for name, measure, settings in [*self._local_measurements(), *self._error_measurements()]
        }

    def _local_measurements(self) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
        for m, d_1 in product(KERNEL_SPLITS, KERNEL_WIDTHS):
            settings = {"d_1": d_1, "sub_gcns": m, "draws": 15 * self.seeds}
            yield f"kernel {m} {d_1}", measure_kernel_distance, settings
        settings = {"d_1": self.widths[0], "sub_gcns": 2, "local_steps": 5, "seeds": self.seeds}
        yield "local", _as_dict(measure_contraction), settings
        step_size = recommended_step(self.problem, 2) / 4
        yield "lemma", _as_dict(limit_error_term), {"sub_gcns": 2, "local_steps": 2, "step_size": step_size}

    def _error_measurements(self) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
        middle, eta = self.widths[len(self.widths) // 2], recommended_step(self.problem, 2)
        for (m, zeta), d_1 in product(REMAINING, self.widths):
            seeds = max(self.seeds, 6 * self.seeds * self.widths[0] // d_1)
            settings = _settings(d_1, m, zeta, recommended_step(self.problem, m), seeds)
            yield f"remaining {m} {zeta} {d_1}", _remaining, {**settings, "rounds": ENOUGH}
        for m, zeta in dict.fromkeys([*((2, zeta) for zeta in GENTLE_STEPS), *((m, 1) for m in SPLITS)]):
            settings = _settings(middle, m, zeta, eta / GENTLE, 3 * self.seeds)
            yield f"gentle {m} {zeta}", _remaining, {**settings, "rounds": GENTLE_ENOUGH // zeta, "from_zero": True}
        for m in SPLITS:
            settings = _settings(middle, m, 1, eta / OWN * 2 / m, 12 * self.seeds // m)
            yield f"own {m}", _remaining, {**settings, "rounds": OWN_ENOUGH * m**2, "from_zero": True}
        draws = {"draws": min(25, 6 * self.seeds + 1)}
        for zeta in STEPS:
            yield f"added long {zeta}", _added, {**_settings(middle, 2, zeta, eta, 2 * self.seeds), **draws}
            yield f"added short {zeta}", _added, {**_settings(middle, 2, zeta, eta / SHORT, 2 * self.seeds), **draws}
        for m in SPLITS:
            yield f"added fixed {m}", _added, {**_settings(middle, m, 1, eta / SHORT, 2 * self.seeds), **draws}

    def verdicts(self, results: Mapping[str, Any]) -> list[Verdict]:
        """Judge the claims by the results of all measurements."""
        lines = _Lines(results, self.widths)
        claims = [*_kernel_claims(lines), *_neighbourhood_claims(lines), *_round_claims(lines)]
        return [Verdict(f"{self.dataset}: {claim}", holds, numbers) for claim, holds, numbers in claims]

    def charts(self, results: Mapping[str, Any]) -> list[CurveChart]:
        """Return charts of the measurements and of the claims or the leading order (dashed)."""
        lines, chart = _Lines(results, self.widths), partial(CurveChart, logx=True, logy=True)
        kernels, claims = [], []
        for m, distances in lines.kernels.items():
            law = [distances[0] * (d_1 / KERNEL_WIDTHS[0]) ** -0.5 for d_1 in KERNEL_WIDTHS]
            kernels.append(Curve(f"m = {m}", KERNEL_WIDTHS, distances))
            claims.append(Curve(f"d_1^-1/2, m = {m}", KERNEL_WIDTHS, law, dashed=True))
        by_width = {f"m = {m}, ζ = {zeta}": line for (m, zeta), line in lines.remaining.items()}
        small, remaining, added = f"η/{GENTLE}", f"{self.dataset}: the remaining error", "‖y − ŷ(1)‖², y = ŷ(0)"
        by_zeta = {f"η/{SHORT}": lines.added["short"], "η as recommended": lines.added["long"]}
        by_m = {small: lines.gentle_m, "η ∝ 1/m": lines.own_m}
        return [
            chart(f"{self.dataset}: kernels by d_1", "d_1", "‖G^(j) − G^∞‖_F", [*kernels, *claims]),
            chart(f"{remaining}, by d_1", "d_1", "‖y − ŷ‖²", _series(self.widths, by_width)),
            chart(f"{remaining}, by ζ (m = 2)", "ζ", "‖y − ŷ‖²", _series(GENTLE_STEPS, {small: lines.gentle_zeta})),
            chart(f"{remaining}, by m (ζ = 1)", "m", "‖y − ŷ‖²", _series(SPLITS, by_m)),
            chart(f"{self.dataset}: what a round adds, by ζ (m = 2)", "ζ", added, _series(STEPS, by_zeta)),
        ]


class _Lines:
    """The results of all measurements, in lines along d_1, m or ζ."""

    def __init__(self, results: Mapping[str, Any], widths: Sequence[int]) -> None:
        self.widths, self.local, self.lemma = widths, results["local"], results["lemma"]
        self.kernels = {m: [results[f"kernel {m} {d_1}"] for d_1 in KERNEL_WIDTHS] for m in KERNEL_SPLITS}
        self.remaining = {
            (m, zeta): [results[f"remaining {m} {zeta} {d_1}"] for d_1 in widths] for m, zeta in REMAINING
        }
        self.gentle_zeta = [results[f"gentle 2 {zeta}"] for zeta in GENTLE_STEPS]
        self.gentle_m = [results[f"gentle {m} 1"] for m in SPLITS]
        self.own_m = [results[f"own {m}"] for m in SPLITS]
        self.middle = widths[len(widths) // 2]
        self.steps = [results["gentle 2 1"], results[f"remaining 2 1 {self.middle}"]]
        self.added = {kind: [results[f"added {kind} {zeta}"] for zeta in STEPS] for kind in ("short", "long")}
        self.added_m = [results[f"added fixed {m}"] for m in SPLITS]
        self.widest = [line[-1] for line in self.remaining.values()]


def _kernel_claims(lines: _Lines) -> list[Claim]:
    slopes = {m: exponent(KERNEL_WIDTHS, distances) for m, distances in lines.kernels.items()}
    local, lemma = lines.local, lines.lemma
    times = (1 - local["slowest"]) / (1 - local["factor"])
    slowest = f"; the slowest step contracts {times:.2f} times as much" if local["met"] else ""
    return [
        (
            f"finite kernels approach G^∞ as d_1^-1/2 (exponent within {HALF_TOLERANCE:g})",
            all(abs(slope + 0.5) <= HALF_TOLERANCE for slope in slopes.values()),
            ", ".join(f"{slope:.3f} for m = {m}" for m, slope in slopes.items()),
        ),
        (
            "Lemma local_converge: if its conditions hold, a local step contracts by 1 − ηλ_0/2 or more",
            local["slowest"] <= local["factor"] if local["met"] else None,
            f"{local['met']} of {local['trained']} sub-GCNs meet them{slowest}",
        ),
        (
            "Lemma error_term_bound: the disagreement of the sub-GCNs falls no faster than it allows, as d_1 → ∞ "
            "(an example; it fails for every y where the error is small, and the theorem is then neither proved nor "
            "refuted)",
            lemma["fall"] <= lemma["allowed"],
            f"y = 0, m = 2, ζ = 2: it falls by {lemma['fall']:.3g}, allowed is {lemma['allowed']:.3g}",
        ),
    ]


def _neighbourhood_claims(lines: _Lines) -> list[Claim]:
    settled = all(_settled(result) for line in lines.remaining.values() for result in line)
    several = len(lines.widths) > 1
    slopes = [exponent(lines.widths, _numbers(line)) for line in lines.remaining.values() if several]
    pairs = zip(REMAINING, slopes, strict=False)
    numbers = ", ".join(f"{slope:.3f} for m = {m}, ζ = {zeta}" for (m, zeta), slope in pairs) or "one width"
    unsettled = (None, f"the initial error is not gone after {ENOUGH // 2} rounds")
    first, longer, wider = lines.widest
    (m, zeta), grows = REMAINING[0], "the plateau grows with"
    as_zeta, as_m = f"{grows} ζ", f"{grows} m, as (m−1)²/m²"
    by_zeta = _grows("ζ", (1, 4), [first, longer], float) if settled else unsettled
    by_m = _grows_with_m((2, 4), [first, wider]) if settled else unsettled
    return [
        (
            f"the plateau, in rounds well below d_1, falls as 1/d_1 (exponent within {ONE_TOLERANCE:g}; "
            f"m = {m}, ζ = {zeta})",
            abs(slopes[0] + 1.0) <= ONE_TOLERANCE if several and settled else None,
            numbers if settled else unsettled[1],
        ),
        (f"{as_zeta} (small steps, η/{GENTLE})", *_grows("ζ", GENTLE_STEPS, lines.gentle_zeta, float)),
        (f"{as_zeta} (η as recommended)", *by_zeta),
        (f"{as_m} (η/{GENTLE})", *_grows_with_m(SPLITS, lines.gentle_m)),
        (f"{as_m} (η as recommended, which grows with m)", *by_m),
        (f"{as_m} (η ∝ 1/m, as the theorem's step; at m = 2 η/{OWN})", *_grows_with_m(SPLITS, lines.own_m)),
        _step_claim(lines),
    ]


def _step_claim(lines: _Lines) -> Claim:
    small, large = lines.steps
    claim = f"the plateau does not depend on η (η/{GENTLE} and η; d_1 = {lines.middle:,}, m = 2, ζ = 1)"
    if not _settled(large):
        return claim, None, f"the initial error is not gone after {ENOUGH // 2} rounds"
    ratio, leading = (small[kind] / large[kind] for kind in ("measured", "leading"))
    numbers = f"η/{GENTLE} leaves {ratio:.3g} times as much; to leading order {leading:.3g}, claimed 1"
    return claim, abs(ratio - 1.0) <= CLAIM_TOLERANCE, numbers


def _round_claims(lines: _Lines) -> list[Claim]:
    slope = exponent(STEPS[:3], _numbers(lines.added["short"][:3]))
    judged = [*filter(_settled, lines.widest), *lines.gentle_zeta, *lines.gentle_m[1:], *lines.own_m]
    judged += [*lines.added["short"], *lines.added["long"], *lines.added_m]
    ratios = [result["measured"] / result["leading"] for result in judged]
    as_zeta = f"what a round adds grows with ζ, as ζ (η/{SHORT})"
    return [
        (as_zeta, abs(slope - 1.0) <= ONE_TOLERANCE, f"exponent {slope:.3f} for ζ = 1 to 4"),
        (f"what a round adds grows with m, as (m−1)²/m² (η/{SHORT})", *_grows_with_m(SPLITS, lines.added_m)),
        (
            f"ours (heuristic): in rounds well below d_1, the measurements are the leading order in 1/d_1, within "
            f"{LEADING_TOLERANCE:.0%}",
            all(abs(ratio - 1.0) <= LEADING_TOLERANCE for ratio in ratios),
            f"{min(ratios):.2f} to {max(ratios):.2f} times the leading order, in {len(ratios)} measurements",
        ),
    ]


def _settings(d_1: int, m: int, zeta: int, eta: float, seeds: int) -> dict[str, Any]:
    return {"d_1": d_1, "sub_gcns": m, "local_steps": zeta, "step_size": eta, "seeds": seeds}


def _as_dict(measure: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda problem, **settings: asdict(measure(problem, **settings))


def _remaining(problem: Problem, rounds: int, seeds: int, from_zero: bool = False, **settings: Any) -> dict[str, float]:
    measured = measure_remaining_error(problem, rounds=rounds, seeds=seeds, from_zero=from_zero, **settings)
    added = LeadingOrder.of(problem, samples=SAMPLES, **settings).after(rounds)
    m, zeta, eta = settings["sub_gcns"], settings["local_steps"], settings["step_size"]
    transient = 0.0 if from_zero else mean_of_second_half(limit_error(problem, m, zeta, eta, rounds))
    return {"measured": measured, "leading": mean_of_second_half(added), "transient": transient}


def _added(problem: Problem, draws: int, seeds: int, **settings: Any) -> dict[str, float]:
    measured = measure_added_error(problem, draws=draws, seeds=seeds, **settings)
    return {"measured": measured, "leading": LeadingOrder.of(problem, samples=SAMPLES, **settings).added}


def _settled(result: Measured) -> bool:
    return result["transient"] <= TRANSIENT * result["leading"]


def _numbers(line: Sequence[Measured], kind: str = "measured") -> list[float]:
    return [result[kind] for result in line]


def _claimed(m: float) -> float:
    return (m - 1.0) ** 2 / m**2


def _grows_with_m(ms: Sequence[int], line: Sequence[Measured]) -> tuple[bool, str]:
    """Return whether measurements grow as (m−1)²/m², within `CLAIM_TOLERANCE`, and the numbers."""
    first = line[0]["measured"]
    ratios = [result["measured"] / first / _claimed(m) * _claimed(ms[0]) for m, result in zip(ms, line, strict=True)]
    return all(abs(ratio - 1.0) <= CLAIM_TOLERANCE for ratio in ratios), _grows("m", ms, line, _claimed)[1]


def _grows(
    symbol: str, values: Sequence[int], line: Sequence[Measured], claim: Callable[[float], float]
) -> tuple[bool, str]:
    """Return whether measurements grow, and their ratios to the first: measured, to leading order, and claimed."""

    def ratios(numbers: Sequence[float]) -> str:
        return ", ".join(f"{number / numbers[0]:.3g}" for number in numbers[1:])

    measured, leading = _numbers(line), _numbers(line, "leading")
    numbers = f"from {symbol} = {values[0]} to {', '.join(map(str, values[1:]))}: {ratios(measured)} times as much"
    numbers += f"; to leading order {ratios(leading)}, claimed {ratios([claim(value) for value in values])}"
    return all(one < two for one, two in pairwise(measured)), numbers


def _series(x: Sequence[int], lines: Mapping[str, Sequence[Measured]]) -> list[Curve]:
    """Return the measured lines, and then a dashed line of the leading order for each."""
    series = [Curve(label, x, _numbers(line)) for label, line in lines.items()]
    for label, line in lines.items():
        series.append(Curve(f"leading order, {label}", x, _numbers(line, "leading"), dashed=True))
    return series
