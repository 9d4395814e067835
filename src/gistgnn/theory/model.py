"""The one-hidden-layer GCN of the analysis, trained by GIST with gradient descent (appendix C.1, eq. GIST_procedure).

Blocks, Θ and rounds are those of `GIST`. The paper's masks may leave a sub-GCN without a neuron; `Partition` draws
again where one does. That has probability below m (1 − 1/m)^d_1, and E[ŷ^(j)(t, 0)] = ŷ(t) holds all the same, by
symmetry.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.gist import GIST
from gistgnn.theory.problem import Problem, aggregation


class OneHiddenGCN(nn.Module):
    """ŷ = (1/√d_1) Ā σ(ĀXΘ) a, with Θ [d, width] trained and a [width] of fixed signs, in float64.

    The factor stays that of d_1 when the module is a sub-GCN's and narrower, as in the paper.

    Args:
        d: input features.
        width: neurons of this module.
        d_1: neurons of the whole GCN.
    """

    theta: nn.Parameter
    a: Tensor

    def __init__(self, d: int, width: int, d_1: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(d, width, dtype=torch.float64))
        self.register_buffer("a", torch.empty(width, dtype=torch.float64).uniform_(-1.0, 1.0).sign())
        self.scale = d_1**-0.5

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ŷ, [n, 1].

        Args:
            x: [n, d] float64.
            edge_index: [2, E], every edge in both directions.
        """
        a_bar = aggregation(edge_index, x.shape[0])
        return self.outputs(a_bar, a_bar @ x)[:, None]

    def outputs(self, a_bar: Tensor, x_hat: Tensor) -> Tensor:
        """Return ŷ, [n], from Ā [n, n] and X̂ [n, d]."""
        return self.scale * a_bar @ ((x_hat @ self.theta).relu() @ self.a)


def gcn(d: int, d_1: int) -> Callable[[Sequence[int]], OneHiddenGCN]:
    """Return `build(widths)` of the GCN that is d_1 wide over d input features, and of its sub-GCNs."""
    return lambda widths: OneHiddenGCN(d, widths[0], d_1)


def make_gist(problem: Problem, d_1: int, sub_gcns: int, seed: int = 0) -> GIST:
    """Return GIST as the theory has it: this GCN, and categorical masks.

    Raises:
        InputError: m < 1, or too few neurons for m.
    """
    return GIST(gcn(problem.d, d_1), (d_1,), sub_gcns, partition="categorical", seed=seed)


def global_weights(gist: GIST) -> Tensor:
    """Return Θ_t, [d, d_1]."""
    return _one_hidden(gist.model()).theta.detach()


def global_output(gist: GIST, problem: Problem) -> Tensor:
    """Return ŷ(t) = (1 / (m √d_1)) Ā σ(X̂Θ_t) a, [n] (appendix C.5); the sub-GCNs' outputs have no 1/m."""
    with torch.no_grad():
        return _one_hidden(gist.model()).outputs(problem.a_bar, problem.x_hat) / gist.sub_gcns


@dataclass(frozen=True, eq=False)
class Trace:
    """What one round of GIST did.

    Attributes:
        before: ŷ(t), [n].
        outputs: ŷ^(j)(t, k), [m, ζ + 1, n].
        after: ŷ(t + 1), [n].
        weights: for each sub-GCN j and k = 0 ... ζ its neurons' weights [d, d^(j)]; empty unless they were asked for.
    """

    before: Tensor
    outputs: Tensor
    after: Tensor
    weights: list[list[Tensor]]

    def local_errors(self, y: Tensor) -> Tensor:
        """Return ‖y − ŷ^(j)(t, k)‖², [m, ζ + 1]."""
        return (self.outputs - y).square().sum(dim=-1)


