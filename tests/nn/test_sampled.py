"""The structure of sampled batches, compared with the whole graph's."""

import torch

from gistgnn.graphs import CSR
from gistgnn.nn import Adjacency
from gistgnn.nn.sampled import Degrees, SampledAdjacency

EDGES = torch.tensor([[1, 2, 2, 3, 0, 4, 1, 2], [0, 0, 1, 2, 3, 3, 4, 2]])  # 2 -> 2 is a self-loop
WHOLE = Adjacency(EDGES, 6)  # node 5 is alone


def degrees(*, sums: bool = False) -> Degrees:
    own = WHOLE.pattern.rowptr.diff().float()
    looped = WHOLE.attention.rowptr.diff().float()
    return Degrees(own, looped, WHOLE.gcn.to_dense().sum(dim=1) if sums else None)


def part(rows: list[int], columns: list[int], *, sums: bool = False, **options: object) -> SampledAdjacency:
    """The edges to the nodes ``rows`` from the nodes ``columns``."""
    a = torch.zeros(6, 6)
    a[EDGES[1], EDGES[0]] = 1
    row, col = a[rows][:, columns].nonzero(as_tuple=True)
    pattern, _ = CSR.from_entries(row, col, (len(rows), len(columns)))
    return SampledAdjacency(pattern, degrees(sums=sums).of(torch.tensor(columns)), **options)  # type: ignore[arg-type]


ROWS, COLUMNS = [0, 3, 2, 5], [0, 3, 2, 5, 1, 4]


def test_all_edges_of_some_nodes_have_the_whole_graphs_operators() -> None:
    sampled = part(ROWS, COLUMNS)
    for operator in ("gcn", "mean", "sum"):
        expected = getattr(WHOLE, operator).to_dense()[ROWS][:, COLUMNS]
        torch.testing.assert_close(getattr(sampled, operator).to_dense(), expected)
    assert (sampled.num_nodes, sampled.num_outputs) == (6, 4)
    attended, every = (torch.zeros(n, 6) for n in (4, 6))
    attended[sampled.attention.row.long(), sampled.attention.col.long()] = 1
    every[WHOLE.attention.row.long(), WHOLE.attention.col.long()] = 1
    assert torch.equal(attended, every[ROWS][:, COLUMNS])
    as_pyg_takes_them = [(COLUMNS[s], ROWS[t]) for s, t in sampled.edge_index.t().tolist()]
    assert sorted(as_pyg_takes_them) == sorted(pair for pair in map(tuple, EDGES.t().tolist()) if pair[1] in ROWS)


def test_weights_multiply_entries_and_self_loops_have_none() -> None:
    plain = part(ROWS, COLUMNS)
    weight = torch.arange(1.0, plain.pattern.num_edges + 1)
    weighed = part(ROWS, COLUMNS, weight=weight)
    places = plain.pattern.row.long(), plain.pattern.col.long()
    factor = torch.ones(4, 6)
    factor[places] = weight
    torch.testing.assert_close(weighed.mean.to_dense(), plain.mean.to_dense() * factor)
    factor[torch.arange(4), torch.arange(4)] = 1
    torch.testing.assert_close(weighed.gcn.to_dense(), plain.gcn.to_dense() * factor)
    own = torch.eye(4, 6)  # every node counts once beside the edges
    factor[places] = weight
    torch.testing.assert_close(weighed.sum.to_dense(), (plain.sum.to_dense() - own) * factor + own)


def test_rows_are_normalised_to_the_whole_graphs_sums() -> None:
    sampled = part([0, 3, 5], [0, 3, 5, 1], sums=True, weight=torch.tensor([7.0, 2.0]))
    torch.testing.assert_close(sampled.gcn.to_dense().sum(dim=1), WHOLE.gcn.to_dense().sum(dim=1)[[0, 3, 5]])
    assert sampled.mean.to_dense().sum(dim=1).tolist() == [1.0, 1.0, 0.0]  # node 5 has no neighbour
    torch.testing.assert_close(sampled.sum.to_dense().sum(dim=1), WHOLE.sum.to_dense().sum(dim=1)[[0, 3, 5]])
