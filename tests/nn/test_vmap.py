"""The layers' products and gradients under torch.func.vmap equal a loop over the sub-GCNs."""

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.attention import attend, dynamic_scores, edge_scores

from .strategies import examples, graphs, random_graph

K = 3  # sub-GCNs


def loop(function: Callable[..., Tensor], inputs: list[Tensor], dims: list[int | None]) -> Tensor:
    each = [
        function(*[x if dim is None else x.select(dim, i) for x, dim in zip(inputs, dims, strict=True)])
        for i in range(K)
    ]
    return torch.stack(each)


def stacked(sizes: tuple[int, ...], dim: int | None) -> Tensor:
    """Random numbers with the sub-GCNs at ``dim``, or the same for all."""
    shape = list(sizes)
    if dim is not None:
        shape.insert(dim, K)
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def agrees(
    function: Callable[..., Tensor], sizes: list[tuple[int, ...]], dims: list[int | None], out_dim: int = 0
) -> None:
    inputs = [stacked(size, dim) for size, dim in zip(sizes, dims, strict=True)]
    out = vmap(function, in_dims=tuple(dims), out_dims=out_dim)(*inputs).movedim(out_dim, 0)
    expected = loop(function, inputs, dims)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad))


@examples
@given(graphs(), st.integers(0, 2), st.integers(1, 3))
def test_the_sparse_product(graph: tuple[Tensor, int], dim: int, width: int) -> None:
    matrix = Adjacency(*graph, torch.float64).mean
    agrees(lambda h: matrix @ h, [(graph[1], width)], [dim], out_dim=dim)
    agrees(lambda h, w: matrix @ (h @ w), [(graph[1], width), (width, 2)], [None, dim])


def test_the_sparse_product_of_sparse_features() -> None:
    x = SparseMatrix.from_dense(torch.tensor([[0.0, 2, 0], [1, 0, 0]], dtype=torch.float64))
    agrees(lambda w: x @ w.t(), [(4, 3)], [1])


def test_the_sparse_product_to_the_second_order() -> None:
    """A gradient inside vmap: its product is batched too."""
    matrix = Adjacency(random_graph(5, 12, 1), 5, torch.float64).gcn

    def one(h: Tensor) -> Tensor:
        return torch.func.grad(lambda z: (matrix @ z).square().sum())(h)

    h = torch.randn(K, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(vmap(one)(h), torch.stack([one(own) for own in h]))


@examples
@given(graphs(), st.tuples(*[st.sampled_from([None, 0, 1, 2])] * 2).filter(any))
def test_attention(graph: tuple[Tensor, int], dims: tuple[int | None, int | None]) -> None:
    pattern, nodes = Adjacency(*graph).attention, graph[1]
    agrees(lambda source, target: edge_scores(source, target, pattern, 0.2), [(2, nodes), (2, nodes)], [*dims])
    agrees(lambda h, a: attend(h, a, pattern), [(nodes, 4), (2, pattern.num_edges)], [*dims])


@examples
@given(graphs(), st.tuples(*[st.sampled_from([None, 0, 1, 2])] * 3).filter(any))
def test_dynamic_attention(graph: tuple[Tensor, int], dims: tuple[int | None, ...]) -> None:
    pattern, nodes = Adjacency(*graph).attention, graph[1]
    sizes = [(nodes, 4), (nodes, 4), (2, 2)]
    agrees(lambda source, target, a: dynamic_scores(source, target, a, pattern, 0.2), sizes, [*dims])
