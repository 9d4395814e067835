"""A sparse matrix of features stays sparse, and all is learned from it as from a dense one."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from gistgnn import GIST
from gistgnn.evaluation import Evaluation, evaluate
from gistgnn.graphs import Graph
from gistgnn.graphs.files import load_file, save_file
from gistgnn.graphs.folder import load_folder, write_graph
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.sampling import ClusterSampling
from tests.helpers.refusals import refused

N = 240
F = 60
C = 3


def words() -> Tensor:
    """Features of which 5 % are not zero."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(N, F, generator=rng)
    return x.where(torch.rand(N, F, generator=rng) < 0.05, torch.zeros(()))


def make(x: Any) -> Graph:
    rng = torch.Generator().manual_seed(1)
    edge_index = torch.randint(N, (2, 5 * N), generator=rng)
    y = torch.randint(C, (N,), generator=rng)
    order = torch.randperm(N, generator=rng)
    return Graph.build(x, edge_index, y, train=order[:120], val=order[120:180], test=order[180:])


class SparseTensor:
    """What gistgnn uses of torch_sparse's class."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.to_sparse_coo().coalesce()

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        row, col = self.x.indices()
        return row, col, self.x.values()

    def sizes(self) -> list[int]:
        return list(self.x.shape)


def backwards(x: Tensor) -> sp.csr_matrix:
    """Return a matrix whose columns descend within a row, with values in two halves and zeros."""
    matrix = sp.csr_matrix(x.numpy())
    row = np.arange(N).repeat(np.diff(matrix.indptr))
    half = matrix.data / 2
    data = np.concatenate([half, half, np.zeros(N, np.float32)])[::-1]
    rows = np.concatenate([row, row, np.arange(N)])[::-1]
    columns = np.concatenate([matrix.indices, matrix.indices, np.zeros(N)])[::-1]
    order = rows.argsort(kind="stable")
    starts = np.concatenate([[0], np.bincount(rows.astype(int), minlength=N).cumsum()])
    return sp.csr_matrix((data[order], columns[order].astype(np.int32), starts), shape=(N, F))


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "COO": lambda x: x.to_sparse_coo(),
    "CSR": lambda x: x.to_sparse_csr(),
    "CSC": lambda x: x.to_sparse_csc(),
    "SciPy CSR": lambda x: sp.csr_matrix(x.numpy()),
    "SciPy COO array": lambda x: sp.coo_array(x.numpy()),
    "SciPy, not sorted": backwards,
    "torch_sparse": SparseTensor,
    "float64": lambda x: x.double().to_sparse_csr(),
    "gradients": lambda x: x.to_sparse_csr().requires_grad_(),
}


@pytest.mark.parametrize("form", FORMS)
def test_sparse_features_stay_sparse_and_are_the_same(form: str) -> None:
    graph = make(FORMS[form](words()))
    assert graph.x.layout is torch.sparse_csr
    assert graph.x.dtype == torch.float32
    assert torch.equal(graph.x.to_dense(), words())
    assert graph.digests() == make(words().to_sparse_csr()).digests()
    assert graph.held_bytes < make(words()).held_bytes / 2


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int16, torch.int64, torch.bfloat16, torch.float16]
)
def test_any_real_numbers_become_float32(dtype: torch.dtype) -> None:
    x = (10 * words()).to(dtype)
    assert torch.equal(make(x.to_sparse_coo()).x.to_dense(), x.float())


def test_a_sparse_matrix_of_many_entries_becomes_dense() -> None:
    x = torch.rand(N, F)
    graph = make(x.to_sparse_csr())
    assert graph.x.layout is torch.strided
    assert torch.equal(graph.x, x)


def out_of_range() -> Tensor:
    x = words().to_sparse_csr()
    col = x.col_indices().clone()
    col[7] = F
    return torch.sparse_csr_tensor(
        x.crow_indices(), col, x.values(), x.shape, check_invariants=False
    )


def with_value(value: float) -> Tensor:
    x = words()
    x[5, 11] = value
    return x.to_sparse_csr()


def test_wrong_matrices_are_refused_in_one_line() -> None:
    wrong: list[tuple[Any, str]] = [
        (with_value(math.nan), "x[5, 11] is nan; expected finite float32 values"),
        (with_value(math.inf), "x[5, 11] is inf; expected finite float32 values"),
        (sp.csr_matrix(([1e300], ([0], [3])), shape=(N, F)), "x[0, 3] is inf"),
        (out_of_range(), "x is a sparse matrix that cannot be read"),
        (torch.zeros(N, F, 2).to_sparse_coo(), f"x has shape [{N}, {F}, 2]; expected a matrix"),
        (words().to_sparse_bsr((2, 2)), "call .to_sparse_csr() on it"),
        (torch.sparse_coo_tensor(torch.zeros(2, 0), [], (0, F)), "x has shape [0, 60]"),
        (torch.sparse_coo_tensor([[0], [0]], [1.0], (N, F), device="meta"), "meta"),
    ]
    for x, message in wrong:
        with refused(message):
            make(x)


def test_odd_columns_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    x = words().double()
    x[:, 3] = torch.arange(N)
    x[9, 5] = 2**24 + 1
    x[:, 5] = x[:, 5].round()
    make(x.to_sparse_csr())
    notes = list(caplog.messages)
    caplog.clear()
    make(x)
    assert notes == caplog.messages
    assert any("x[:, 3] numbers the rows" in note for note in notes)
    assert any("x[:, 5] has whole numbers such as 16777217" in note for note in notes)


class PyG(nn.Module):
    num_layers = 2

    def __init__(self, widths: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(F, widths[0]), GCNConv(widths[0], C)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


BUILDS: dict[str, Callable[[Any], nn.Module]] = {
    "GCN": lambda widths: GCN(F, widths, C),
    "GraphSAGE": lambda widths: GraphSAGE(F, widths, C, dropout=0.2),
    "PyG": PyG,
}
RUNS: dict[str, dict[str, Any]] = {
    "whole": {},
    "clusters": {"clusters": 12, "clusters_per_batch": 3},
    "neighbours": {"sampler": "neighbor"},
    "GraphSAINT": {"sampler": "saint-node"},
    "layers": {"sampler": "ladies"},
    "inductive": {"inductive": True},
    "inductive clusters": {"inductive": True, "clusters": 8},
    "in parts": {"evaluation": Evaluation("parts", parts=5)},
    "by layers": {"evaluation": Evaluation("layers")},
}

NEED_OUR_MODELS = {
    "layers": "takes an edge_index, which LADIES, which weighs sampled nodes, does not define",
    "by layers": "the model is a PyG, which offers no layers()",
}


def train(build: str, x: Tensor, **settings: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of the model that a run ends with, and its scores and losses."""
    if "clusters" in settings:
        count = settings.pop("clusters")
        per_batch = settings.pop("clusters_per_batch", 2)
        settings["sampler"] = ClusterSampling(count, per_batch)
    result = GIST(BUILDS[build], (8,), 2).fit(
        make(x), epochs=4, lr=0.05, local_steps=3, progress=False, **settings
    )
    return named_tensors(result.model), {
        **result.test,
        "history": [entry["loss"] for entry in result.history],
    }


