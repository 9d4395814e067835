import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import softmax

from gistgnn.nn import Adjacency
from gistgnn.nn.attention import attend, attention_coefficients, dynamic_coefficients
from gistgnn.nn.pattern import Pattern

from .strategies import examples, graphs, random_graph


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def plain_coefficients(source: Tensor, target: Tensor, pattern: Pattern) -> Tensor:
    row, col = pattern.row.long(), pattern.col.long()
    scores = F.leaky_relu(source[:, col] + target[:, row], 0.2)
    return softmax(scores, row, num_nodes=pattern.shape[0], dim=1)


def plain_dynamic(source: Tensor, target: Tensor, vectors: Tensor, pattern: Pattern) -> Tensor:
    row, col, heads = pattern.row.long(), pattern.col.long(), len(vectors)
    features = F.leaky_relu(source[col] + target[row], 0.2).view(len(row), heads, vectors.shape[1])
    return softmax((features * vectors).sum(dim=2).t(), row, num_nodes=pattern.shape[0], dim=1)


def plain_attend(features: Tensor, coefficients: Tensor, pattern: Pattern) -> Tensor:
    heads = len(coefficients)
    messages = coefficients.t().unsqueeze(-1) * features.view(len(features), heads, -1)[pattern.col.long()]
    return torch.zeros_like(features).index_add(0, pattern.row, messages.flatten(1))


@examples
@given(graphs())
def test_attention_and_its_gradients_equal_the_plain_ones(graph: tuple[Tensor, int]) -> None:
    pattern = Adjacency(*graph).attention
    inputs = double(3, graph[1]), double(3, graph[1]), double(graph[1], 6)
    source, target, features = inputs
    out = attend(features, attention_coefficients(source, target, pattern, 0.2), pattern)
    expected = plain_attend(features, plain_coefficients(source, target, pattern), pattern)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad))


@pytest.mark.parametrize("piece", [2**20, 8, 1])
@examples
@given(graphs())
def test_dynamic_attention_and_its_gradients_equal_the_plain_ones(piece: int, graph: tuple[Tensor, int]) -> None:
    pattern = Adjacency(*graph).attention
    inputs = double(graph[1], 6), double(graph[1], 6), double(3, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gistgnn.nn.attention.PIECE", piece)
        out = dynamic_coefficients(*inputs, pattern, 0.2)
        expected, grad = plain_dynamic(*inputs, pattern), torch.randn_like(out)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad))


def test_gradcheck() -> None:
    pattern = Adjacency(random_graph(5, 12, 1), 5).attention
    coefficients, features = double(2, pattern.nnz), double(5, 6)
    assert torch.autograd.gradcheck(
        lambda s, t: attention_coefficients(s, t, pattern, 0.2), (double(2, 5), double(2, 5))
    )
    assert torch.autograd.gradcheck(lambda f, c: attend(f, c, pattern), (features, coefficients))


def test_more_repeated_edges_than_places() -> None:
    pattern = Adjacency(torch.tensor([[0] * 20, [1] * 20]), 2).attention
    features, coefficients = double(2, 6), double(3, pattern.nnz)
    grad = torch.randn(2, 6, dtype=torch.float64)
    out, expected = (f(features, coefficients, pattern) for f in (attend, plain_attend))
    torch.testing.assert_close(
        torch.autograd.grad(out, (features, coefficients), grad),
        torch.autograd.grad(expected, (features, coefficients), grad),
    )


def test_large_scores_do_not_overflow() -> None:
    pattern = Adjacency(random_graph(5, 12, 1), 5).attention
    coefficients = attention_coefficients(1e4 * torch.randn(2, 5), 1e4 * torch.randn(2, 5), pattern, 0.2)
    assert coefficients.isfinite().all()


def test_bfloat16_of_autocast_is_summed_in_float32() -> None:
    pattern = Pattern.from_sorted(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), (2, 2))
    features, source = torch.randn(2, 4).bfloat16(), torch.randn(2, 2).bfloat16().requires_grad_()
    coefficients = attention_coefficients(source, source, pattern, 0.2)
    out = attend(features.requires_grad_(), coefficients.bfloat16(), pattern)
    out.sum().backward()
    assert out.dtype == coefficients.dtype == torch.float32
    assert features.grad is not None
    assert source.grad is not None
    expected = attend(features.float(), coefficients.bfloat16().float(), pattern)
    torch.testing.assert_close(out, expected)
