import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.theory import make_gist, train_round
from gistgnn.theory.lemmas import decomposed_error, expected_deviation, total_deviation
from gistgnn.theory.model import global_output, global_weights
from tests.theory.problems import problem

seeds = st.integers(0, 2**31)
examples = settings(deadline=None, max_examples=25)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs() / b.abs())


@examples
@given(n=st.integers(5, 9), d=st.integers(1, 6), m=st.integers(2, 5), seed=seeds, steps=st.integers(1, 3))
def test_both_lemmas_hold_exactly_with_the_mean_and_fail_with_the_sum(
    n: int, d: int, m: int, seed: int, steps: int
) -> None:
    p = problem(n, d, seed)
    gist = make_gist(p, 40, m, seed)
    round_ = train_round(gist, p, steps, 0.05)
    start, end = round_.outputs[:, 0], round_.outputs[:, -1]
    error = (p.y - round_.after).square().sum()
    deviation = (round_.before - start).square().sum()
    assert relative(decomposed_error(p.y, end), error) <= 1e-10
    assert relative(total_deviation(start), deviation) <= 1e-10

    # f = Σ_j f^(j), as the paper has it: m times the output that its lemmas are about
    assert relative(decomposed_error(p.y, end), (p.y - m * round_.after).square().sum()) > 1e-6
    assert relative(total_deviation(start), (m * round_.before - start).square().sum()) > 1e-6


def test_one_sub_gcn_is_gradient_descent_on_the_whole_gcn() -> None:
    p = problem()
    gist = make_gist(p, 30, 1)
    theta, a = global_weights(gist).requires_grad_(), gist.model().a
    round_ = train_round(gist, p, 4, 0.1)
    for _ in range(4):
        output = p.a_bar @ (p.x_hat @ theta).relu() @ a / math.sqrt(30)
        # the gradient as the paper writes it: half of that of the squared error
        (full,) = torch.autograd.grad((p.y - output).square().sum(), theta)
        theta = (theta - 0.1 * full / 2).detach().requires_grad_()
    torch.testing.assert_close(global_weights(gist), theta.detach(), rtol=1e-12, atol=1e-14)
    assert set(a.tolist()) == {-1.0, 1.0}
    assert torch.equal(gist.model().a, a)
    torch.testing.assert_close(round_.after, global_output(gist, p))


def test_sub_gcns_deviate_from_the_gcn_as_expected_and_are_it_in_the_mean() -> None:
    p, m, rounds = problem(), 3, 400
    gist = make_gist(p, 200, m)
    theta, a = global_weights(gist), gist.model().a
    hidden = p.a_bar @ (p.x_hat @ theta).relu() * a / math.sqrt(200)
    outputs = torch.stack([hidden[:, gist.blocks(t)[0][0]].sum(dim=1) for t in range(rounds)])
    squares = (outputs - global_output(gist, p)).square().sum(dim=1)
    expected = expected_deviation(p, theta, m)
    assert abs(squares.mean() - expected) <= 3 * squares.std() / math.sqrt(rounds)
    off = (outputs.mean(dim=0) - global_output(gist, p)).abs()
    assert bool((off <= 4 * outputs.std(dim=0) / math.sqrt(rounds)).all())