@pytest.mark.one_in(4)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("build", BUILDS)
def test_a_run_is_that_of_dense_features_bit_for_bit(build: str, run: str) -> None:
    if build == "PyG" and run in NEED_OUR_MODELS:
        with refused(NEED_OUR_MODELS[run]):
            train(build, words().to_sparse_csr(), **dict(RUNS[run]))
        return
    dense, dense_scores = train(build, words(), **dict(RUNS[run]))
    sparse, sparse_scores = train(build, words().to_sparse_csr(), **dict(RUNS[run]))
    assert dense.keys() == sparse.keys()
    for name, tensor in dense.items():
        assert torch.equal(tensor, sparse[name]), name
    assert dense_scores == sparse_scores


@pytest.mark.parametrize("build", ["GraphSAGE", "PyG"])
def test_standardised_features_are_dense_and_those_of_a_dense_graph(build: str) -> None:
    dense, _ = train(build, words(), standardise=True)
    sparse, _ = train(build, words().to_sparse_csr(), standardise=True)
    assert any(name.startswith("model.") for name in dense), "it is a ScaledModel"
    assert all(torch.equal(tensor, sparse[name]) for name, tensor in dense.items())


def test_negative_values_do_not_make_a_sparse_graph_dense() -> None:
    x = -words()
    result = GIST(BUILDS["GCN"], (8,), 1).fit(make(x.to_sparse_csr()), epochs=1, progress=False)
    assert not any("feature_mean" in name for name in named_tensors(result.model))


def test_a_standardised_model_scores_a_sparse_graph() -> None:
    gist = GIST(BUILDS["GCN"], (8,), 1)
    model = gist.fit(make(words()), epochs=2, progress=False, standardise=True).model
    assert evaluate(model, make(words().to_sparse_csr())) == evaluate(model, make(words()))


@pytest.mark.parametrize("build", ["GCN", "GraphSAGE"])
def test_a_model_takes_the_features_of_the_graph(build: str) -> None:
    graph = make(words().to_sparse_csr())
    model = GIST(BUILDS[build], (8,), 2).fit(graph, epochs=2, progress=False).model.eval()
    expected = model(words(), graph.edge_index)
    torch.testing.assert_close(model(graph.x, graph.edge_index), expected, rtol=1e-5, atol=1e-6)


def test_files_and_folders_hold_sparse_features(tmp_path: Path) -> None:
    graph = make(words().to_sparse_csr())
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    data = Data(x=words().to_sparse_csr(), edge_index=graph.edge_index, y=graph.y, **masks)
    torch.save(data, tmp_path / "g.pt")
    loaded = load_file(tmp_path / "g.pt")
    assert loaded.digests() == graph.digests()
    torch.save(Data(**{**data.to_dict(), "x": out_of_range()}), tmp_path / "bad.pt")
    with refused("bad.pt"):
        load_file(tmp_path / "bad.pt")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_graph(graph, folder)
    assert torch.equal(load_folder(folder).x, words())
    save_file(graph, tmp_path / "g.npz")
    assert torch.equal(load_file(tmp_path / "g.npz").x, words())
