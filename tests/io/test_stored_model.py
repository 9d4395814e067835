"""A model whose weights lie in files gives what the model in memory gives."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn.evaluation import Evaluation
from gistgnn.io import stored_tensor as tensor
from gistgnn.io.stored_model import stored_model
from gistgnn.io.stored_tensor import StoredTensor, reading_bytes
from gistgnn.nn import MODELS, GraphSAGE
from tests.evaluation.cases import C, F, random_batch, random_model, whole
from tests.helpers.refusals import refused
from tests.io.stored_files import places_of, stored
from tests.nn.strategies import examples, widths


@settings(examples, max_examples=30)
@given(st.data(), st.sampled_from(sorted(MODELS)), widths, st.sampled_from(["none", "layer", "batch"]), st.booleans())
def test_models_of_ours(data: st.DataObject, name: str, widths: list[int], norm: str, sparse: bool) -> None:
    batch, model = random_batch(data.draw(st.integers(1, 12)), 40, sparse=sparse), random_model(name, widths, norm)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "BLOCK", data.draw(st.sampled_from([1, 60, 10**6])))
        found = stored(model, lambda: random_model(name, widths, norm), Path(folder), data.draw(st.integers(1, 99)))
        torch.testing.assert_close(whole(found, batch), whole(model, batch), rtol=1e-10, atol=1e-10)
        layers = Evaluation("layers", memory=2**30).prepare(found, batch)
        with torch.no_grad():
            torch.testing.assert_close(layers.logits(found), whole(model, batch), rtol=1e-10, atol=1e-10)


THEIRS = {
    "GCN": partial(pyg.GCN, F, 8, 2, C),
    "GraphSAGE": partial(pyg.GraphSAGE, F, 8, 2, C, norm="batch_norm"),
    "GAT": partial(pyg.GAT, F, 8, 2, C),
    "with an LSTM": partial(pyg.GCN, F, 8, 2, C, jk="lstm"),
    "a parameter that is not multiplied": partial(pyg.GIN, F, 8, 2, C, norm="layer_norm"),
}


@pytest.mark.parametrize("name", THEIRS)
def test_models_of_pyg(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor, "BLOCK", 40)
    batch = random_batch()
    model = THEIRS[name]().double().eval()
    found = stored(model, lambda: THEIRS[name]().double(), tmp_path)
    assert not list(found.parameters())
    torch.testing.assert_close(whole(found, batch), whole(model, batch), rtol=1e-10, atol=1e-10)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(F, F), nn.Linear(F, F, bias=False)
        self.up.weight = self.down.weight
        self.register_buffer("twice", self.down.bias.detach())
        self.register_buffer("absent", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x).relu()) + self.twice


@pytest.mark.parametrize("above", [1, None])
def test_tied_parameters_are_one(above: int | None, tmp_path: Path) -> None:
    model, x = Tied(), torch.randn(3, F)
    places = places_of(model, tmp_path)
    assert "up.weight" not in places
    with torch.device("meta"):
        found = stored_model(Tied(), places, above=above)
    assert found.up.weight is found.down.weight
    torch.testing.assert_close(found(x), model(x))


def test_large_tensors_stay_in_the_file(tmp_path: Path) -> None:
    model = GraphSAGE(F, (8, 6), C, norm="batch")
    found = stored(model, lambda: GraphSAGE(F, (8, 6), C, norm="batch"), tmp_path, above=6 * 16 * 4)
    assert [name for name, buffer in found.named_buffers() if isinstance(buffer, StoredTensor)] == [
        "convs.0.weight",
        "convs.1.weight",
    ]
    assert not any(parameter.requires_grad for parameter in found.parameters())
    assert found.state_dict().keys() == model.state_dict().keys()
    assert reading_bytes(found) == 4 * tensor.BLOCK
    assert not found.training


def test_all_of_a_model_is_read_where_nothing_is_to_stay(tmp_path: Path) -> None:
    model = GraphSAGE(F, (8,), C)
    found = stored(model, lambda: GraphSAGE(F, (8,), C), tmp_path, above=None)
    assert all(parameter.requires_grad for parameter in found.parameters())
    assert all(torch.equal(*pair) for pair in zip(found.parameters(), model.parameters(), strict=True))
    assert reading_bytes(found) == 0


def test_a_model_that_is_moved(tmp_path: Path) -> None:
    batch, model = random_batch(), random_model("graphsage", [6])
    found = stored(model.float(), lambda: random_model("graphsage", [6]).float(), tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(whole(found.to("cpu").double(), batch), whole(model.double(), batch))


def test_files_of_another_model(tmp_path: Path) -> None:
    places = places_of(GraphSAGE(F, (8,), C), tmp_path)
    meta = torch.device("meta")
    with meta:
        other, deeper, plain = GraphSAGE(F, (9,), C), GraphSAGE(F, (8, 8), C), nn.Linear(2, 2)
    with refused("'convs.0.weight' is [8, 14] in", "and [9, 14] in the model"):
        stored_model(other, places)
    with refused("do not hold 'convs.0.weight'"):
        stored_model(deeper, {})
    with refused("the files hold 'convs.0.bias', the model does not"):
        stored_model(plain, places)


def test_a_buffer_that_is_not_saved() -> None:
    class Scaled(nn.Module):
        def __init__(self, device: str | None) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(2, device=device), persistent=False)

    assert stored_model(Scaled("cpu"), {}).scale.tolist() == [1, 1]
    with refused("do not hold 'scale'"):
        stored_model(Scaled("meta"), {})
