import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F
from torch_geometric.utils import softmax

from gistgnn.graphs import CSR
from gistgnn.nn import Adjacency, attention
from gistgnn.nn.attention import attend, dynamic_scores, edge_scores

from .strategies import K, agree, examples, graphs, places, random_graph


def plain_dynamic(source: Tensor, target: Tensor, vectors: Tensor, pattern: CSR) -> Tensor:
    row = pattern.row.long()
    col = pattern.col.long()
    heads = len(vectors)
    features = F.leaky_relu(source[col] + target[row], 0.2).view(len(row), heads, vectors.shape[1])
    return (features * vectors).sum(dim=2).t()


def plain_attend(
    features: Tensor, scores: Tensor, pattern: CSR, factors: Tensor | float = 1.0
) -> Tensor:
    heads = len(scores)
    row = pattern.row.long()
    coefficients = softmax(scores, row, num_nodes=pattern.shape[0], dim=1) * factors
    messages = (
        coefficients.t().unsqueeze(-1) * features.unflatten(1, (heads, -1))[pattern.col.long()]
    )
    return features.new_zeros(pattern.shape[0], features.shape[1]).index_add(
        0, row, messages.flatten(1)
    )


@pytest.mark.parametrize("together", [2**22, 1])
@examples
@given(graphs(), places(3))
def test_attention_is_the_plain_one(
    together: int, graph: tuple[Tensor, int], dims: tuple[int | None, ...]
) -> None:
    pattern = Adjacency(*graph).attention
    nodes = graph[1]

    def ours(source: Tensor, target: Tensor, features: Tensor) -> Tensor:
        return attend(features, edge_scores(source, target, pattern, 0.2), pattern)

    def plain(source: Tensor, target: Tensor, features: Tensor) -> Tensor:
        scores = F.leaky_relu(source[:, pattern.col.long()] + target[:, pattern.row.long()], 0.2)
        return plain_attend(features, scores, pattern)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "ENTRIES_PER_PRODUCT", together)
        agree(ours, plain, [(3, nodes), (3, nodes), (nodes, 6)], dims)


@pytest.mark.parametrize("piece", [2**20, 8, 1])
@examples
@given(graphs(), places(3))
def test_dynamic_scores_are_the_plain_ones(
    piece: int, graph: tuple[Tensor, int], dims: tuple[int | None, ...]
) -> None:
    pattern = Adjacency(*graph).attention
    nodes = graph[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "PIECE", piece)
        agree(
            lambda *inputs: dynamic_scores(*inputs, pattern, 0.2),
            lambda *inputs: plain_dynamic(*inputs, pattern),
            [(nodes, 6), (nodes, 6), (3, 2)],
            dims,
        )


@examples
@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 12), st.sampled_from([1.0, 1e3]))
def test_rows_may_have_no_entries_and_columns_may_be_more(
    rows: int, extra: int, entries: int, size: float
) -> None:
    shape = (rows, rows + extra)
    count = entries if rows else 0
    row, col = (torch.randint(max(size, 1), (count,)) for size in shape)
    pattern, _ = CSR.from_entries(row, col, shape)
    agree(
        lambda features, scores: attend(features, size * scores, pattern),
        lambda features, scores: plain_attend(features, size * scores, pattern),
        [(shape[1], 6), (2, pattern.num_edges)],
        [None, None],
    )


def test_dropout_leaves_out_other_weights_in_every_sub_gcn() -> None:
    """The dropped weights are those that the result lacks, a share of p; the others are rescaled.
    Sub-GCNs differ.
    """
    torch.manual_seed(0)
    nodes = 60
    all_pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    pattern = Adjacency(all_pairs, nodes).attention
    scores = torch.randn(K, 2, pattern.num_edges, dtype=torch.float64, requires_grad=True)
    one_hot = torch.eye(nodes, dtype=torch.float64).repeat(1, 2).requires_grad_()
    places = pattern.row.long() * nodes + pattern.col.long()
    masks = list[Tensor]()
    inputs = (one_hot, scores)
    outputs = vmap(
        lambda sub_scores: attend(one_hot, sub_scores, pattern, 0.3), randomness="different"
    )(scores)
    for out, sub_scores in zip(outputs, scores, strict=True):
        weights = out.view(nodes, 2, nodes).transpose(0, 1)  # the columns are the weights of a head
        masks.append((weights != 0).double().flatten(1)[:, places])
        assert abs(float(masks[-1].mean()) - 0.7) < 0.03
        expected = plain_attend(one_hot, sub_scores, pattern, masks[-1] / 0.7)
        grad = torch.randn_like(out)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=0)
        gradients = (
            torch.autograd.grad(x, inputs, grad, retain_graph=True) for x in (out, expected)
        )
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)
    assert not torch.equal(masks[0], masks[1])


@pytest.mark.parametrize("size", [39.9, -39.9])
def test_the_largest_scores_without_a_shift_are_accurate(size: float) -> None:
    pattern = Adjacency(random_graph(6, 20, 1), 6).attention
    scores = torch.randn(2, pattern.num_edges).clamp(-1, 1)
    scores[:, ::2] = size
    scores[:, : int(pattern.rowptr[1])] = -size
    inputs = torch.randn(6, 4, requires_grad=True), scores.requires_grad_()
    exact = tuple(x.detach().double().requires_grad_() for x in inputs)
    out = attend(*inputs, pattern)
    expected = plain_attend(*exact, pattern)
    grad = torch.randn(6, 4)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for gradient, expected_gradient in zip(
        torch.autograd.grad(out, inputs, grad),
        torch.autograd.grad(expected, exact, grad.double()),
        strict=True,
    ):
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-5, atol=1e-5)


def test_bfloat16_of_autocast_is_summed_in_float32() -> None:
    pattern = CSR.from_sorted(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), (2, 2))
    features = torch.randn(2, 4).bfloat16()
    source = torch.randn(2, 2).bfloat16().requires_grad_()
    scores = edge_scores(source, source, pattern, 0.2)
    out = attend(features.requires_grad_(), scores.bfloat16(), pattern)
    out.sum().backward()
    assert out.dtype == scores.dtype == torch.float32
    assert features.grad is not None
    assert source.grad is not None
    expected = attend(features.float(), scores.bfloat16().float(), pattern)
    torch.testing.assert_close(out, expected)
