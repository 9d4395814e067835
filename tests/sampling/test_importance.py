"""LADIES and FastGCN against their formulas."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.sampling import Batch, FastGCNSampling, LadiesSampling
from gistgnn.sampling.structure import Structure
from tests.sampling import reference
from tests.sampling.reference import converges, features, graphs, layers_of, nodes_of, random_graph

WHOLE = random_graph(30, 90)
SOME = replace(WHOLE, loss_nodes=torch.tensor([2, 7, 11, 20]))  # four outputs
A = reference.adjacency(WHOLE)
EXACT = {"gcn": torch.tensor(reference.laplacian(A)).double(), "mean": torch.tensor(reference.mean(A)).double()}


@settings(max_examples=50)
@given(graphs(), st.data())
def test_probabilities_are_the_papers(whole: Batch, data: st.DataObject) -> None:
    nodes = whole.x.shape[0]
    rows = sorted(data.draw(st.sets(st.integers(0, nodes - 1), min_size=1)))
    if data.draw(st.booleans()):
        whole = replace(whole, edge_data={"edge_weight": torch.rand(whole.adj.num_edges) + 0.1})
    structure, a = Structure(whole), reference.adjacency(whole)
    found = np.zeros(nodes)
    above_zero, squares = structure.squares_above_zero(structure.values[rows], np.array(rows))
    found[above_zero] = squares
    np.testing.assert_allclose(found / found.sum(), reference.ladies(a, rows), rtol=1e-5, atol=1e-7)
    every = structure.column_squares
    np.testing.assert_allclose(every / every.sum(), reference.fastgcn(a), rtol=1e-5, atol=1e-7)
    sums = torch.tensor(reference.laplacian(a)).sum(dim=1)
    torch.testing.assert_close(structure.normalised.row_sums, sums, rtol=1e-5, atol=1e-6)


def weights_of(batch: Batch) -> dict[int, float]:
    """The weights of the columns that are not outputs, by node."""
    (layer,), nodes = layers_of(batch), nodes_of(batch).tolist()
    entries = zip(layer.pattern.col.tolist(), layer.weight.tolist(), strict=True)
    return {nodes[col]: weight for col, weight in entries if col >= layer.num_outputs}


@pytest.mark.parametrize("s", [6, 16])  # of many draws, some would have a weight below 1
def test_ladies_weighs_by_its_probabilities(s: int) -> None:
    p = reference.ladies(A, SOME.loss_nodes.tolist())
    for batch in LadiesSampling(nodes_per_layer=(s,)).sampler(SOME, 0).batches(0, 50):
        (layer,) = layers_of(batch)
        assert layer.num_outputs == 4
        assert 4 < layer.num_nodes <= 4 + s
        for node, weight in weights_of(batch).items():
            assert weight == pytest.approx(max(1, 1 / (s * p[node])), rel=1e-4)
        assert (layer.weight[layer.pattern.col < 4] == 1).all()  # outputs are there anyway
        for operator in ("gcn", "mean"):
            sums = getattr(layer, operator).to_dense().sum(dim=1).double()
            expected = EXACT[operator].sum(dim=1)[nodes_of(batch)[:4]]
            torch.testing.assert_close(sums[sums != 0], expected[sums != 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sampling", [LadiesSampling, FastGCNSampling])
def test_without_normalised_rows_draws_are_counted(sampling: type[LadiesSampling]) -> None:
    """That sums are unbiased then, as `test_samplers` shows, means that nodes are drawn with these probabilities."""
    p = reference.ladies(A, SOME.loss_nodes.tolist()) if sampling is LadiesSampling else reference.fastgcn(A)
    for batch in sampling(nodes_per_layer=(6,), row_normalise=False).sampler(SOME, 0).batches(0, 100):
        for node, weight in weights_of(batch).items():
            drawn = weight * 6 * p[node]
            assert drawn == pytest.approx(round(drawn), abs=1e-3)


def sums_of_two_layers(sampling: LadiesSampling | FastGCNSampling, x: Tensor) -> Iterator[tuple[Tensor]]:
    """The estimates of Ā Ā x at the outputs, in the order of their numbers."""
    with closing(sampling.sampler(SOME, 3).batches(0, 10**6)) as batches:
        for batch in batches:
            lower, upper = layers_of(batch)
            h = lower.gcn.to_dense().double() @ x[nodes_of(batch)]
            yield ((upper.gcn.to_dense().double() @ h)[nodes_of(batch)[:4].argsort()],)


@pytest.mark.parametrize("sampling", [LadiesSampling, FastGCNSampling])
def test_two_layers_without_activation_are_unbiased(sampling: type[LadiesSampling]) -> None:
    x = features(WHOLE.x)
    exact = (EXACT["gcn"] @ EXACT["gcn"] @ x)[SOME.loss_nodes]
    unbiased, normalised = (sampling(nodes_per_layer=(8, 8), row_normalise=chosen) for chosen in (False, True))
    converges(sums_of_two_layers(unbiased, x), exact, at=(100, 800))
    with pytest.raises(AssertionError):  # it does not claim to be, and the check sees it
        converges(sums_of_two_layers(normalised, x), exact, at=(800,))
