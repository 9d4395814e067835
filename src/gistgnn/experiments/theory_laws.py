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
)

KERNEL_WIDTHS = (64, 256, 1024, 4096)
KERNEL_SPLITS = (1, 2, 4)
REMAINING = ((2, 1), (2, 4), (4, 1))  # m and ζ; the first is the one that is judged
SPLITS = (2, 4, 8)
STEPS = (1, 2, 4, 8, 16, 32)
FIXED, SHORT = 40.0, 400.0  # the recommended η over these
ENOUGH = 120  # rounds, in half of which the error at the start is gone
OF_HALF, OF_ONE = 0.1, 0.15  # how far a fitted exponent may be from -1/2, and from ±1

Claim = tuple[str, bool | None, str]  # what, whether it holds, measured
Wanted = dict[str, tuple[Mapping[str, Any], Callable[[], Any]]]


@dataclass(frozen=True)
class Laws:
    """Measurements on one problem, of the widths of the experiment, and of m and ζ of their own.

    Args:
        dataset: its name.
        problem: on which all assumptions hold.
        widths: every d_1 at which what remains is measured, ascending; the other measurements are at the first.
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
                self._add(wanted, f"remaining {m} {zeta} {d_1}", remaining_error, d_1=d_1, rounds=ENOUGH, **settings)
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
        kernels = [_exponent(found, f"kernel {m}", KERNEL_WIDTHS) for m in KERNEL_SPLITS]
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
        left = [_exponent(found, f"remaining {m} {zeta}", self.widths) for m, zeta in REMAINING]
        (m, zeta), several = REMAINING[0], len(self.widths) > 1
        slopes = ", ".join(f"{each:.3f} for m = {m}, ζ = {z}" for (m, z), each in zip(REMAINING, left, strict=True))
        claim = f"the neighbourhood falls as 1/d_1 (exponent within {OF_ONE:g}; m = {m}, ζ = {zeta})"
        claims: list[Claim] = [
            (claim, abs(left[0] + 1.0) <= OF_ONE if several else None, slopes if several else "one width")
        ]
        d_1 = self.widths[-1]
        first = found[f"remaining {m} {zeta} {d_1}"]
        for symbol, (m, zeta), claimed in (("ζ", (2, 4), 4.0), ("m", (4, 1), _claimed(4) / _claimed(2))):
            other = found[f"remaining {m} {zeta} {d_1}"]
            measured = (
                f"at d_1 = {d_1:,} {other / first:.3g} times as much for m = {m}, ζ = {zeta}; claimed {claimed:.3g}"
            )
            claims.append((f"the neighbourhood grows with {symbol} (η as recommended)", other > first, measured))
        return claims

    def _of_rounds(self, found: Mapping[str, Any]) -> list[Claim]:
        short, long = ([found[f"added {kind} {zeta}"] for zeta in STEPS] for kind in ("short", "long"))
        fixed, growing = ([found[f"added {kind} {m}"] for m in SPLITS] for kind in ("fixed", "growing"))
        by_zeta = slope(STEPS[:3], short[:3])
        return [
            (
                f"what a round adds grows with ζ, as ζ (η/{SHORT:g})",
                abs(by_zeta - 1.0) <= OF_ONE,
                f"exponent {by_zeta:.3f} for ζ = 1 to 4",
            ),
            ("what a round adds grows with ζ (η as recommended)", _grows(long), _ratios("ζ", STEPS, long)),
            (f"what a round adds grows as (m−1)²/m² (η fixed, that of m = 2 over {FIXED:g})", *_as_claimed(fixed)),
            (f"what a round adds grows as (m−1)²/m² (η growing with m, over {FIXED:g})", *_as_claimed(growing)),
        ]

    def charts(self, found: Mapping[str, Any]) -> list[Chart]:
        """The measurements, each with the slope that is claimed (dashed)."""
        kernels = {f"m = {m}": [found[f"kernel {m} {d_1}"] for d_1 in KERNEL_WIDTHS] for m in KERNEL_SPLITS}
        left = {
            f"m = {m}, ζ = {zeta}": [found[f"remaining {m} {zeta} {d_1}"] for d_1 in self.widths]
            for m, zeta in REMAINING
        }
        steps = {
            f"η{said}": [found[f"added {kind} {zeta}"] for zeta in STEPS]
            for kind, said in (("short", f"/{SHORT:g}"), ("long", " as recommended"))
        }
        splits = {f"η {kind}": [found[f"added {kind} {m}"] for m in SPLITS] for kind in ("fixed", "growing")}
        name = self.dataset
        return [
            _chart(f"{name}: kernels", "d_1", "‖G^(j) − G^∞‖_F", KERNEL_WIDTHS, kernels, lambda d: d**-0.5),
            _chart(f"{name}: what remains of the error", "d_1", "‖y − ŷ‖²", self.widths, left, lambda d: 1 / d),
            _chart(f"{name}: what a round adds, by ζ", "ζ", "‖y − ŷ(1)‖², y = ŷ(0)", STEPS, steps, lambda z: z),
            _chart(f"{name}: what a round adds, by m", "m", "‖y − ŷ(1)‖², y = ŷ(0)", SPLITS, splits, _claimed),
        ]

    def _eta(self, m: int) -> float:
        return recommended_step(self.problem, m)

    def _add(self, wanted: Wanted, name: str, measure: Callable[..., Any], **settings: Any) -> None:
        of = {"dataset": self.dataset, "nodes": self.problem.n, **settings}
        wanted[name] = of, partial(measure, self.problem, **settings)

    def _add_added(self, wanted: Wanted, name: str, m: int, zeta: int, eta: float) -> None:
        settings = {"sub_gcns": m, "local_steps": zeta, "step_size": eta, "draws": 25, "seeds": 2 * self.seeds}
        self._add(wanted, name, added_error, d_1=self.widths[0], **settings)


def _exponent(found: Mapping[str, Any], name: str, widths: Sequence[int]) -> float:
    return slope(widths, [found[f"{name} {d_1}"] for d_1 in widths])


def _contract(problem: Problem, **settings: int) -> dict[str, Any]:
    return asdict(contract(problem, **settings))


def _disagreement(problem: Problem, **settings: Any) -> dict[str, Any]:
    return asdict(disagreement_in_the_limit(problem, **settings))


def _claimed(m: float) -> float:
    return (m - 1.0) ** 2 / m**2


def _grows(values: Sequence[float]) -> bool:
    return all(one < two for one, two in pairwise(values))


def _as_claimed(values: Sequence[float]) -> tuple[bool, str]:
    """Whether values at every m grow as is claimed, within a quarter, and the ratios to the first."""
    expected = [_claimed(m) / _claimed(SPLITS[0]) for m in SPLITS]
    ratios = [value / values[0] for value in values]
    said = ", ".join(f"{each:.3g}" for each in expected[1:])
    return all(abs(got / want - 1.0) <= 0.25 for got, want in zip(ratios, expected, strict=True)), (
        f"{_ratios('m', SPLITS, values)}; claimed {said}"
    )


def _ratios(name: str, at: Sequence[int], values: Sequence[float]) -> str:
    times = ", ".join(f"{value / values[0]:.3g}" for value in values[1:])
    return f"{values[0]:.3g} at {name} = {at[0]}, and {times} times that at {', '.join(map(str, at[1:]))}"


def _chart(
    title: str,
    xlabel: str,
    ylabel: str,
    at: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    claimed: Callable[[float], float],
) -> Chart:
    measured = [Series(label, at, values) for label, values in lines.items()]
    claims = [
        Series(f"claimed, {label}", at, [values[0] * claimed(x) / claimed(at[0]) for x in at], dashed=True)
        for label, values in lines.items()
    ]
    return Chart(title, xlabel, ylabel, [*measured, *claims], logx=True, logy=True)
