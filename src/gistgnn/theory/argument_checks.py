"""Checks of the numbers that a caller passes to the theory, and the search for a width."""

import math
from collections.abc import Callable

from gistgnn.errors import InputError
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


def check_fraction(name: str, value: float) -> float:
    """Return γ or δ, or raise InputError if it is not between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} is {value}, expected a number between 0 and 1")
    return value


def check_sizes(**sizes: int) -> None:
    """Raise InputError if m, ζ or T is out of range."""
    for name, value in sizes.items():
        if not 1 <= value <= LARGEST:
            raise InputError(f"{name} is {value}, expected an integer from 1 to {LARGEST}")


def check_settings(
    sub_gcns: int, local_steps: int, width: int, step_size: float | None, gamma: float, rounds: int, delta: float
) -> None:
    """Raise InputError if a number is out of range for every graph."""
    check_sizes(sub_gcns=sub_gcns, local_steps=local_steps, rounds=rounds)
    if not sub_gcns <= width <= LARGEST:
        raise InputError(f"width is {width}, expected m = {sub_gcns} or more, a neuron for every sub-GCN, to {LARGEST}")
    if step_size is not None and not 0 < step_size < math.inf:
        raise InputError(f"step_size is {step_size:g}, expected a number above 0")
    check_fraction("gamma", gamma)
    check_fraction("delta", delta)


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
