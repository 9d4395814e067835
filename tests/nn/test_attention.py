import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.utils import softmax

from gistgnn.nn import Adjacency
from gistgnn.nn.attention import attend, edge_softmax

from .strategies import examples, graphs, random_graph


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@examples
@given(graphs())
def test_softmax_and_aggregation_equal_the_plain_ones(graph: tuple[Tensor, int]) -> None:
    pattern = Adjacency(*graph).attention
    scores, features = double(3, pattern.nnz), double(graph[1], 6)
    out = attend(features, edge_softmax(scores, pattern), pattern)
    alpha = softmax(scores, pattern.row.long(), num_nodes=graph[1], dim=1)
    messages = alpha.t().unsqueeze(-1) * features.view(-1, 3, 2)[pattern.col.long()]  # [nnz, heads, d]
    expected = torch.zeros(graph[1], 6, dtype=torch.float64).index_add(0, pattern.row, messages.flatten(1))
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad(out, (scores, features), grad), torch.autograd.grad(expected, (scores, features), grad)
    )


def test_gradcheck() -> None:
    pattern = Adjacency(random_graph(5, 12, 1), 5).attention
    scores, features = double(2, pattern.nnz), double(5, 6)
    assert torch.autograd.gradcheck(lambda s: edge_softmax(s, pattern), scores)
    assert torch.autograd.gradcheck(lambda f, s: attend(f, s, pattern), (features, scores))


def test_large_scores_do_not_overflow() -> None:
    pattern = Adjacency(random_graph(5, 12, 1), 5).attention
    scores = 1e4 * torch.randn(2, pattern.nnz)
    assert edge_softmax(scores, pattern).isfinite().all()
