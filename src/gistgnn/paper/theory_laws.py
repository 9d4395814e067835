"""How kernels, and what GIST adds to the error, depend on d_1, m and ζ: the exponents that the analysis claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from gistgnn.paper.experiment import Chart, Series, Verdict
from gistgnn.theory import (
    Problem,
    added_error,
    contract,
    disagreement_in_the_limit,
    kernel_distance,
    limit_error,
    recommended_step,
    remaining_error,
    second_half,
    slope,
    stationary_error,
)

KERNEL_WIDTHS = (64, 256, 1024, 4096)
KERNEL_SPLITS = (1, 2, 4)
REMAINING = ((2, 1), (2, 4), (4, 1))  # m and ζ; the first is the one that is judged
GENTLE_STEPS, SPLITS = (1, 2, 4), (2, 4, 8)  # of what remains at small steps, at m = 2 and at ζ = 1
STEPS = (1, 2, 4, 8, 16, 32)
GENTLE, SHORT = 16, 400  # the recommended η of m = 2 over these
ENOUGH, GENTLE_ENOUGH = 120, 400  # rounds, and local steps where steps are small, in half of which all is as it stays
SAMPLES = 5000  # of θ, for what is predicted to leading order
OF_HALF, OF_ONE = 0.1, 0.15  # how far a fitted exponent may be from -1/2, and from ±1
OF_CLAIM = 0.25  # how far ratios may be from those of (m−1)²/m²
OF_LEADING = 0.25  # how far a measurement may be from what is predicted
GONE = 0.1  # of what remains: more of the error at the start, and it is not what remains that is measured

Claim = tuple[str, bool | None, str]  # what, whether it holds, measured
Measured = Mapping[str, float]  # "measured", "leading": to leading order, "transient": what is left of the start
Wanted = dict[str, tuple[Mapping[str, Any], Callable[[], Any]]]


@dataclass(frozen=True)
class Laws:
    """Measurements on one problem, of the widths of the experiment, and of m and ζ of their own.

    Args:
        dataset: its name.
        problem: on which all assumptions hold.
        widths: every d_1 at which what remains is measured, ascending; other things are measured at the middle one.
        seeds: of the experiment; cheap measurements take more.
    """

    dataset: str
    problem: Problem
    widths: tuple[int, ...]
    seeds: int

    def wanted(self) -> Wanted:
        """What is to be measured, by name."""
        wanted: Wanted = {}
        for m in KERNEL_SPLITS:
            for d_1 in KERNEL_WIDTHS:
                self._add(wanted, f"kernel {m} {d_1}", kernel_distance, d_1=d_1, sub_gcns=m, draws=15 * self.seeds)
        for m, zeta in REMAINING:
            for d_1 in self.widths:
                seeds = max(self.seeds, 6 * self.seeds * self.widths[0] // d_1)
                settings = self._settings(d_1, m, zeta, self._eta(m))
                self._add(wanted, f"remaining {m} {zeta} {d_1}", _remaining, rounds=ENOUGH, seeds=seeds, **settings)
        for m, zeta in dict.fromkeys([*((2, zeta) for zeta in GENTLE_STEPS), *((m, 1) for m in SPLITS)]):
            settings = self._settings(self._middle, m, zeta, self._eta(2) / GENTLE)
            more = {"rounds": GENTLE_ENOUGH // zeta, "seeds": 3 * self.seeds, "from_zero": True}
            self._add(wanted, f"gentle {m} {zeta}", _remaining, **more, **settings)
        added = [(f"long {zeta}", 2, zeta, 1) for zeta in STEPS] + [(f"short {zeta}", 2, zeta, SHORT) for zeta in STEPS]
        for name, m, zeta, over in [*added, *((f"fixed {m}", m, 1, SHORT) for m in SPLITS)]:
            settings = self._settings(self._middle, m, zeta, self._eta(2) / over)
            draws = min(25, 6 * self.seeds + 1)
            self._add(wanted, f"added {name}", _added, draws=draws, seeds=2 * self.seeds, **settings)
        self._add(wanted, "local", _contract, d_1=self.widths[0], sub_gcns=2, local_steps=5, seeds=self.seeds)
        self._add(wanted, "lemma", _disagreement, sub_gcns=2, local_steps=2, step_size=self._eta(2) / 4)
        return wanted

    def verdicts(self, found: Mapping[str, Any]) -> list[Verdict]:
        """What becomes of the claims."""
        claims = [*self._of_kernels(found), *self._of_neighbourhoods(found), *self._of_rounds(found)]
        return [Verdict(f"{self.dataset}: {claim}", holds, measured) for claim, holds, measured in claims]

    def _of_kernels(self, found: Mapping[str, Any]) -> list[Claim]:
        kernels = [slope(KERNEL_WIDTHS, [found[f"kernel {m} {d_1}"] for d_1 in KERNEL_WIDTHS]) for m in KERNEL_SPLITS]
        local, lemma = found["local"], found["lemma"]
        times = (1 - local["slowest"]) / (1 - local["factor"])
        slowest = f"; the slowest step contracts {times:.2f} times as much" if local["met"] else ""
        return [
            (
                f"finite kernels approach G^∞ as d_1^-1/2 (exponent within {OF_HALF:g})",
                all(abs(each + 0.5) <= OF_HALF for each in kernels),
                ", ".join(f"{each:.3f} for m = {m}" for m, each in zip(KERNEL_SPLITS, kernels, strict=True)),
            ),
            (
                "Lemma local_converge: where its conditions hold, a local step contracts by 1 − ηλ_0/2 or more",
                local["slowest"] <= local["factor"] if local["met"] else None,
                f"{local['met']} of {local['trained']} sub-GCNs meet them{slowest}",
            ),
            (
                "Lemma error_term_bound: the disagreement of the sub-GCNs falls no faster than it allows, as d_1 → ∞",
                lemma["fall"] <= lemma["allowed"],
                f"y = 0, m = 2, ζ = 2: it falls by {lemma['fall']:.3g}, allowed {lemma['allowed']:.3g}",
            ),
        ]

    def _of_neighbourhoods(self, found: Mapping[str, Any]) -> list[Claim]:
        left = [self._at_widths(found, m, zeta) for m, zeta in REMAINING]
        settled = all(each["transient"] <= GONE * each["leading"] for values in left for each in values)
        (m, zeta), several = REMAINING[0], len(self.widths) > 1
        slopes = [slope(self.widths, [each["measured"] for each in values]) for values in left] if several else []
        said = ", ".join(f"{each:.3f} for m = {m}, ζ = {z}" for (m, z), each in zip(REMAINING, slopes, strict=False))
        if not settled:
            said = f"the error at the start is not gone after {ENOUGH // 2} rounds"
        gentle = [[found[f"gentle 2 {zeta}"] for zeta in GENTLE_STEPS], [found[f"gentle {m} 1"] for m in SPLITS]]
        widest = [values[-1] for values in left]
        by_zeta = _grows("ζ", (1, 4), [widest[0], widest[1]], float)
        by_m = _grows_with_m((2, 4), [widest[0], widest[2]])
        unsettled = (None, said)
        return [
            (
                f"the neighbourhood falls as 1/d_1 (exponent within {OF_ONE:g}; m = {m}, ζ = {zeta})",
                abs(slopes[0] + 1.0) <= OF_ONE if several and settled else None,
                said or "one width",
            ),
            (f"the neighbourhood grows with ζ (small steps, η/{GENTLE})", *_grows("ζ", GENTLE_STEPS, gentle[0], float)),
            ("the neighbourhood grows with ζ (η as recommended)", *(by_zeta if settled else unsettled)),
            (f"the neighbourhood grows with m, as (m−1)²/m² (η/{GENTLE})", *_grows_with_m(SPLITS, gentle[1])),
            ("the same (η as recommended, which grows with m)", *(by_m if settled else unsettled)),
        ]

    def _of_rounds(self, found: Mapping[str, Any]) -> list[Claim]:
        short, fixed = [found[f"added short {zeta}"] for zeta in STEPS], [found[f"added fixed {m}"] for m in SPLITS]
        exponent = slope(STEPS[:3], [each["measured"] for each in short[:3]])
        remains = [found[f"remaining {m} {zeta} {self.widths[-1]}"] for m, zeta in REMAINING]
        settled = [each for each in remains if each["transient"] <= GONE * each["leading"]]
        others = [each for name, each in found.items() if name.startswith(("gentle", "added"))]
        ratios = [each["measured"] / each["leading"] for each in [*settled, *others]]
        return [
            (
                f"what a round adds grows with ζ, as ζ (η/{SHORT})",
                abs(exponent - 1.0) <= OF_ONE,
                f"exponent {exponent:.3f} for ζ = 1 to 4",
            ),
            (f"what a round adds grows with m, as (m−1)²/m² (η/{SHORT})", *_grows_with_m(SPLITS, fixed)),
            (
                f"ours: what is measured is the leading order in 1/d_1, within {OF_LEADING:.0%}",
                all(abs(ratio - 1.0) <= OF_LEADING for ratio in ratios),
                f"{min(ratios):.2f} to {max(ratios):.2f} times it, of {len(ratios)} measurements",
            ),
        ]

    def charts(self, found: Mapping[str, Any]) -> list[Chart]:
        """The measurements, and what they are compared with (dashed)."""
        name, remains, added = self.dataset, "what remains of the error", "‖y − ŷ(1)‖², y = ŷ(0)"
        kernels = [
            Series(f"m = {m}", KERNEL_WIDTHS, [found[f"kernel {m} {d_1}"] for d_1 in KERNEL_WIDTHS])
            for m in KERNEL_SPLITS
        ]
        claims = [Series(f"d_1^-1/2, {each.label}", each.x, _law(each, -0.5), dashed=True) for each in kernels]
        by_width = {f"m = {m}, ζ = {zeta}": self._at_widths(found, m, zeta) for m, zeta in REMAINING}
        by_zeta = {f"η/{GENTLE}": [found[f"gentle 2 {zeta}"] for zeta in GENTLE_STEPS]}
        by_m = {f"η/{GENTLE}": [found[f"gentle {m} 1"] for m in SPLITS]}
        steps = {
            f"η/{SHORT}": [found[f"added short {zeta}"] for zeta in STEPS],
            "η as recommended": [found[f"added long {zeta}"] for zeta in STEPS],
        }
        return [
            _loglog(f"{name}: kernels by d_1", "d_1", "‖G^(j) − G^∞‖_F", [*kernels, *claims]),
            _loglog(f"{name}: {remains}, by d_1", "d_1", "‖y − ŷ‖²", _pairs(self.widths, by_width)),
            _loglog(f"{name}: {remains}, by ζ (m = 2)", "ζ", "‖y − ŷ‖²", _pairs(GENTLE_STEPS, by_zeta)),
            _loglog(f"{name}: {remains}, by m (ζ = 1)", "m", "‖y − ŷ‖²", _pairs(SPLITS, by_m)),
            _loglog(f"{name}: what a round adds, by ζ (m = 2)", "ζ", added, _pairs(STEPS, steps)),
        ]

    def _at_widths(self, found: Mapping[str, Any], m: int, zeta: int) -> list[Measured]:
        return [found[f"remaining {m} {zeta} {d_1}"] for d_1 in self.widths]

    @property
    def _middle(self) -> int:
        return self.widths[len(self.widths) // 2]

    def _eta(self, m: int) -> float:
        return recommended_step(self.problem, m)

    def _settings(self, d_1: int, m: int, zeta: int, eta: float) -> dict[str, Any]:
        return {"d_1": d_1, "sub_gcns": m, "local_steps": zeta, "step_size": eta}

    def _add(self, wanted: Wanted, name: str, measure: Callable[..., Any], **settings: Any) -> None:
        of = {"dataset": self.dataset, "problem": self.problem.checksum, "samples": SAMPLES, **settings}
        wanted[name] = of, partial(measure, self.problem, **settings)


def _remaining(problem: Problem, rounds: int, seeds: int, from_zero: bool = False, **settings: Any) -> dict[str, float]:
    measured = remaining_error(problem, rounds=rounds, seeds=seeds, from_zero=from_zero, **settings)
    added = stationary_error(problem, samples=SAMPLES, **settings).after(rounds)
    m, zeta, eta = settings["sub_gcns"], settings["local_steps"], settings["step_size"]
    transient = 0.0 if from_zero else second_half(limit_error(problem, m, zeta, eta, rounds))
    return {"measured": measured, "leading": second_half(added), "transient": transient}


def _added(problem: Problem, draws: int, seeds: int, **settings: Any) -> dict[str, float]:
    measured = added_error(problem, draws=draws, seeds=seeds, **settings)
    return {"measured": measured, "leading": stationary_error(problem, samples=SAMPLES, **settings).added}


def _contract(problem: Problem, **settings: int) -> dict[str, Any]:
    return asdict(contract(problem, **settings))


def _disagreement(problem: Problem, **settings: Any) -> dict[str, Any]:
    return asdict(disagreement_in_the_limit(problem, **settings))


def _claimed(m: float) -> float:
    return (m - 1.0) ** 2 / m**2


def _grows_with_m(at: Sequence[int], values: Sequence[Measured]) -> tuple[bool, str]:
    """Whether values grow as (m−1)²/m², within `OF_CLAIM`."""
    ratios = [each["measured"] / values[0]["measured"] / _claimed(m) for m, each in zip(at, values, strict=True)]
    return all(abs(each / ratios[0] - 1.0) <= OF_CLAIM for each in ratios), _grows("m", at, values, _claimed)[1]


def _grows(
    symbol: str, at: Sequence[int], values: Sequence[Measured], claimed: Callable[[float], float]
) -> tuple[bool, str]:
    """Whether values grow, and how many times the first they are: measured, to leading order and as is claimed."""
    times, leading = (
        ", ".join(f"{each[kind] / values[0][kind]:.3g}" for each in values[1:]) for kind in ("measured", "leading")
    )
    expected = ", ".join(f"{claimed(each) / claimed(at[0]):.3g}" for each in at[1:])
    said = f"from {symbol} = {at[0]} to {', '.join(map(str, at[1:]))}: {times} times as much"
    said += f"; to leading order {leading}, claimed {expected}"
    return all(one["measured"] < two["measured"] for one, two in pairwise(values)), said


def _law(line: Series, exponent: float) -> list[float]:
    """A power law through the first point of a line."""
    return [line.y[0] * (x / line.x[0]) ** exponent for x in line.x]


def _pairs(at: Sequence[int], lines: Mapping[str, Sequence[Measured]]) -> list[Series]:
    measured = [Series(label, at, [each["measured"] for each in values]) for label, values in lines.items()]
    leading = [
        Series(f"leading order, {label}", at, [each["leading"] for each in values], dashed=True)
        for label, values in lines.items()
    ]
    return [*measured, *leading]


def _loglog(title: str, xlabel: str, ylabel: str, series: Sequence[Series]) -> Chart:
    return Chart(title, xlabel, ylabel, series, logx=True, logy=True)
