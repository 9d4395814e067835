"""One fingerprint says whether two runs are the same, and names what differs.

Where a run trains is no part of it.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GAT, SAGEConv

from gistgnn import GIST, Saving, load, load_run
from gistgnn.graphs import CSR, Graph, save_file
from gistgnn.graphs.conversion import convert
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Training
from gistgnn.theta.registry import Store
from tests.helpers.logs import logged
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, state


def graph_with_edge_data(**changes: Any) -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    values = {
        "x": rng.normal(size=(30, 7)) + 2 * (np.arange(7) == y[:, None]),
        "edge_index": rng.integers(0, 30, (2, 150)),
        "y": y,
        "train": np.arange(10),
        "val": np.arange(10, 20),
        "test": np.arange(20, 30),
        "edge_weight": rng.random(150) + 0.5,
        "edge_attr": rng.random((150, 2)),
    }
    return Graph.build(**{**values, **changes})


GRAPH = graph_with_edge_data()


def leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.1)


class Own(nn.Module):
    """A model with a number, a function, a module and a buffer that no parameter's shape shows."""

    scale: Tensor

    def __init__(
        self,
        widths: tuple[int, ...],
        p: float = 0.1,
        act: Any = torch.relu,
        scale: float = 1.0,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.p = p
        self.act = act
        self.norm = nn.LayerNorm(3, elementwise_affine=False) if norm else nn.Identity()
        self.register_buffer("scale", torch.tensor([scale, 1.0]))
        self.conv1 = SAGEConv(7, widths[0])
        self.conv2 = SAGEConv(widths[0], 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.act(self.conv1(x, edge_index)) * self.scale[0]
        return self.norm(self.conv2(functional.dropout(h, self.p, self.training), edge_index))


def enclosing(p: float) -> Callable[[tuple[int, ...]], nn.Module]:
    class Enclosed(Own):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return functional.dropout(super().forward(x, edge_index), p, self.training)

    return Enclosed


def with_slope(slope: float) -> Callable[[Tensor], Tensor]:
    def act(x: Tensor) -> Tensor:
        return functional.leaky_relu(x, slope)

    return act


def gat(widths: tuple[int, ...], heads: int = 2, slope: float = 0.2) -> nn.Module:
    return GAT(7, widths[0], 2, 3, heads=heads, negative_slope=slope)


def fit(build: Any = Own, graph: Graph | Data = GRAPH, **options: Any) -> dict[str, Any]:
    of_gist = {name: options.pop(name) for name in ("store", "seed", "device") if name in options}
    gist = GIST(build, (8,), 2, **of_gist)
    defaults = {"epochs": 12, "local_steps": 2, "lr": 0.05, "evaluate_every": 2, "progress": False}
    return state(gist, gist.fit(graph, **{**defaults, "standardise": False, **options}))


def changed(tensor: Tensor, index: int, by: float = 1.0) -> Tensor:
    other = tensor.clone()
    other.view(-1)[index] += by
    return other


def other_train(graph: Graph) -> Graph:
    """A node of no other set takes part in training."""
    train = graph.train.clone()
    test = graph.test.clone()
    train[25] = True
    test[25] = False
    return replace(graph, train=train, test=test)


def rewired(graph: Graph) -> Graph:
    col = graph.edges.col.clone()
    col[70] = (col[70] + 1) % graph.num_nodes
    return replace(graph, edges=CSR(graph.edges.rowptr, col))


GRAPHS: dict[str, Callable[[Graph], Graph]] = {
    "features": lambda graph: replace(graph, x=torch.randn(graph.x.shape)),
    "features ": lambda graph: replace(graph, x=changed(graph.x, 100)),
    "features  ": lambda graph: replace(graph, x=graph.x[[*range(12), 13, 12, *range(14, 30)]]),
    "labels": lambda graph: replace(graph, y=graph.y.flip(0)),
    "training nodes": other_train,
    "edges": rewired,
    "edge weights": lambda graph: replace(
        graph, edge_weight=changed(graph.edge_data["edge_weight"], 75)
    ),
    "edge weights ": lambda graph: replace(graph, edge_weight=None),
    "edge features": lambda graph: replace(
        graph, edge_attr=changed(graph.edge_data["edge_attr"], 151)
    ),
    "number of nodes": lambda _: graph_with_edge_data(x=np.ones((31, 7)), y=np.arange(31) % 3),
}
# The model of the interrupted run and another one, by what differs.
MODELS: dict[str, tuple[Any, Any]] = {
    "p of the model was 0.1, now 0.9": (Own, partial(Own, p=0.9)),
    "act of the model": (Own, partial(Own, act=functional.elu)),
    "act of the model ": (Own, partial(Own, act=leaky)),
    "act of the model was 'the function <lambda>": (
        partial(Own, act=lambda x: x.relu()),
        partial(Own, act=lambda x: functional.elu(x)),
    ),
    "act of the model was 'the function act": (
        partial(Own, act=with_slope(0.1)),
        partial(Own, act=with_slope(0.3)),
    ),
    "act of the model  ": (
        partial(Own, act=partial(functional.leaky_relu, negative_slope=0.1)),
        partial(Own, act=partial(functional.leaky_relu, negative_slope=0.3)),
    ),
    "class of act was 'ReLU', now 'ELU'": (
        lambda widths: Own(widths, act=nn.ReLU()),
        lambda widths: Own(widths, act=nn.ELU()),
    ),
    "class of norm was 'Identity', now 'LayerNorm'": (Own, partial(Own, norm=True)),
    "values of scale differ": (Own, partial(Own, scale=2.0)),
    "variables of the function around the model": (enclosing(0.1), enclosing(0.5)),
    "out_channels of convs.0 was 4, now 8": (gat, partial(gat, heads=1)),
    "negative_slope of convs.0 was 0.2, now 0.3": (gat, partial(gat, slope=0.3)),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lr was 0.05, now 0.06": {"lr": 0.06},
    "seed was 0, now 1": {"seed": 1},
    "sampler was None": {"sampler": ClusterSampling(4, 2)},
    "loss was None": {"loss": lambda logits, targets: functional.cross_entropy(logits, targets)},
    "inductive was False, now True": {"inductive": True},
    "standardise was False, now True": {"standardise": True},
    "evaluate_every was 2, now 3": {"evaluate_every": 3},
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fingerprint") / "checkpoints"
    fit(callbacks=after(1), saving=Saving(path))
    return path


@pytest.mark.parametrize("part", GRAPHS)
def test_a_run_does_not_resume_on_another_graph(part: str, interrupted: Path) -> None:
    with refused(str(interrupted), "is of another run", f"the graph's {part.strip()} "):
        fit(graph=GRAPHS[part](GRAPH), saving=Saving(interrupted, resume=True))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_does_not_resume_with_other_settings(setting: str, interrupted: Path) -> None:
    with refused("is of another run", setting):
        fit(**SETTINGS[setting], saving=Saving(interrupted, resume=True))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("difference", MODELS)
def test_a_run_does_not_resume_with_another_model(difference: str, tmp_path: Path) -> None:
    build, build_other = MODELS[difference]
    fit(build, callbacks=after(1), saving=Saving(tmp_path / "checkpoints"))
    with refused("is of another run", difference.strip()):
        fit(build_other, saving=Saving(tmp_path / "checkpoints", resume=True))
    assert fit(build, saving=Saving(tmp_path / "checkpoints", resume=True)) == fit(build)


def as_data(graph: Graph) -> Data:
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks, **graph.edge_data)


def test_a_run_resumes_wherever_the_same_graph_and_the_same_model_are(tmp_path: Path) -> None:
    expected = fit()
    save_file(GRAPH, tmp_path / "first.npz")
    save_file(GRAPH, tmp_path / "moved.npz")
    convert(str(tmp_path / "first.npz"), tmp_path / "folder")
    ways: list[dict[str, Any]] = [
        {"graph": load(tmp_path / "first.npz")},
        {"graph": load(tmp_path / "moved.npz")},
        {"graph": load(tmp_path / "folder")},
        {"graph": as_data(GRAPH)},
        {"build": lambda widths: Own(widths)},
        {"build": partial(Own, p=0.1), "runner": "in-turn"},
        {"store": "host"},
        {"store": Store("disk", tmp_path / "theta")},
    ]
    for number, way in enumerate(ways):
        saving = Saving(tmp_path / f"checkpoints-{number}", resume=True)
        fit(callbacks=after(1), saving=saving)
        assert fit(saving=saving, **way) == expected


def test_numbers_that_are_missing_outside_the_splits_do_not_change_a_fingerprint() -> None:
    y = torch.rand(30, 2)
    y[26:] = torch.nan
    graphs = [
        graph_with_edge_data(y=y.clone(), test=np.arange(20, 26), regression=True) for _ in range(2)
    ]
    gist = GIST(Pair, (8,), 1)
    first, second = (gist.fingerprint(graph, Training(epochs=2)) for graph in graphs)
    assert first == second
    graphs[1].y[3, 0] += 1
    second = gist.fingerprint(graphs[1], Training(epochs=2))
    differing = {name for name in first["graph"] if first["graph"][name] != second["graph"][name]}
    assert differing == {"the graph's labels"}


class Pair(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = SAGEConv(7, widths[0])
        self.conv2 = SAGEConv(widths[0], 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class Weighted(nn.Module):
    """A loss with settings of several kinds, none of which is a parameter or a buffer."""

    def __init__(self, powers: list[float], scale: float = 1.0, smoothing: float = 0.0) -> None:
        super().__init__()
        self.powers = powers
        self.scale = torch.tensor(scale)
        self.inner = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.scale * self.inner(logits, targets) ** self.powers[0]


class Share:
    """A metric that adds up what it is given, as those of torchmetrics do."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right: list[float] = []

    def update(self, logits: Tensor, targets: Tensor) -> None:
        self.right += (logits.argmax(dim=1) == targets).float().tolist()

    def compute(self) -> float:
        return sum(self.right) / len(self.right)


def test_losses_with_other_settings_have_other_fingerprints() -> None:
    losses = [Weighted([1.0]), Weighted([2.0]), Weighted([1.0], 2.0), Weighted([1.0], 1.0, 0.1)]
    gist = GIST(Own, (8,), 2)
    names = {
        gist.fingerprint(GRAPH, Training(epochs=2, loss=loss))["settings"]["loss"]
        for loss in (*losses, Weighted([1.0]))
    }
    assert len(names) == len(losses)


def test_a_metric_that_has_scored_a_run_is_the_same_metric() -> None:
    metric = Share()
    gist = GIST(Own, (8,), 2)
    before = gist.fingerprint(GRAPH, Training(epochs=2, metric=metric))
    gist.fit(GRAPH, epochs=2, metric=metric, progress=False)
    assert metric.right
    assert gist.fingerprint(GRAPH, Training(epochs=2, metric=metric)) == before


def test_a_result_is_not_loaded_into_a_model_with_other_layers(tmp_path: Path) -> None:
    def build(widths: tuple[int, ...], **options: Any) -> nn.Module:
        return GCN(7, widths, 3, **{"norm": "layer", "dropout": 0.1, **options})

    gist = GIST(build, (8,), 2)
    folder = gist.fit(GRAPH, epochs=2, progress=False).save(tmp_path / "run")
    assert load_run(folder, build).test
    with refused("norms.0", "'LayerNorm'", "'Identity'"):
        load_run(folder, partial(build, norm="none"))
    with logged() as notes:
        load_run(folder, partial(build, dropout=0.3))
    assert any("dropout of the model was 0.1, now 0.3" in note for note in notes)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["model"])["norm of the model"] == "layer"
