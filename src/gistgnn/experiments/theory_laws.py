"""How kernels, and what GIST adds to the error, depend on d_1, m and ζ: the exponents that the analysis claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from gistgnn.experiments.experiment import Chart, Series, Verdict
from gistgnn.theory import (
    Problem,
    added_error,
    contract,
    disagreement_in_the_limit,
    kernel_distance,
    recommended_step,
    remaining_error,
    slope,
    stationary_error,
)

KERNEL_WIDTHS = (64, 256, 1024, 4096)
KERNEL_SPLITS = (1, 2, 4)
REMAINING = ((2, 1), (2, 4), (4, 1))  # m and ζ; the first is the one that is judged
SPLITS = (2, 4, 8)
STEPS = (1, 2, 4, 8, 16, 32)
FIXED, SHORT = 40.0, 400.0  # the recommended η over these
ENOUGH = 120  # rounds, in half of which the error at the start is gone
SAMPLES = 5000  # of θ, for what is predicted to leading order
OF_HALF, OF_ONE = 0.1, 0.15  # how far a fitted exponent may be from -1/2, and from ±1
OF_LEADING = 0.25  # how far a measurement may be from what is predicted
KINDS = ("measured", "leading")

Claim = tuple[str, bool | None, str]  # what, whether it holds, measured
Wanted = dict[str, tuple[Mapping[str, Any], Callable[[], Any]]]


@dataclass(frozen=True)
class Laws:
    """Measurements on one problem, of the widths of the experiment, and of m and ζ of their own.

    Args:
        dataset: its name.
        problem: on which all assumptions hold.
        widths: every d_1 at which what remains is measured, ascending; what a round adds is measured at the middle one.
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
                settings = {"sub_gcns": m, "local_steps": zeta, "step_size": self._eta(m), "seeds": seeds}
                self._add(wanted, f"remaining {m} {zeta} {d_1}", _remaining, d_1=d_1, rounds=ENOUGH, **settings)
        for m in SPLITS:
            for kind, eta in (("fixed", self._eta(2) / FIXED), ("growing", self._eta(m) / FIXED)):
                self._add_added(wanted, f"added {kind} {m}", m, 1, eta)
        for zeta in STEPS:
            for kind, over in (("short", SHORT), ("long", 1.0)):
                self._add_added(wanted, f"added {kind} {zeta}", 2, zeta, self._eta(2) / over)
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
        left = [self._remaining(found, m, zeta) for m, zeta in REMAINING]
        (m, zeta), several = REMAINING[0], len(self.widths) > 1
        claim = f"the neighbourhood falls as 1/d_1 (exponent within {OF_ONE:g}; m = {m}, ζ = {zeta})"
        if not several:
            return [(claim, None, "one width")]
        slopes = [slope(self.widths, [each["measured"] for each in values]) for values in left]
        said = ", ".join(f"{each:.3f} for m = {m}, ζ = {z}" for (m, z), each in zip(REMAINING, slopes, strict=True))
        claims: list[Claim] = [(claim, abs(slopes[0] + 1.0) <= OF_ONE, said)]
        for symbol, values, claimed in (("ζ", left[1], 4.0), ("m", left[2], _claimed(4) / _claimed(2))):
            times, leading = (values[-1][kind] / left[0][-1][kind] for kind in ("measured", "leading"))
            measured = (
                f"from {symbol} = {1 if symbol == 'ζ' else 2} to 4, at d_1 = {self.widths[-1]:,}, {times:.3g} times as "
                f"much; claimed {claimed:.3g}, to leading order {leading:.3g}"
            )
            claims.append((f"the neighbourhood grows with {symbol} (η as recommended)", times > 1, measured))
        return claims

    def _of_rounds(self, found: Mapping[str, Any]) -> list[Claim]:
        short, long = ([found[f"added {kind} {zeta}"] for zeta in STEPS] for kind in ("short", "long"))
        fixed, growing = ([found[f"added {kind} {m}"] for m in SPLITS] for kind in ("fixed", "growing"))
        by_zeta = slope(STEPS[:3], [each["measured"] for each in short[:3]])
        grows = all(one["measured"] < two["measured"] for one, two in pairwise(long))
        return [
            (
                f"what a round adds grows with ζ, as ζ (η/{SHORT:g})",
                abs(by_zeta - 1.0) <= OF_ONE,
                f"exponent {by_zeta:.3f} for ζ = 1 to 4",
            ),
            ("what a round adds grows with ζ (η as recommended)", grows, _ratios("ζ", STEPS, long)),
            (f"what a round adds grows as (m−1)²/m² (η fixed, that of m = 2 over {FIXED:g})", *_as_claimed(fixed)),
            (f"what a round adds grows as (m−1)²/m² (η growing with m, over {FIXED:g})", *_as_claimed(growing)),
            self._of_the_leading_order(found),
        ]

    def _of_the_leading_order(self, found: Mapping[str, Any]) -> Claim:
        """Ours, not the paper's: what it says instead of the theorem's error term."""
        widest = [found[f"remaining {m} {zeta} {self.widths[-1]}"] for m, zeta in REMAINING]
        rounds = [each for name, each in found.items() if name.startswith("added ")]
        ratios = [[each["measured"] / each["leading"] for each in group] for group in (widest, rounds)]
        said = [f"{min(group):.2f} to {max(group):.2f}" for group in ratios]
        return (
            f"ours: the leading order in 1/d_1 says what is measured, within {OF_LEADING:.0%}",
            all(abs(ratio - 1.0) <= OF_LEADING for group in ratios for ratio in group),
            f"measured over predicted: {said[0]} of what remains at d_1 = {self.widths[-1]:,}, {said[1]} of what a "
            f"round adds at d_1 = {self._middle:,}",
        )

    def charts(self, found: Mapping[str, Any]) -> list[Chart]:
        """The measurements, and what they are compared with (dashed)."""
        name, left = self.dataset, "what remains of the error"
        kernels = [
            Series(f"m = {m}", KERNEL_WIDTHS, [found[f"kernel {m} {d_1}"] for d_1 in KERNEL_WIDTHS])
            for m in KERNEL_SPLITS
        ]
        claims = [Series(f"d_1^-1/2, {each.label}", each.x, _law(each, -0.5), dashed=True) for each in kernels]
        remaining = {f"m = {m}, ζ = {zeta}": self._remaining(found, m, zeta) for m, zeta in REMAINING}
        steps = {
            f"η{said}": [found[f"added {kind} {zeta}"] for zeta in STEPS]
            for kind, said in (("short", f"/{SHORT:g}"), ("long", " as recommended"))
        }
        splits = {f"η {kind}": [found[f"added {kind} {m}"] for m in SPLITS] for kind in ("fixed", "growing")}
        added = "‖y − ŷ(1)‖², y = ŷ(0)"
        return [
            _chart(f"{name}: kernels by d_1", "d_1", "‖G^(j) − G^∞‖_F", [*kernels, *claims]),
            _chart(f"{name}: {left} by d_1, and to leading order", "d_1", "‖y − ŷ‖²", _pairs(self.widths, remaining)),
            _chart(f"{name}: what a round adds by ζ, and to leading order", "ζ", added, _pairs(STEPS, steps)),
            _chart(f"{name}: what a round adds by m, and to leading order", "m", added, _pairs(SPLITS, splits)),
        ]

    def _remaining(self, found: Mapping[str, Any], m: int, zeta: int) -> list[dict[str, float]]:
        return [found[f"remaining {m} {zeta} {d_1}"] for d_1 in self.widths]

    @property
    def _middle(self) -> int:
        return self.widths[len(self.widths) // 2]

    def _eta(self, m: int) -> float:
        return recommended_step(self.problem, m)

    def _add(self, wanted: Wanted, name: str, measure: Callable[..., Any], **settings: Any) -> None:
        of = {"dataset": self.dataset, "nodes": self.problem.n, **settings}
        wanted[name] = of, partial(measure, self.problem, **settings)

    def _add_added(self, wanted: Wanted, name: str, m: int, zeta: int, eta: float) -> None:
        settings = {"sub_gcns": m, "local_steps": zeta, "step_size": eta, "draws": min(25, 6 * self.seeds + 1)}
        self._add(wanted, name, _added, d_1=self._middle, seeds=2 * self.seeds, **settings)


def _remaining(problem: Problem, rounds: int, seeds: int, **settings: Any) -> dict[str, float]:
    measured = remaining_error(problem, rounds=rounds, seeds=seeds, **settings)
    return {"measured": measured, "leading": stationary_error(problem, samples=SAMPLES, **settings).remaining}


def _added(problem: Problem, draws: int, seeds: int, **settings: Any) -> dict[str, float]:
    measured = added_error(problem, draws=draws, seeds=seeds, **settings)
    return {"measured": measured, "leading": stationary_error(problem, samples=SAMPLES, **settings).added}


def _contract(problem: Problem, **settings: int) -> dict[str, Any]:
    return asdict(contract(problem, **settings))


def _disagreement(problem: Problem, **settings: Any) -> dict[str, Any]:
    return asdict(disagreement_in_the_limit(problem, **settings))


def _claimed(m: float) -> float:
    return (m - 1.0) ** 2 / m**2


def _as_claimed(values: Sequence[Mapping[str, float]]) -> tuple[bool, str]:
    """Whether values at every m grow as is claimed, within a quarter, and the ratios to the first."""
    expected = [_claimed(m) / _claimed(SPLITS[0]) for m in SPLITS]
    ratios = [value["measured"] / values[0]["measured"] for value in values]
    said = ", ".join(f"{each:.3g}" for each in expected[1:])
    holds = all(abs(got / want - 1.0) <= 0.25 for got, want in zip(ratios, expected, strict=True))
    return holds, f"{_ratios('m', SPLITS, values)}; claimed {said}"


def _ratios(name: str, at: Sequence[int], values: Sequence[Mapping[str, float]]) -> str:
    first, *others = values
    times, leading = (", ".join(f"{each[kind] / first[kind]:.3g}" for each in others) for kind in KINDS)
    said = f"{first['measured']:.3g} at {name} = {at[0]}, and {times} times that at {', '.join(map(str, at[1:]))}"
    return f"{said}; to leading order {leading}"


def _law(line: Series, exponent: float) -> list[float]:
    """A power law through the first point of a line."""
    return [line.y[0] * (x / line.x[0]) ** exponent for x in line.x]


def _pairs(at: Sequence[int], lines: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Series]:
    measured = [Series(label, at, [each["measured"] for each in values]) for label, values in lines.items()]
    leading = [
        Series(f"leading order, {label}", at, [each["leading"] for each in values], dashed=True)
        for label, values in lines.items()
    ]
    return [*measured, *leading]


def _chart(title: str, xlabel: str, ylabel: str, series: Sequence[Series]) -> Chart:
    return Chart(title, xlabel, ylabel, series, logx=True, logy=True)
