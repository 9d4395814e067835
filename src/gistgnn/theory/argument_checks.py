"""Checks of the numbers that a caller passes to the theory, and the search for a width."""

from collections.abc import Callable

from gistgnn import InputError
from gistgnn.theory.kernel import greatest_eigenvalue
from gistgnn.theory.problem import Problem

LARGEST = 10**12  # of m, ζ, T and d_1
_FURTHEST = 2**120  # a width beyond this is not looked for


def check_lambda_0(lambda_0: float) -> float:
    """Return λ_0, or raise InputError if it is not positive."""
    if not lambda_0 > 0:
        raise InputError(f"λ_0 is {lambda_0:.3g}, expected a positive number: `check` shows which assumption fails")
    return lambda_0


def check_stable(problem: Problem, m: int, step_size: float) -> float:
    """Return η, or raise InputError if gradient descent diverges with it even at infinite width."""
    stable = 2.0 / greatest_eigenvalue(problem, m)
    if not 0 < step_size < stable:
        expected = f"expected one above 0 and below 2 / λ_max(G^∞) = {stable:.3g}"
        raise InputError(f"step_size is {step_size:.3g}, {expected}, where training begins to diverge at any width")
    return step_size


def check_fraction(name: str, value: float) -> None:
    """Raise InputError if γ or δ is not between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} is {value}, expected a number between 0 and 1")


def check_sizes(**sizes: int) -> None:
    """Raise InputError if m, ζ or T is out of range."""
    for name, value in sizes.items():
        if not 1 <= value <= LARGEST:
            raise InputError(f"{name} is {value}, expected an integer from 1 to {LARGEST}")


def least_width(enough: Callable[[int], bool]) -> int:
    """Return the least width that is enough, by bisection; raise InputError if it is beyond 2^120."""
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > _FURTHEST:
            raise InputError(f"no width below {_FURTHEST:.0e} is enough: give fewer rounds or a larger λ_0")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