def train_round(
    gist: GIST, problem: Problem, local_steps: int, step_size: float, *, keep_weights: bool = False
) -> Trace:
    """Train one round: subGCNs, ζ steps of gradient descent on each, subAgg.

    The loss is ½‖y − ŷ^(j)‖². The paper has no ½, but its gradient is that of this loss; that of its own loss is twice
    as long, which would double η everywhere.

    Args:
        gist: of a `OneHiddenGCN` (see `make_gist`).
        problem: X, Ā and y.
        local_steps: ζ.
        step_size: η.
        keep_weights: keep every Θ^(j)_{t,k}.

    Raises:
        InputError: ζ < 1, or η is not positive.
        DivergedError: the weights became infinite.
    """
    return _round(gist, problem, local_steps, step_size, keep_weights, global_output(gist, problem))


def train(gist: GIST, problem: Problem, rounds: int, local_steps: int, step_size: float) -> Tensor:
    """Train T rounds, and return ‖y − ŷ(t)‖² for t = 0 ... T, [T + 1]; see `train_round`."""
    outputs = [global_output(gist, problem)]
    for _ in range(rounds):
        outputs.append(_round(gist, problem, local_steps, step_size, False, outputs[-1]).after)
    return (torch.stack(outputs) - problem.y).square().sum(dim=1)


def sample_next_errors(gist: GIST, problem: Problem, local_steps: int, step_size: float, draws: int) -> Tensor:
    """Return ‖y − ŷ(t + 1)‖² for several masks M_t, [draws]; their mean estimates E_{M_t}, and Θ_t stays as it is.

    Every draw takes the masks of a round of its own, and `gist` stands at a later one afterwards.

    Args:
        gist: of a `OneHiddenGCN`.
        problem: X, Ā and y.
        local_steps: ζ.
        step_size: η.
        draws: how many masks.

    Raises:
        InputError: draws < 1.
    """
    if draws < 1:
        raise InputError(f"draws is {draws}, expected at least 1")
    errors = []
    for _ in range(draws):
        subs = [_one_hidden(sub) for sub in gist.begin_round()]  # which is left without `aggregate`
        ends = [_descend(sub, problem, local_steps, step_size, False)[0][-1] for sub in subs]
        errors.append((problem.y - torch.stack(ends).mean(dim=0)).square().sum())
    return torch.stack(errors)


def _round(gist: GIST, problem: Problem, local_steps: int, step_size: float, keep: bool, before: Tensor) -> Trace:
    if local_steps < 1:
        raise InputError(f"local_steps is {local_steps}, expected at least 1")
    if not step_size > 0:
        raise InputError(f"step_size is {step_size}, expected a positive number, such as recommended_step gives")
    round_ = gist.begin_round()
    outputs, weights = [], []
    for sub in round_:
        path, kept = _descend(_one_hidden(sub), problem, local_steps, step_size, keep)
        outputs.append(path)
        weights.append(kept)
    round_.aggregate()
    return Trace(before, torch.stack(outputs), global_output(gist, problem), weights)


def _descend(
    sub: OneHiddenGCN, problem: Problem, steps: int, step_size: float, keep: bool
) -> tuple[Tensor, list[Tensor]]:
    """Take ζ steps; return the outputs [ζ + 1, n] and the weights at each, if they are to be kept."""
    outputs: list[Tensor] = []
    kept: list[Tensor] = []
    for k in range(steps + 1):
        output = sub.outputs(problem.a_bar, problem.x_hat)
        outputs.append(output.detach())
        if keep:
            kept.append(sub.theta.detach().clone())
        if k < steps:
            (gradient,) = torch.autograd.grad(0.5 * (problem.y - output).square().sum(), sub.theta)
            with torch.no_grad():
                sub.theta.sub_(gradient, alpha=step_size)
    return torch.stack(outputs), kept


def _one_hidden(module: nn.Module) -> OneHiddenGCN:
    if not isinstance(module, OneHiddenGCN):
        raise InputError(f"the model is a {type(module).__name__}, expected the analysis's OneHiddenGCN: use make_gist")
    return module
