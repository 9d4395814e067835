from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gistgnn.errors import InputError
from gistgnn.graphs import CSR
from gistgnn.nn import Adjacency, SparseMatrix

from .strategies import agree, examples, graphs, places, random_graph


def random_matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    return dense * (torch.rand(rows, columns, generator=generator) < 0.4)


@examples
@given(st.integers(0, 7), st.integers(0, 7), st.integers(1, 5), st.integers(0, 99), places(2))
def test_products_are_the_dense_ones(
    rows: int, columns: int, d: int, seed: int, dims: tuple[int | None, ...]
) -> None:
    dense = random_matrix(rows, columns, seed)
    matrix = SparseMatrix.from_dense(dense)
    agree(lambda h, w: matrix @ (h @ w), lambda h, w: dense @ (h @ w), [(columns, d), (d, 2)], dims)
    torch.testing.assert_close(matrix.t().to_dense(), dense.t())
    torch.testing.assert_close(matrix.to_dense(), dense)


def test_the_product_has_derivatives_to_the_second_order_also_within_vmap() -> None:
    matrix = SparseMatrix.from_dense(random_matrix(5, 4))
    h = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: matrix @ h, h[0])
    assert torch.autograd.gradgradcheck(lambda h: matrix @ h, h[0])
    gradient = torch.func.grad(lambda z: (matrix @ z).square().sum())
    expected = torch.stack([gradient(z) for z in h])
    torch.testing.assert_close(torch.func.vmap(gradient)(h), expected)


def test_earlier_content_of_memory_does_not_matter() -> None:
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        for dense in (
            random_matrix(5, 4),
            torch.zeros(5, 4, dtype=torch.float64),
            torch.zeros(3, 0).double(),
        ):
            h = torch.ones(dense.shape[1], 2, dtype=torch.float64)
            torch.testing.assert_close(SparseMatrix.from_dense(dense) @ h, dense @ h)
    finally:
        torch.use_deterministic_algorithms(False)


def test_entries_come_in_any_order_and_repeated_ones_add_up() -> None:
    row = torch.tensor([2, 0, 2, 2])
    col = torch.tensor([1, 0, 0, 1])
    matrix = SparseMatrix(row, col, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 2))
    expected = torch.tensor([[2.0, 0.0], [0.0, 0.0], [3.0, 5.0]])
    assert len(matrix.value) == 4
    assert matrix.shape == (3, 2)
    assert torch.equal(matrix.to_dense(), expected)
    assert torch.equal(matrix @ torch.eye(2), expected)


@examples
@given(st.permutations(range(6)), st.integers(0, 6))
def test_selected_columns_are_those_of_the_dense_matrix(order: list[int], count: int) -> None:
    dense = random_matrix(4, 6)
    index = torch.tensor(order[:count], dtype=torch.int64)
    selected = SparseMatrix.from_dense(dense).select_columns(index)
    assert selected.shape == (4, count)
    torch.testing.assert_close(selected.to_dense(), dense[:, index])
    torch.testing.assert_close(selected @ torch.eye(count, dtype=torch.float64), dense[:, index])


def test_a_conversion_returns_the_same_where_nothing_changes() -> None:
    matrix = SparseMatrix.from_dense(random_matrix(4, 3))
    assert matrix.to("cpu") is matrix
    single = matrix.to(torch.float32)
    assert single.dtype == torch.float32
    assert single.pattern is matrix.pattern
    adj = Adjacency(random_graph(5, 9, 0), 5)
    assert adj.to(torch.float32) is adj
    assert adj.to(dtype=torch.float64).gcn.dtype == torch.float64
    assert adj.to("meta").device.type == "meta"


INDEX = torch.tensor([0, 1])
PAIR = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SparseMatrix(INDEX, INDEX, torch.ones(3), (2, 2)), "one floating-point value"),
        (lambda: SparseMatrix(INDEX, INDEX[:1], torch.ones(2), (2, 2)), "2 row and 1 column"),
        (lambda: SparseMatrix(INDEX, INDEX, torch.ones(2), (1, 2)), "row index 1 is outside"),
        (
            lambda: SparseMatrix(INDEX, INDEX - 1, torch.ones(2), (2, 2)),
            "column index -1 is outside",
        ),
        (lambda: SparseMatrix(INDEX.double(), INDEX, torch.ones(2), (2, 2)), "int64 or int32"),
        (lambda: SparseMatrix.from_dense(torch.ones(3)), r"\[R, C\]"),
        (lambda: SparseMatrix.from_dense(torch.eye(2)) @ torch.ones(3, 2), r"\[2, d\]"),
        (lambda: SparseMatrix.from_dense(torch.eye(2)) @ torch.ones(2, 2).double(), "convert one"),
        (lambda: Adjacency(torch.zeros(3, 2, dtype=torch.int64), 2), r"\[2, E\]"),
        (lambda: Adjacency(torch.tensor([[0], [2]]), 2), r"target index 2 is outside 0\.\.1"),
        (
            lambda: Adjacency(PAIR, 2, edge_weight=torch.tensor([-0.5])).gcn,
            "holds -0.5; expected 0 or more",
        ),
        (
            lambda: Adjacency(PAIR, 2, edge_weight=torch.ones(3)),
            r"edge_weight has shape \[3\]: give \[1\]",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("loops", [0, 1, 5])
def test_self_loops_are_found_in_the_same_places_where_their_number_is_known(loops: int) -> None:
    rng = torch.Generator().manual_seed(loops)
    edges = torch.randint(9, (2, 30), generator=rng)
    edges = edges[:, edges[0] != edges[1]]
    row, col = torch.cat([edges, torch.arange(loops).expand(2, -1)], dim=1)
    pattern, _ = CSR.from_entries(row, col, (9, 9))
    counted = CSR(pattern.rowptr, pattern.col, pattern.shape, loops)
    looped, mask, positions = pattern.looped()
    same_looped, indices, same_positions = counted.looped()
    assert torch.equal(mask.nonzero().squeeze(1), indices)
    assert torch.equal(looped.rowptr, same_looped.rowptr)
    assert torch.equal(looped.col, same_looped.col)
    assert torch.equal(positions, same_positions)


@settings(max_examples=80)
@given(graphs(), st.booleans())
def test_the_operators_are_pyg_s(graph: tuple[Tensor, int], weighted: bool) -> None:
    edges, nodes = graph
    drawn = torch.rand(
        edges.shape[1], generator=torch.Generator().manual_seed(nodes), dtype=torch.float64
    )
    weight = (5 * drawn - 1).clamp(min=0) if weighted else None
    adj = Adjacency(edges, nodes, torch.float64, weight)

    def dense(edges: Tensor, weight: Tensor | None) -> Tensor:
        value = torch.ones(edges.shape[1], dtype=torch.float64) if weight is None else weight
        return torch.zeros(nodes, nodes, dtype=torch.float64).index_put_(
            (edges[1], edges[0]), value, accumulate=True
        )

    torch.testing.assert_close(
        adj.gcn.to_dense(), dense(*gcn_norm(edges, weight, nodes, dtype=torch.float64))
    )
    a = dense(edges, weight)
    sums = a.sum(dim=1, keepdim=True)
    torch.testing.assert_close(adj.mean.to_dense(), torch.where(sums > 0, a / sums, 0.0))
    torch.testing.assert_close(adj.sum.to_dense(), a + torch.eye(nodes, dtype=torch.float64))
    assert torch.equal(adj.attention.row.sort().values, adj.attention.row)
    assert adj.num_edges == edges.shape[1]
