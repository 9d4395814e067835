"""Section 4 and appendix C of the paper as code: the kernel, the assumptions, the identities and the bounds.

What the paper has wrong is corrected here; docs/theory-notes.md lists each correction with its derivation.
"""

from gistgnn.theory.assumptions import Check, check, degree_balance, sharpest_angle
from gistgnn.theory.identities import decomposed_error, disagreement, expected_deviation, total_deviation
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
from gistgnn.theory.model import (
    OneHiddenGCN,
    Trace,
    gcn,
    global_output,
    global_weights,
    make_gist,
    train,
    train_round,
)
from gistgnn.theory.problem import Problem, adjacency, aggregation

__all__ = [
    "Check",
    "OneHiddenGCN",
    "Problem",
    "Trace",
    "adjacency",
    "aggregation",
    "check",
    "decomposed_error",
    "degree_balance",
    "disagreement",
    "expected_deviation",
    "expected_gram_deviation",
    "gcn",
    "global_output",
    "global_weights",
    "gram",
    "kernel",
    "least_eigenvalue",
    "limit_gram",
    "limit_kernel",
    "make_gist",
    "output_gram",
    "secant_kernel",
    "sharpest_angle",
    "total_deviation",
    "train",
    "train_round",
]
