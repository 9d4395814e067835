"""The regression problem of the analysis: Gram matrices and kernels (appendix C.1, C.2, C.4).

The paper writes H^∞ with 1/(d_1 m). 1/m is right: H(t, t', k) has 1/d_1 before a sum of d_1 terms,
and each term counts with probability 1/m.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gistgnn import InputError
from gistgnn.graphs import Graph

MOST_NODES = 5000  # the analysis needs the eigenvalues of dense n x n matrices
LARGEST = 10**12  # of m, ζ and d_1
# Where 1 − |cos| of two rows is smaller, the cosine has lost too many digits of their angle.
_NEARLY_PARALLEL = 1e-4
_NUMBERS_AT_ONCE = 2**24  # the most numbers of X̂ that are subtracted at a time


def adjacency(edge_index: Tensor, nodes: int) -> Tensor:
    """Return A, [n, n] float64 of 0 and 1, from edges [2, E].

    An edge that is listed twice counts once.
    """
    A = torch.zeros(nodes, nodes, dtype=torch.float64, device=edge_index.device)
    A[edge_index[1], edge_index[0]] = 1.0
    return A


def aggregation(edge_index: Tensor, nodes: int) -> Tensor:
    """Return Ā = I + D^-1/2 A D^-1/2, [n, n] float64 (eq. Aggregation Matrix).

    The edges are [2, E], in both directions.
    """
    # D^-1/2 is the pseudo-inverse: an isolated node has D_ii = 0 and keeps its own features.
    A = adjacency(edge_index, nodes)
    degrees = A.sum(dim=1)
    scale = torch.where(degrees > 0, degrees.clamp(min=1.0).rsqrt(), 0.0)
    return torch.eye(nodes, dtype=torch.float64, device=A.device) + scale[:, None] * A * scale


@dataclass(frozen=True, eq=False)
class Problem:
    """Scalar regression on the n nodes of an undirected graph."""

    x: Tensor  # X, [n, d] float64
    edge_index: Tensor  # [2, E] int64, every edge in both directions
    y: Tensor  # the targets, [n] float64

    def __post_init__(self) -> None:
        for name, tensor, shape in (("x", self.x, "[n, d]"), ("y", self.y, "[n]")):
            if (
                tensor.ndim != shape.count(",") + 1
                or tensor.dtype != torch.float64
                or not tensor.numel()
            ):
                raise InputError(
                    f"{name} is {list(tensor.shape)} {tensor.dtype}, expected {shape} float64"
                )
        if len(self.y) != self.n:
            raise InputError(
                f"y is {list(self.y.shape)}, expected [{self.n}], one number for each node"
            )
        A = adjacency(self.edge_index, self.n)
        # Otherwise Ā would not be symmetric, and nothing in the analysis would hold.
        if not torch.equal(A, A.T):
            target, source = (A > A.T).nonzero()[0].tolist()
            advice = "expected an undirected graph: add the other direction of every edge"
            raise InputError(f"the edge {source} -> {target} has no edge back, {advice}")

    @classmethod
    def from_graph(cls, graph: Graph, y: Tensor | None = None) -> "Problem":
        """Take the features, the edges and y [n] of an undirected graph with few nodes.

        `y` defaults to the classes.
        """
        n = graph.num_nodes
        if n > MOST_NODES:
            most = f"expected at most {MOST_NODES:,}, whose matrices are dense"
            raise InputError(f"the graph has {n:,} nodes, {most}: take a part of it (--nodes)")
        if y is None:
            if graph.multi_label or graph.num_classes < 2 or bool((graph.y < 0).any()):
                raise InputError(
                    "the labels are not one of several classes for every node: give y, [n] numbers"
                )
            y = 2.0 * graph.y.double() / (graph.num_classes - 1) - 1.0
        return cls(graph.x.to_dense().double().cpu(), graph.edge_index.cpu(), y.double().cpu())

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.x.shape[0]

    @property
    def d(self) -> int:
        """The number of input features. Θ is d x d_1; the paper writes n x d_1."""
        return self.x.shape[1]

    @cached_property
    def degrees(self) -> Tensor:
        """D_ii, [n]."""
        return adjacency(self.edge_index, self.n).sum(dim=1)

    @cached_property
    def a_bar(self) -> Tensor:
        """Ā, [n, n]."""
        return aggregation(self.edge_index, self.n)

    @cached_property
    def x_hat(self) -> Tensor:
        """X̂ = ĀX, [n, d]."""
        return self.a_bar @ self.x

    @cached_property
    def spectrum(self) -> Tensor:
        """The eigenvalues of G^∞ for m = 1, ascending, [n]; for m sub-GCNs, divide them by m."""
        return torch.linalg.eigvalsh(self.a_bar @ limit_gram(self.x_hat, 1) @ self.a_bar)

    @cached_property
    def mass(self) -> float:
        """‖Ā²‖_{1,1}, the sum of the entries of Ā².

        It is at most 4n, and 4n where all degrees are equal.
        """
        return float((self.a_bar @ self.a_bar).sum())


@dataclass(frozen=True)
class Hyperparameters:
    """How GIST trains a problem.

    Attributes:
        d_1: the width of the whole GCN.
        sub_gcns: m, how many sub-GCNs the width is split into.
        local_steps: ζ, the steps of gradient descent in a round.
        step_size: η, of each of them.
    """

    d_1: int
    sub_gcns: int
    local_steps: int
    step_size: float


def angles(x_hat: Tensor) -> Tensor:
    """Return ∠(x̂_i, x̂_j), [n, n]; a row of zeros has the angle π/2 to all other rows."""
    norms = x_hat.norm(dim=1).clamp(min=torch.finfo(x_hat.dtype).tiny)
    units = x_hat / norms[:, None]
    cosine = (units @ units.T).clamp(-1.0, 1.0)
    phi = cosine.arccos()
    rows, columns = (1.0 - cosine.abs() < _NEARLY_PARALLEL).nonzero().T
    size = max(1, _NUMBERS_AT_ONCE // max(1, x_hat.shape[1]))
    for i, j in zip(rows.split(size), columns.split(size), strict=True):
        chord = (units[i] - units[j]).norm(dim=1)
        opposite = (units[i] + units[j]).norm(dim=1)
        phi[i, j] = 2.0 * torch.atan2(chord, opposite)
    return phi


def limit_gram(x_hat: Tensor, m: int) -> Tensor:
    """Return H^∞_ij = <x̂_i, x̂_j> (π − ∠(x̂_i, x̂_j)) / (2π m), [n, n] (appendix C.4)."""
    # The fraction is P(<x̂_i, θ> >= 0, <x̂_j, θ> >= 0) / m for θ ~ N(0, I), which the paper leaves
    # as an expectation.
    return x_hat @ x_hat.T * (math.pi - angles(x_hat)) / (2.0 * math.pi * m)


def gram(x_hat: Tensor, theta: Tensor, d_1: int) -> Tensor:
    """Return the Gram matrix H(t, t', k), [n, n] (appendix C.4).

    H_ij = <x̂_i, x̂_j> (1/d_1) Σ_r I{<x̂_i, θ_r> >= 0, <x̂_j, θ_r> >= 0}.
    """
    # `theta` [d, d^(j)] has the weights of the neurons r that the mask M^(j)_t leaves active.
    active = (x_hat @ theta >= 0).to(x_hat.dtype)
    return x_hat @ x_hat.T * (active @ active.T) / d_1


def output_gram(x_hat: Tensor) -> Tensor:
    """Return K_ij = E[σ(<x̂_i, θ>) σ(<x̂_j, θ>)] for θ ~ N(0, I), [n, n].

    These are the second moments of a hidden neuron.
    """
    # ‖x̂_i‖ ‖x̂_j‖ (sin φ + (π − φ) cos φ) / 2π with φ = ∠(x̂_i, x̂_j), the arc-cosine kernel of
    # degree one
    phi = angles(x_hat)
    norms = x_hat.norm(dim=1)
    return norms[:, None] * norms * (phi.sin() + (math.pi - phi) * phi.cos()) / (2.0 * math.pi)


def limit_kernel(problem: Problem, m: int) -> Tensor:
    """Return G^∞ = Ā H^∞ Ā, [n, n] (section 4)."""
    return problem.a_bar @ limit_gram(problem.x_hat, m) @ problem.a_bar


def least_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_0 = λ_min(G^∞), proportional to 1/m.

    It is 0 if it is below n ε λ_max(G^∞), the rounding error of float64.
    """
    # λ_0 >= λ_min(H^∞) λ_min(Ā)². The paper has λ_min(Ā) without the square, which is wrong
    # (docs/paper/theory.md).
    least = float(problem.spectrum[0])
    greatest = float(problem.spectrum[-1])
    return least / m if least > problem.n * torch.finfo(torch.float64).eps * greatest else 0.0


def greatest_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_max(G^∞), proportional to 1/m."""
    return float(problem.spectrum[-1]) / m


def recommended_step(problem: Problem, m: int) -> float:
    """Return η = 1 / (λ_max(G^∞) + λ_0 / 2), at least 10^5 times `proof_step`."""
    # While all kernels of a sub-GCN are within λ_0 / 2 of G^∞, a step contracts y − ŷ^(j) by 1 −
    # ηλ_0 / 2.
    return 1.0 / (greatest_eigenvalue(problem, m) + least_eigenvalue(problem, m) / 2.0)


def kernel(problem: Problem, theta: Tensor, d_1: int) -> Tensor:
    """Return G^(j)(t, t', k) = Ā H(t, t', k) Ā, [n, n].

    `theta` are the weights [d, d^(j)] of the active neurons.
    """
    return problem.a_bar @ gram(problem.x_hat, theta, d_1) @ problem.a_bar


def secant_kernel(problem: Problem, before: Tensor, after: Tensor, d_1: int) -> Tensor:
    """Return the kernel Ĝ of a step of gradient descent, [n, n].

    Exactly, ŷ(k+1) − ŷ(k) = η Ĝ (y − ŷ(k)).
    """
    # Ĥ_ij = <x̂_i, x̂_j> (1/d_1) Σ_r s_ri I{<x̂_j, θ_r> >= 0}, where s_ri in [0, 1] is the slope of
    # σ between <x̂_i, θ_r> before and after: the active neurons' weights at steps k and k + 1, [d,
    # d^(j)]. Ĝ is not symmetric.
    z = problem.x_hat @ before
    w = problem.x_hat @ after
    active = (z >= 0).to(z.dtype)
    slope = torch.where(w == z, active, (w.relu() - z.relu()) / torch.where(w == z, 1.0, w - z))
    H = problem.x_hat @ problem.x_hat.T * (slope @ active.T) / d_1
    return problem.a_bar @ H @ problem.a_bar


def output_covariance(problem: Problem) -> Tensor:
    """Return S = ĀKĀ, [n, n].

    ŷ(0) has covariance S/m², and in the limit d_1 → ∞ ŷ^(j)(0, 0) has S/m.
    """
    return problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar


def expected_initial_error(problem: Problem, m: int) -> float:
    """Return E‖y − ŷ(0)‖² = ‖y‖² + tr S / m² exactly (ours); it does not depend on d_1."""
    return float(problem.y.square().sum() + torch.trace(output_covariance(problem)) / m**2)


def check_lambda_0(lambda_0: float) -> float:
    """Return λ_0, or raise InputError if it is not positive."""
    if not lambda_0 > 0:
        raise InputError(
            f"λ_0 is {lambda_0:.3g}, expected a positive number: `check` shows which assumption "
            "fails"
        )
    return lambda_0


def check_stable(problem: Problem, m: int, step_size: float) -> float:
    """Return η, or raise InputError if gradient descent diverges with it even at infinite width."""
    stable = 2.0 / greatest_eigenvalue(problem, m)
    if not 0 < step_size < stable:
        expected = f"expected one above 0 and below 2 / λ_max(G^∞) = {stable:.3g}"
        raise InputError(
            f"step_size is {step_size:.3g}, {expected}, where training begins to diverge at any "
            "width"
        )
    return step_size


def check_gamma(gamma: float) -> None:
    """Raise InputError if γ is not between 0 and 1."""
    if not 0 < gamma < 1:
        raise InputError(f"gamma is {gamma}, expected a number between 0 and 1")
