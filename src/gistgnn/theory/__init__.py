"""Section 4 and appendix C of the paper as code.

docs/theory.md has the statements and our own, and docs/theory-corrections.md derives every correction to the paper.

Arguments mean the same everywhere: `problem` has Ā, X and y of n nodes; `m` or `sub_gcns` is the number of sub-GCNs,
`d_1` the width of the whole GCN, `local_steps` ζ, `step_size` η, `rounds` T and `delta` δ; `x_hat` is X̂ = ĀX, [n, d].

In the order of the appendix:

- `problem` (C.1, C.2): the graph with Ā, X and y; `example_problems`: small graphs, and parts of large ones.
- `model` (C.1): the one-hidden-layer GCN and its training by GIST.
- `assumptions` (C.2): whether the assumptions hold on a graph; `argument_checks`: whether numbers are in range.
- `gram` and `kernel` (C.4): H and K, and the GIST kernel G = ĀHĀ.
- `local_lemmas` (C.4), `round_lemmas` (C.5): the lemmas about local training and about merging.
- `bounds` (C.3, C.5): the theorem's bound, as printed and corrected; and ours, which is proved, given a measured ρ.

Ours: `a_priori` (a width that guarantees ρ), `leading_order` (a heuristic for the error that GIST adds),
`prediction` (what `gistgnn theory check` prints) and `measure_training` (what training does).
"""

from gistgnn.theory.a_priori import GuaranteedWidth
from gistgnn.theory.assumptions import Check, check
from gistgnn.theory.bounds import Bound, ProvedBound
from gistgnn.theory.example_problems import complete, karate, load_problem, ring
from gistgnn.theory.kernel import least_eigenvalue, limit_kernel
from gistgnn.theory.leading_order import LeadingOrder, predicted_error
from gistgnn.theory.local_lemmas import recommended_step
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
