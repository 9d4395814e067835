"""Section 4 and appendix C of the paper as code; docs/theory.md has the statements and a table of where each is.

Arguments mean the same everywhere: `problem` has Ā, X and y of n nodes; `m` or `sub_gcns` is the number of sub-GCNs,
`d_1` the width of the whole GCN, `local_steps` ζ, `step_size` η, `rounds` T and `delta` δ; `x_hat` is X̂ = ĀX, [n, d].
"""

from gistgnn.theory.a_priori import GuaranteedWidth
from gistgnn.theory.assumptions import Check, check
from gistgnn.theory.bounds import Bound, ProvedBound
from gistgnn.theory.example_problems import complete, karate, load_problem, ring
from gistgnn.theory.kernel import least_eigenvalue, limit_kernel
from gistgnn.theory.leading_order import LeadingOrder, predicted_error
from gistgnn.theory.lemmas import recommended_step
from gistgnn.theory.model import OneHiddenGCN, make_gist, train, train_round
from gistgnn.theory.prediction import Prediction
from gistgnn.theory.problem import Problem

__all__ = [
    "Bound",
    "Check",
    "GuaranteedWidth",
    "LeadingOrder",
    "OneHiddenGCN",
    "Prediction",
    "Problem",
    "ProvedBound",
    "check",
    "complete",
    "karate",
    "least_eigenvalue",
    "limit_kernel",
    "load_problem",
    "make_gist",
    "predicted_error",
    "recommended_step",
    "ring",
    "train",
    "train_round",
]
