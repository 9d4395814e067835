"""The one-hidden-layer GCN of the analysis, trained by GIST with gradient descent (appendix C.1, eq. GIST_procedure).

Blocks, Θ and rounds are those of `GIST`. The paper's masks may leave a sub-GCN without a neuron, with probability below
m (1 − 1/m)^d_1; GIST then draws again.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gistgnn import GIST, InputError
from gistgnn.theory.problem import Problem, aggregation


class OneHiddenGCN(nn.Module):
    """ŷ = (1/√d_1) Ā σ(ĀXΘ) a, with Θ [d, width] trained and a [width] of fixed signs, in float64.

    A sub-GCN has a smaller width, but keeps the factor 1/√d_1 of the whole GCN.
    """

    theta: nn.Parameter
    a: Tensor

    def __init__(self, d: int, width: int, d_1: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(d, width, dtype=torch.float64))
        self.register_buffer("a", torch.empty(width, dtype=torch.float64).uniform_(-1.0, 1.0).sign())
        self.scale = d_1**-0.5

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ŷ, [n, 1], from X [n, d] float64 and the edges [2, E], each in both directions."""
        a_bar = aggregation(edge_index, x.shape[0])
        return self.outputs(a_bar, a_bar @ x)[:, None]

    def outputs(self, a_bar: Tensor, x_hat: Tensor) -> Tensor:
        """Return ŷ, [n], from Ā [n, n] and X̂ [n, d]."""
        return self.scale * a_bar @ ((x_hat @ self.theta).relu() @ self.a)


def make_gist(problem: Problem, d_1: int, sub_gcns: int, seed: int = 0) -> GIST:
    """Return `GIST` as the theory has it: a `OneHiddenGCN` with categorical masks.

    Raises:
        InputError: m < 1, or there are too few neurons for m.
    """
    d = problem.d
    return GIST(lambda widths: OneHiddenGCN(d, widths[0], d_1), (d_1,), sub_gcns, partition="categorical", seed=seed)


def start_without_error(problem: Problem, d_1: int, sub_gcns: int, seed: int) -> tuple[GIST, Problem]:
    """Return GIST, and the problem with y = ŷ(0), so that the error is zero at the start."""
    gist = make_gist(problem, d_1, sub_gcns, seed)
    return gist, replace(problem, y=global_output(gist, problem))


def global_weights(gist: GIST) -> Tensor:
    """Return Θ_t, [d, d_1]."""
    return _one_hidden(gist.model()).theta.detach()


def global_output(gist: GIST, problem: Problem) -> Tensor:
    """Return ŷ(t) = (1 / (m √d_1)) Ā σ(X̂Θ_t) a, [n] (appendix C.5); the outputs of the sub-GCNs have no 1/m."""
    with torch.no_grad():
        return _one_hidden(gist.model()).outputs(problem.a_bar, problem.x_hat) / gist.sub_gcns


@dataclass(frozen=True, eq=False)
class Trace:
    """A record of one round of GIST."""

    before: Tensor  # ŷ(t), [n]
    outputs: Tensor  # ŷ^(j)(t, k), [m, ζ + 1, n]
    after: Tensor  # ŷ(t + 1), [n]
    weights: list[list[Tensor]]  # Θ^(j)_{t,k} [d, d^(j)] of each sub-GCN j at k = 0 ... ζ

    def local_errors(self, y: Tensor) -> Tensor:
        """Return ‖y − ŷ^(j)(t, k)‖², [m, ζ + 1]."""
        return (self.outputs - y).square().sum(dim=-1)

    def deviation(self) -> float:
        """Return V_t, the root mean square of ‖ŷ(t) − ŷ^(j)(t, 0)‖ over the sub-GCNs (see `bounds`)."""
        return float((self.outputs[:, 0] - self.before).square().sum(dim=1).mean().sqrt())


def train_round(gist: GIST, problem: Problem, local_steps: int, step_size: float) -> Trace:
    """Train one round: subGCNs, ζ steps of gradient descent on each sub-GCN, subAgg (eq. GIST_procedure).

    The loss is ½‖y − ŷ^(j)‖². The paper has no ½, but writes the gradient of this loss. `gist` comes from `make_gist`.

    Raises:
        InputError: ζ < 1, or η is not positive.
        DivergedError: the weights became infinite.
    """
    if local_steps < 1:
        raise InputError(f"local_steps is {local_steps}, expected at least 1")
    if not step_size > 0:
        raise InputError(f"step_size is {step_size}, expected a positive number, such as recommended_step returns")
    before, round_ = global_output(gist, problem), gist.begin_round()
    paths = [_descend(_one_hidden(sub), problem, local_steps, step_size) for sub in round_]
    round_.aggregate()
    outputs = torch.stack([output for output, _ in paths])
    return Trace(before, outputs, global_output(gist, problem), [weights for _, weights in paths])


def train(gist: GIST, problem: Problem, rounds: int, local_steps: int, step_size: float) -> Tensor:
    """Train what `make_gist` returned for T rounds, and return ‖y − ŷ(t)‖² for t = 0 ... T, [T + 1]."""
    outputs = [global_output(gist, problem)]
    outputs += [train_round(gist, problem, local_steps, step_size).after for _ in range(rounds)]
    return (torch.stack(outputs) - problem.y).square().sum(dim=1)


def sample_next_errors(gist: GIST, problem: Problem, local_steps: int, step_size: float, draws: int) -> Tensor:
    """Return ‖y − ŷ(t + 1)‖² for several masks M_t, [draws]; the mean estimates E_{M_t}. Θ_t does not change.

    Every draw uses the masks of another round, so `gist` stands at a later round afterwards.
    """
    errors = []
    for _ in range(draws):
        subs = gist.begin_round()  # never aggregated, so Θ_t stays
        ends = [_descend(_one_hidden(sub), problem, local_steps, step_size)[0][-1] for sub in subs]
        errors.append((problem.y - torch.stack(ends).mean(dim=0)).square().sum())
    return torch.stack(errors)


def _descend(sub: OneHiddenGCN, problem: Problem, steps: int, step_size: float) -> tuple[Tensor, list[Tensor]]:
    """Take ζ steps of gradient descent; return the outputs [ζ + 1, n] and the weights of each step."""
    outputs, weights = [], []
    for k in range(steps + 1):
        output = sub.outputs(problem.a_bar, problem.x_hat)
        outputs.append(output.detach())
        weights.append(sub.theta.detach().clone())
        if k < steps:
            (gradient,) = torch.autograd.grad(0.5 * (problem.y - output).square().sum(), sub.theta)
            with torch.no_grad():
                sub.theta.sub_(gradient, alpha=step_size)
    return torch.stack(outputs), weights


def _one_hidden(module: nn.Module) -> OneHiddenGCN:
    if not isinstance(module, OneHiddenGCN):
        raise InputError(f"the model is a {type(module).__name__}, expected a OneHiddenGCN: use make_gist")
    return module
