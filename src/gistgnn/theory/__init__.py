"""Section 4 and appendix C of the paper as code: the kernel, the assumptions, the identities and the bounds.

What the paper has wrong is corrected here; docs/theory.md lists each correction with its derivation.
"""

from gistgnn.theory.assumptions import Check, check, degree_balance, sharpest_angle
from gistgnn.theory.bound import Bound
from gistgnn.theory.identities import decomposed_error, disagreement, expected_deviation, total_deviation
from gistgnn.theory.instances import complete, is_small, karate, load_problem, nearest, ring, scale
from gistgnn.theory.kernel import (
    expected_gram_deviation,
    gram,
    greatest_eigenvalue,
    kernel,
    least_eigenvalue,
    limit_kernel,
    secant_kernel,
)
from gistgnn.theory.lazy import LazyBound, deviation_of, kernel_drift
from gistgnn.theory.lemmas import (
    deviation,
    expected_initial_error,
    initial_error,
    kernel_width,
    limit_error,
    local_factor,
    movement,
    proof_step,
    radius,
    recommended_step,
)
from gistgnn.theory.limit import limit_gram, output_gram
from gistgnn.theory.measure import (
    Contraction,
    Convergence,
    Disagreement,
    added_error,
    contract,
    converge,
    disagreement_in_the_limit,
    fitted,
    kernel_distance,
    remaining_error,
    slope,
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
from gistgnn.theory.prediction import Prediction, rounds_to
from gistgnn.theory.problem import Problem, adjacency, aggregation
from gistgnn.theory.stationary import Stationary, predicted_error, stationary_error

__all__ = [
    "Bound",
    "Check",
    "Contraction",
    "Convergence",
    "Disagreement",
    "LazyBound",
    "OneHiddenGCN",
    "Prediction",
    "Problem",
    "Stationary",
    "Trace",
    "added_error",
    "adjacency",
    "aggregation",
    "check",
    "complete",
    "contract",
    "converge",
    "decomposed_error",
    "degree_balance",
    "deviation",
    "deviation_of",
    "disagreement",
    "disagreement_in_the_limit",
    "expected_deviation",
    "expected_gram_deviation",
    "expected_initial_error",
    "fitted",
    "gcn",
    "global_output",
    "global_weights",
    "gram",
    "greatest_eigenvalue",
    "initial_error",
    "is_small",
    "karate",
    "kernel",
    "kernel_distance",
    "kernel_drift",
    "kernel_width",
    "least_eigenvalue",
    "limit_error",
    "limit_gram",
    "limit_kernel",
    "load_problem",
    "local_factor",
    "make_gist",
    "movement",
    "nearest",
    "output_gram",
    "predicted_error",
    "proof_step",
    "radius",
    "recommended_step",
    "remaining_error",
    "ring",
    "rounds_to",
    "sample_next_errors",
    "scale",
    "secant_kernel",
    "sharpest_angle",
    "slope",
    "stationary_error",
    "total_deviation",
    "train",
    "train_round",
]
