"""The bound of the theorem with its constants (appendix C.3, C.5), as printed and with its constants put right.

The proof of Lemma error_term_bound takes E_a[Δ] = 0 of terms in which the trained weights depend on a; it is not, and
the lemma is wrong at large d_1 (docs/theory.md). So neither form is proved. `lazy.LazyBound` is.
"""

import math
from dataclasses import dataclass

from gistgnn.errors import InputError
from gistgnn.theory.kernel import least_eigenvalue
from gistgnn.theory.lemmas import check_delta, check_gamma, check_lambda_0
from gistgnn.theory.problem import Problem


@dataclass(frozen=True)
class Bound:
    """E‖y − ŷ(t)‖² <= (1 − α)^t E‖y − ŷ(0)‖² + (error of a round) / α.

    Args:
        n: nodes.
        d: input features.
        mass: ‖Ā²‖_{1,1}.
        lambda_0: λ_min(G^∞), which contains 1/m.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, for the gradient of ½‖y − ŷ‖².
        d_1: the width.
        gamma: γ in (0, 1), free.
        printed: the error of a round as the paper has it.

    Raises:
        InputError: λ_0 is not positive, γ is not in (0, 1), or ηλ_0 / 2 is not in (0, 1).
    """

    n: int
    d: int
    mass: float
    lambda_0: float
    sub_gcns: int
    local_steps: int
    step_size: float
    d_1: int
    gamma: float = 0.5
    printed: bool = False

    def __post_init__(self) -> None:
        check_lambda_0(self.lambda_0)
        check_gamma(self.gamma)
        if not 0 < self.step_size * self.lambda_0 / 2 < 1:
            raise InputError(
                f"step_size is {self.step_size:.3g}, expected one in (0, 2 / λ_0 = {2 / self.lambda_0:.3g}), such as "
                "recommended_step gives"
            )
        if not (math.isfinite(self.round_error) and self.alpha > 0 and math.isfinite(self.neighbourhood)):
            raise InputError(
                f"the bound is beyond what a float64 holds at gamma = {self.gamma:.3g}, step_size = "
                f"{self.step_size:.3g} and d_1 = {self.d_1:.3g}: give less extreme values"
            )

    @classmethod
    def of(
        cls,
        problem: Problem,
        sub_gcns: int,
        local_steps: int,
        step_size: float,
        d_1: int,
        *,
        gamma: float = 0.5,
        printed: bool = False,
    ) -> "Bound":
        """Return the bound for a problem."""
        lambda_0 = least_eigenvalue(problem, sub_gcns)
        sizes = (problem.n, problem.d, problem.mass, lambda_0)
        return cls(*sizes, sub_gcns, local_steps, step_size, d_1, gamma, printed)

    @property
    def contraction(self) -> float:
        """γ + (1 − γ)(1 − ηλ_0/2)^ζ, the factor of a round."""
        return 1.0 - self.alpha

    @property
    def alpha(self) -> float:
        """α = (1 − γ)(1 − (1 − ηλ_0/2)^ζ), without the cancellation that small steps would cause."""
        return (1.0 - self.gamma) * -math.expm1(self.local_steps * math.log1p(-self.step_size * self.lambda_0 / 2.0))

    @property
    def round_error(self) -> float:
        """The term that every round adds (Lemma error_term_bound).

        16 η (m−1)² ζ ‖Ā²‖²_{1,1} n d / (γ λ_0 m² d_1). Printed: 64 η (m−1)² ζ ‖Ā²‖_{1,1} n d / (γ m² d_1); its proof
        has ‖Ā‖²_{1,1}, loses 1/λ_0 where it splits α^(j)_{t,k} into two factors, and the 16 is from ab <= a² + b²/4.
        """
        m = self.sub_gcns
        common = self.step_size * (m - 1) ** 2 * self.local_steps * self.n * self.d / (self.gamma * m**2 * self.d_1)
        return common * (64.0 * self.mass if self.printed else 16.0 * self.mass**2 / self.lambda_0)

    @property
    def neighbourhood(self) -> float:
        """What remains as t → ∞, the geometric sum of the rounds' errors: `round_error` / α.

        α is proportional to ηζ while ηζλ_0 is small, so that the quotient hardly depends on ζ; the theorem's O() has
        the factor ζ from α >= ηλ_0 (1 − γ) / 2, and leaves out 1 / (λ_0 (1 − γ)).
        """
        return self.round_error / self.alpha

    def at(self, t: int, initial: float) -> float:
        """Return the bound on E‖y − ŷ(t)‖².

        Args:
            t: rounds.
            initial: E‖y − ŷ(0)‖².
        """
        left = self.contraction**t
        return left * initial + self.neighbourhood * (1.0 - left)

    def width(self, rounds: int, delta: float, initial: float) -> int:
        """Return the width that the proof asks for: hypothesis (1) at t = 0, with R = λ_0 / (192 n) (printed: 96).

        (4Tηζ / δα) √(n / d_1) E‖y − ŷ(0)‖ + T B <= R. The paper checks it with B in place of T B, and then solves for
        d_1 with T B. Put right, the first term has ‖Ā‖ = 2 and the second part of B 2 · 2, for ‖Ā‖ and for the
        `deviation` that it comes from; and the first part of B, which is the root of the error that a round adds, has
        the factor of the first term, so that it falls as 1 / d_1.

        Args:
            rounds: T.
            delta: δ, the probability that it fails.
            initial: E‖y − ŷ(0)‖².

        Raises:
            InputError: δ is not in (0, 1), or too small for a float64.
        """
        check_delta(delta)
        step, m = self.step_size * self.local_steps, self.sub_gcns
        radius = self.lambda_0 / ((96.0 if self.printed else 192.0) * self.n)
        scale = (1.0 if self.printed else 2.0) * 4.0 * rounds * step / (delta * self.alpha) * math.sqrt(self.n)
        drift = (1.0 if self.printed else 4.0) * step * self.n * math.sqrt(8.0 * (m - 1) * rounds / (m * delta))
        noise = math.sqrt(self.round_error) * math.sqrt(self.d_1)
        # a / √d_1 + b / d_1 <= R; d_1 is the square of the larger root, (a + √(a² + 4bR)) / 2R
        a = scale * math.sqrt(initial) + rounds * drift + (rounds * noise if self.printed else 0.0)
        b = 0.0 if self.printed else rounds * scale * noise
        root = (a + math.sqrt(a) * math.sqrt(a + 4.0 * b * radius / a)) / (2.0 * radius)
        if not root < 1e150:
            raise InputError(f"delta is {delta:.3g}: the width is beyond what a float64 holds; give a larger one")
        return math.ceil(root**2)
