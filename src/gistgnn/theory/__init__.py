"""Section 4 and appendix C of the paper as code.

docs/paper/theory.md has the statements, and where each is.

Arguments mean the same everywhere: `problem` has Ā, X and y of n nodes; `m` or `sub_gcns` is the
number of sub-GCNs, `d_1` the width of the whole GCN, `local_steps` ζ, `step_size` η, `rounds` T and
`delta` δ; `numbers` are d_1, m, ζ and η together; `x_hat` is X̂ = ĀX, [n, d].
"""

from gistgnn.theory.assumptions import (
    Check,
    check,
    complete,
    in_basis_of_rows,
    is_built_in,
    karate,
    load_problem,
    ring,
)
from gistgnn.theory.bounds import Bound, ProvedBound, limit_error_term
from gistgnn.theory.model import (
    OneHiddenGCN,
    exponent,
    global_weights,
    make_gist,
    mean_of_second_half,
    measure_added_error,
    measure_contraction,
    measure_convergence,
    measure_kernel_distance,
    measure_remaining_error,
    train,
    train_round,
)
from gistgnn.theory.prediction import (
    LeadingOrder,
    check_prediction,
    limit_error,
    predict,
    predicted_error,
    rounds_to,
)
from gistgnn.theory.problem import (
    Hyperparameters,
    Problem,
    expected_initial_error,
    least_eigenvalue,
    limit_kernel,
    recommended_step,
)

__all__ = [
    "Bound",
    "Check",
    "Hyperparameters",
    "LeadingOrder",
    "OneHiddenGCN",
    "Problem",
    "ProvedBound",
    "check",
    "check_prediction",
    "complete",
    "expected_initial_error",
    "exponent",
    "global_weights",
    "in_basis_of_rows",
    "is_built_in",
    "karate",
    "least_eigenvalue",
    "limit_error",
    "limit_error_term",
    "limit_kernel",
    "load_problem",
    "make_gist",
    "mean_of_second_half",
    "measure_added_error",
    "measure_contraction",
    "measure_convergence",
    "measure_kernel_distance",
    "measure_remaining_error",
    "predict",
    "predicted_error",
    "recommended_step",
    "ring",
    "rounds_to",
    "train",
    "train_round",
]
