"""Section 4 and appendix C of the paper as code: the kernel, the assumptions, the identities and the bounds.

What the paper has wrong is corrected here; docs/theory-notes.md lists each correction with its derivation.
"""

from gistgnn.theory.kernel import (
    expected_gram_deviation,
    gram,
    kernel,
    least_eigenvalue,
    limit_gram,
    limit_kernel,
    output_gram,
    secant_kernel,
)
from gistgnn.theory.problem import Problem, adjacency, aggregation

__all__ = [
    "Problem",
    "adjacency",
    "aggregation",
    "expected_gram_deviation",
    "gram",
    "kernel",
    "least_eigenvalue",
    "limit_gram",
    "limit_kernel",
    "output_gram",
    "secant_kernel",
]
