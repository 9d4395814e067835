"""How the kernels, and the error that GIST adds, depend on d_1, m and ζ: measured exponents beside the claims."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from gistgnn import theory
from gistgnn.paper.experiment import Claim, Verdict, judge
from gistgnn.theory import LeadingOrder, Problem, exponent, recommended_step

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
SHARE = 0.05  # convergence is compared by when the error reaches this share of the initial error
TRANSIENT = 0.1  # the largest share that the initial error may have in what is measured as the remaining error

Measured = Mapping[str, float]  # "measured", "leading" (to leading order), "transient" (the rest of the initial error)


# `widths` are every d_1, ascending; what a round adds is measured at the middle one. Cheap ones take more `seeds`.
@dataclass(frozen=True)
class Laws:
    """Measurements at the m and ζ above on one problem, named `dataset`, on which all assumptions hold."""

    dataset: str
    problem: Problem
    widths: tuple[int, ...]
    seeds: int

    @property
    def middle(self) -> int:
        """The d_1 of what does not depend on several."""
        return self.widths[len(self.widths) // 2]

    def measurements(self) -> dict[str, list[partial[Any]]]:
        """Return what is measured, by name: functions, one for each value of what varies."""
        problem, seeds, widths = self.problem, self.seeds, self.widths
        eta, draws = recommended_step(problem, 2), min(25, 6 * seeds + 1)

        def of(measure: Callable[..., Any], m: int, zeta: int, step_size: float, **more: Any) -> partial[Any]:
            settings = {"d_1": self.middle, "sub_gcns": m, "local_steps": zeta, "step_size": step_size, **more}
            return partial(measure, problem, **settings)

        def remaining(m: int, zeta: int, d_1: int) -> partial[Any]:
            more = {"d_1": d_1, "seeds": max(seeds, 6 * seeds * widths[0] // d_1), "rounds": ENOUGH}
            return of(_remaining, m, zeta, recommended_step(problem, m), **more)

        def settled(m: int, zeta: int, step_size: float, runs: int, rounds: int) -> partial[Any]:
            return of(_remaining, m, zeta, step_size, seeds=runs, rounds=rounds, from_zero=True)

        def added(m: int, zeta: int, step_size: float) -> partial[Any]:
            return of(_added, m, zeta, step_size, seeds=2 * seeds, draws=draws)

        def rate(m: int, step_size: float, **more: int) -> partial[Any]:
            return of(_rounds, m, 1, step_size, **{"seeds": seeds, "rounds": GENTLE_ENOUGH, **more})

        kernel = partial(theory.measure_kernel_distance, problem, draws=15 * seeds)
        return {
            **{f"kernel {m}": [partial(kernel, d_1, m) for d_1 in KERNEL_WIDTHS] for m in KERNEL_SPLITS},
            **{f"remaining {m} {zeta}": [remaining(m, zeta, d_1) for d_1 in widths] for m, zeta in REMAINING},
            "gentle ζ": [settled(2, zeta, eta / GENTLE, 3 * seeds, GENTLE_ENOUGH // zeta) for zeta in GENTLE_STEPS],
            "gentle m": [settled(m, 1, eta / GENTLE, 3 * seeds, GENTLE_ENOUGH) for m in SPLITS],
            "own m": [settled(m, 1, eta / OWN * 2 / m, 12 * seeds // m, OWN_ENOUGH * m**2) for m in SPLITS],
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

    def verdicts(self, found: Mapping[str, list[Any]]) -> list[Verdict]:
        """Judge the claims by the results of `measurements`."""
        claims = [*_kernel_claims(found), *self._rate_claims(found), *self._plateau_claims(found)]
        return judge(self.dataset, [*claims, *_round_claims(found)])

    def _rate_claims(self, found: Mapping[str, list[Any]]) -> Iterator[Claim]:
        """See section 4: "wider ... models and a larger number of sub-GCNs ... maximize the convergence rate"."""
        steps = {"rate fixed": f"η/{OWN} for every m", "rate own": f"η ∝ 1/m, as the theorem's step; at m = 2 η/{OWN}"}
        steps["rate"] = "η as recommended, which grows with m"
        for name, step in steps.items():
            yield Claim(f"more sub-GCNs converge in fewer rounds ({step})", *_fewer("m", SPLITS, found[name]))
        yield Claim("wider models converge in fewer rounds (m = 2)", *_fewer("d_1", self.widths, found["rate d_1"]))

    def _plateau_claims(self, found: Mapping[str, list[Measured]]) -> Iterator[Claim]:
        lines = [found[f"remaining {m} {zeta}"] for m, zeta in REMAINING]
        several, (m, zeta) = len(self.widths) > 1, REMAINING[0]
        unsettled = None, f"the initial error is not gone after {ENOUGH // 2} rounds"
        settled = all(_settled(result) for line in lines for result in line)
        slopes = [exponent(self.widths, _numbers(line)) for line in lines if several]
        pairs = zip(REMAINING, slopes, strict=False)
        numbers = ", ".join(f"{slope:.3f} for m = {m}, ζ = {zeta}" for (m, zeta), slope in pairs) or "one width"
        falls = abs(slopes[0] + 1.0) <= ONE_TOLERANCE if several else None
        claim = f"falls as 1/d_1 (exponent within {ONE_TOLERANCE:g}; m = {m}, ζ = {zeta})"
        yield Claim(f"the plateau, in rounds well below d_1, {claim}", *((falls, numbers) if settled else unsettled))
        first, longer, wider = (line[-1] for line in lines)
        as_zeta, as_m = "the plateau grows with ζ", "the plateau grows with m, as (m−1)²/m²"
        by_zeta = _grows("ζ", (1, 4), [first, longer], float) if settled else unsettled
        by_m = _grows_with_m((2, 4), [first, wider]) if settled else unsettled
        yield Claim(f"{as_zeta} (small steps, η/{GENTLE})", *_grows("ζ", GENTLE_STEPS, found["gentle ζ"], float))
        yield Claim(f"{as_zeta} (η as recommended)", *by_zeta)
        yield Claim(f"{as_m} (η/{GENTLE})", *_grows_with_m(SPLITS, found["gentle m"]))
        yield Claim(f"{as_m} (η as recommended, which grows with m)", *by_m)
        own = f"{as_m} (η ∝ 1/m, as the theorem's step; at m = 2 η/{OWN})"
        yield Claim(own, *_grows_with_m(SPLITS, found["own m"]))
        small, large = found["gentle ζ"][0], found["remaining 2 1"][self.widths.index(self.middle)]
        ratio, leading = (small[kind] / large[kind] for kind in ("measured", "leading"))
        depends = f"η/{GENTLE} leaves {ratio:.3g} times as much; to leading order {leading:.3g}, claimed 1"
        same = abs(ratio - 1.0) <= CLAIM_TOLERANCE, depends
        claim = f"the plateau does not depend on η (η/{GENTLE} and η; d_1 = {self.middle:,}, m = 2, ζ = 1)"
        yield Claim(claim, *(same if _settled(large) else unsettled))


def _round_claims(found: Mapping[str, list[Measured]]) -> Iterator[Claim]:
    slope = exponent(STEPS[:3], _numbers(found["added short"][:3]))
    grows = f"what a round adds grows with ζ, as ζ (η/{SHORT})"
    yield Claim(grows, abs(slope - 1.0) <= ONE_TOLERANCE, f"exponent {slope:.3f} for ζ = 1 to 4")
    yield Claim(f"what a round adds grows with m, as (m−1)²/m² (η/{SHORT})", *_grows_with_m(SPLITS, found["added m"]))
    widest = [found[f"remaining {m} {zeta}"][-1] for m, zeta in REMAINING]
    judged = [*filter(_settled, widest), *found["gentle ζ"], *found["gentle m"][1:], *found["own m"]]
    judged += [result for name in ("added short", "added long", "added m") for result in found[name]]
    ratios = [result["measured"] / result["leading"] for result in judged]
    yield Claim(
        f"ours (heuristic): in rounds well below d_1, the measurements are the leading order in 1/d_1, within "
        f"{LEADING_TOLERANCE:.0%}",
        all(abs(ratio - 1.0) <= LEADING_TOLERANCE for ratio in ratios),
        f"{min(ratios):.2f} to {max(ratios):.2f} times the leading order, in {len(ratios)} measurements",
    )


def _kernel_claims(found: Mapping[str, list[Any]]) -> Iterator[Claim]:
    slopes = {m: exponent(KERNEL_WIDTHS, found[f"kernel {m}"]) for m in KERNEL_SPLITS}
    yield Claim(
        f"finite kernels approach G^∞ as d_1^-1/2 (exponent within {HALF_TOLERANCE:g})",
        all(abs(slope + 0.5) <= HALF_TOLERANCE for slope in slopes.values()),
        ", ".join(f"{slope:.3f} for m = {m}" for m, slope in slopes.items()),
    )
    (local,), (lemma,) = found["local"], found["lemma"]
    times = (1 - local["slowest"]) / (1 - local["factor"])
    slowest = f"; the slowest step contracts {times:.2f} times as much" if local["met"] else ""
    yield Claim(
        "Lemma local_converge: if its conditions hold, a local step contracts by 1 − ηλ_0/2 or more",
        local["slowest"] <= local["factor"] if local["met"] else None,
        f"{local['met']} of {local['trained']} sub-GCNs meet them{slowest}",
    )
    yield Claim(
        "Lemma error_term_bound: the disagreement of the sub-GCNs falls no faster than it allows, as d_1 → ∞ "
        "(an example; it fails for every y where the error is small, and the theorem is then neither proved nor "
        "refuted)",
        lemma["fall"] <= lemma["allowed"],
        f"y = 0, m = 2, ζ = 2: it falls by {lemma['fall']:.3g}, allowed is {lemma['allowed']:.3g}",
    )


def _remaining(problem: Problem, rounds: int, seeds: int, from_zero: bool = False, **settings: Any) -> dict[str, float]:
    measured = theory.measure_remaining_error(problem, rounds=rounds, seeds=seeds, from_zero=from_zero, **settings)
    added = LeadingOrder.of(problem, samples=SAMPLES, **settings).after(rounds)
    m, zeta, eta = settings["sub_gcns"], settings["local_steps"], settings["step_size"]
    transient = 0.0 if from_zero else theory.mean_of_second_half(theory.limit_error(problem, m, zeta, eta, rounds))
    return {"measured": measured, "leading": theory.mean_of_second_half(added), "transient": transient}


def _added(problem: Problem, draws: int, seeds: int, **settings: Any) -> dict[str, float]:
    measured = theory.measure_added_error(problem, draws=draws, seeds=seeds, **settings)
    return {"measured": measured, "leading": LeadingOrder.of(problem, samples=SAMPLES, **settings).added}


def _rounds(problem: Problem, d_1: int, sub_gcns: int, rounds: int, seeds: int, **settings: Any) -> list[int | None]:
    """Return after how many rounds the mean error is `SHARE` of the first, or None; and how many were trained."""
    gists = [theory.make_gist(problem, d_1, sub_gcns, seed) for seed in range(seeds)]
    total: Any = sum(theory.train(gist, problem, rounds, **settings) for gist in gists)
    errors = total.tolist()
    return [next((t for t, error in enumerate(errors) if error <= SHARE * errors[0]), None), rounds]


def _settled(result: Measured) -> bool:
    return result["transient"] <= TRANSIENT * result["leading"]


def _numbers(line: Sequence[Measured], kind: str = "measured") -> list[float]:
    return [result[kind] for result in line]


def _fewer(symbol: str, values: Sequence[int], line: Sequence[Sequence[int]]) -> tuple[bool | None, str]:
    """Return whether fewer and fewer rounds reach `SHARE` (None: the first line does not reach it), and the numbers."""
    known = [f"more than {most}" if reached is None else str(reached) for reached, most in line]
    numbers = ", ".join(f"{symbol} = {value:,}: {each}" for value, each in zip(values, known, strict=True))
    fewer = all(later is not None and later < first for (first, _), (later, _) in pairwise(line) if first is not None)
    judged = line[0][0] is not None and len(line) > 1
    return fewer if judged else None, f"rounds to {SHARE:.0%} of the initial error: {numbers}"


def _grows_with_m(ms: Sequence[int], line: Sequence[Measured]) -> tuple[bool, str]:
    """Return whether measurements grow as (m−1)²/m², within `CLAIM_TOLERANCE`, and the numbers."""

    def claimed(m: float) -> float:
        return (m - 1.0) ** 2 / m**2

    each = [result["measured"] / claimed(m) for m, result in zip(ms, line, strict=True)]
    return all(abs(one / each[0] - 1.0) <= CLAIM_TOLERANCE for one in each), _grows("m", ms, line, claimed)[1]


def _grows(
    symbol: str, values: Sequence[int], line: Sequence[Measured], claim: Callable[[float], float]
) -> tuple[bool, str]:
    """Return whether measurements grow, and their ratios to the first: measured, to leading order, and claimed."""
    kinds = _numbers(line), _numbers(line, "leading"), list(map(claim, values))
    ratios = [", ".join(f"{number / kind[0]:.3g}" for number in kind[1:]) for kind in kinds]
    numbers = "from {} = {} to {}: {} times as much; to leading order {}, claimed {}"
    grows = all(one < two for one, two in pairwise(kinds[0]))
    return grows, numbers.format(symbol, values[0], ", ".join(map(str, values[1:])), *ratios)
