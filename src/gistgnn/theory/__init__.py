"""Section 4 and appendix C of the paper as code: the kernel, the assumptions, the identities and the bounds.

What the paper has wrong is corrected here; docs/theory-notes.md lists each correction with its derivation.
"""

from gistgnn.theory.assumptions import Check, check, degree_balance, sharpest_angle
from gistgnn.theory.bound import Bound
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
from gistgnn.theory.lazy import LazyBound, deviation_of, kernel_drift
from gistgnn.theory.lemmas import (
    deviation,
    expected_initial_error,
    initial_error,
    kernel_width,
    local_factor,
    movement,
    proof_step,
    radius,
    recommended_step,
)
from gistgnn.theory.model import (
    OneHiddenGCN,
    Trace,
    gcn,
    global_output,
    global_weights,
    make_gist,
    sample_next_errors,
    train,
    train_round,
)
from gistgnn.theory.problem import Problem, adjacency, aggregation

__all__ = [
    "Bound",
    "Check",
    "LazyBound",
    "OneHiddenGCN",
    "Problem",
    "Trace",
    "adjacency",
    "aggregation",
    "check",
    "decomposed_error",
    "degree_balance",
    "deviation",
    "deviation_of",
    "disagreement",
    "expected_deviation",
    "expected_gram_deviation",
    "expected_initial_error",
    "gcn",
    "global_output",
    "global_weights",
    "gram",
    "initial_error",
    "kernel",
    "kernel_drift",
    "kernel_width",
    "least_eigenvalue",
    "limit_gram",
    "limit_kernel",
    "local_factor",
    "make_gist",
    "movement",
    "output_gram",
    "proof_step",
    "radius",
    "recommended_step",
    "sample_next_errors",
    "secant_kernel",
    "sharpest_angle",
    "total_deviation",
    "train",
    "train_round",
]
