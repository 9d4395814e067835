"""Batches of PyG's loaders, and of lists of `Data`.

They are compared with training on the whole graph and with plain loops.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn
from torch_geometric.data import Batch as PyGBatch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import (
    CachedLoader,
    ClusterData,
    ClusterLoader,
    DataLoader,
    DynamicBatchSampler,
    ImbalancedSampler,
    PrefetchLoader,
    RandomNodeLoader,
)
from torch_geometric.nn import GCN as PyGGCN  # noqa: N811
from torch_geometric.nn import GraphConv
from torch_geometric.transforms import ToSparseTensor

from gistgnn import GIST, Graph, Result, load_run
from gistgnn.baselines import DataParallel, Ensemble, LocalSGD, Parts
from gistgnn.cli.main import main
from gistgnn.errors import InputError
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Standardisation
from gistgnn.sampling import (
    ClusterSampling,
    FromLoader,
    from_description,
    named_sampling,
    whole_graph,
)
from gistgnn.sampling.loaders import BatchReader, Draws, LoaderBatches
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import PLAIN, C, F, tiny_graph
from tests.helpers.refusals import refused

NODES = GRAPH.num_nodes


def data_of(graph: Graph = GRAPH, **fields: Any) -> Data:
    """A graph as PyG's `Data`."""
    masks = {"train_mask": graph.train, "val_mask": graph.val, "test_mask": graph.test}
    return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks, **fields)


def pieces(data: Data, count: int = 4) -> list[Data]:
    """The subgraphs of equally many nodes, in order."""
    return [data.subgraph(nodes) for nodes in torch.arange(data.num_nodes).tensor_split(count)]


DATA = data_of()
PIECES = pieces(DATA)


def trained(
    sampler: Any, m: int = 2, *, seed: int = 1, graph: Any = DATA, **options: Any
) -> dict[str, Tensor]:
    """Θ after a run."""
    gist = GIST(gcn(), (8, 8), m, seed=seed)
    fit(gist, graph, sampler=sampler, **options)
    return theta(gist)


class ClustersOfOurs(ClusterData):
    """PyG's own METIS needs another library; these clusters are ranges of nodes."""

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        return torch.arange(num_nodes) * self.num_parts // num_nodes


class NoLength:
    """Yields batches, and has no length."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("runner", ["in-turn", "auto", "fused"])
@pytest.mark.parametrize("standardise", [True, False])
def test_the_whole_graph_in_a_list_is_the_whole_graph(
    m: int, runner: str, standardise: bool
) -> None:
    options = {"runner": runner, "standardise": standardise}
    assert same(trained([DATA], m, **options), trained(None, m, **options))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: ToSparseTensor()(copy.copy(data)),
        lambda data: data.clone().update({"x": data.x.double(), "y": data.y[:, None]}),
        lambda data: data.clone().update({"x": data.x.to_sparse_csr()}),
        lambda data: PyGBatch.from_data_list([data]),
    ],
    ids=["adj_t", "other types", "sparse", "a batch of one"],
)
def test_other_ways_to_write_the_same_batch_train_alike(change: Callable[[Data], Data]) -> None:
    assert same(trained([change(DATA)]), trained(None))


def test_edges_may_be_in_any_order() -> None:
    mixed = DATA.clone().update({"edge_index": DATA.edge_index[:, torch.randperm(DATA.num_edges)]})
    torch.testing.assert_close(trained([mixed]), trained(None))


@pytest.mark.parametrize("m", [1, 3])
def test_our_clusters_in_a_list_are_our_sampler(m: int) -> None:
    settings = ClusterSampling(6, 2, method="random", precompute=False)
    graph = Graph.from_pyg(DATA)
    batches = []
    for batch in settings.sampler(whole_graph(graph), seed=1).batches(0, 12):
        mask = torch.zeros(len(batch.x), dtype=torch.bool)
        mask[batch.loss_nodes] = True
        batches.append(Data(x=batch.x, edge_index=batch.edge_index, y=batch.y, train_mask=mask))
    options = {"local_steps": 3, "training": "each", "schedule": "cosine"}
    ours = trained(settings, m, epochs=4, **options)
    assert same(trained(batches, m, epochs=1, **options), ours)


def test_sparse_features_stay_sparse() -> None:
    x = torch.zeros(NODES, 200)
    x[torch.arange(NODES), torch.arange(NODES) % 7] = 1.0
    data = DATA.clone().update({"x": x.to_sparse_csr()})
    gists = [GIST(gcn_of(200), (8,), 2) for _ in range(3)]
    for gist, sampler in zip(gists, (None, [data], [DATA.clone().update({"x": x})]), strict=True):
        fit(gist, data, sampler=sampler)
    reader = BatchReader(Graph.from_pyg(data))
    assert reader.read(data).is_csr
    assert same(theta(gists[0]), theta(gists[1]))
    torch.testing.assert_close(theta(gists[2]), theta(gists[0]))


def gcn_of(features: int) -> Callable[[Any], nn.Module]:
    from gistgnn.nn import GCN

    return lambda widths: GCN(features, widths, C)


LOADERS: dict[str, Callable[[], Any]] = {
    "a list": lambda: PIECES,
    "a tuple": lambda: tuple(PIECES),
    "RandomNodeLoader": lambda: RandomNodeLoader(DATA, num_parts=4, shuffle=True),
    "ClusterLoader": lambda: ClusterLoader(
        ClustersOfOurs(DATA, 8, log=False), batch_size=2, shuffle=True
    ),
    "DataLoader": lambda: DataLoader(PIECES, batch_size=2, shuffle=True),
    "DynamicBatchSampler": lambda: DataLoader(
        PIECES, batch_sampler=DynamicBatchSampler(PIECES, max_num=12)
    ),
    "ImbalancedSampler": lambda: DataLoader(
        PIECES, batch_size=2, sampler=ImbalancedSampler(torch.arange(4) % 2, num_samples=8)
    ),
    "CachedLoader": lambda: CachedLoader(DataLoader(PIECES, batch_size=2)),
    "PrefetchLoader": lambda: PrefetchLoader(
        DataLoader(PIECES, batch_size=2), device=torch.device("cpu")
    ),
    "no length": lambda: NoLength(PIECES),
}
each_loader = pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)


@pytest.mark.one_in(3)
@each_loader
def test_every_loader_trains_alike_by_every_runner(make: Callable[[], Any]) -> None:
    """Also in the second epoch and in later rounds."""
    states = [trained(make(), 3, runner=runner) for runner in ("in-turn", "auto", "fused")]
    assert same(states[0], states[1])
    torch.testing.assert_close(states[2], states[0], rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(4)
@each_loader
def test_a_run_is_the_same_again_whatever_the_user_s_generator(make: Callable[[], Any]) -> None:
    first = trained(make())
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    assert same(trained(make()), first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_another_seed_draws_other_batches() -> None:
    def drawn(seed: int) -> list[Tensor]:
        draws = Draws(RandomNodeLoader(DATA, 4, shuffle=True), 4, seed, ())
        return [draws.at(step).x for step in range(4)]

    first = drawn(1)
    assert all(map(torch.equal, first, drawn(1)))
    assert not any(map(torch.equal, first, drawn(2)))


def test_a_resumed_run_has_the_batches_of_an_unbroken_one(tmp_path: Path) -> None:
    class Stop:
        def on_round_end(self, run: Any, loss: float) -> None:
            if run.progress.rounds == 3:
                raise KeyboardInterrupt

    def run(folder: str, resume: bool = False, callbacks: Any = ()) -> dict[str, Tensor]:
        loader = RandomNodeLoader(DATA, num_parts=5, shuffle=True)
        saving = Saving(tmp_path / folder, every=1, resume=resume)
        return trained(loader, saving=saving, callbacks=callbacks)

    unbroken = run("unbroken")
    with pytest.raises(KeyboardInterrupt):
        run("broken", callbacks=[Stop()])
    assert same(run("broken", resume=True), unbroken)


def plain_steps(
    batches: list[Data],
    *,
    weighted: bool = False,
    take: Callable[[Data], Tensor] = lambda data: data.train_mask,
    lr: float = 0.1,
) -> dict[str, Tensor]:
    """A plain loop over batches of PyG, by SGD, from the values with which GIST begins."""
    model = GIST(Weighted, 8, 1, seed=1, width_scaling="none").model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for data in batches:
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.edge_weight)
        nodes = take(data)
        if weighted:
            loss = (nnf.cross_entropy(out, data.y, reduction="none") * data.node_norm)[nodes].sum()
        else:
            loss = nnf.cross_entropy(out[nodes], data.y[nodes])
        loss.backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.state_dict().items()}


class Weighted(nn.Module):
    """A model of PyG's layers that uses edge weights where there are some."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = GraphConv(F, width)
        self.out = GraphConv(width, C)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.out(self.enter(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def steps_of_fit(
    loader: Any, graph: Any, *, epochs: float = 2, standardise: bool = False
) -> dict[str, Tensor]:
    gist = GIST(Weighted, 8, 1, seed=1, width_scaling="none")
    options = {
        **PLAIN,
        "optimizer": "sgd",
        "lr": 0.1,
        "schedule": "constant",
        "epochs": epochs,
        "local_steps": 3,
        "standardise": standardise,
    }
    gist.fit(graph, sampler=loader, progress=False, **options)
    return theta(gist)


def test_steps_are_those_of_a_plain_loop() -> None:
    torch.testing.assert_close(steps_of_fit(PIECES, DATA), plain_steps(2 * PIECES))


def test_edge_weights_reach_the_model() -> None:
    weighted = data_of(edge_weight=torch.rand(GRAPH.num_edges) + 0.5)
    parts = pieces(weighted)
    expected = plain_steps(2 * parts)
    torch.testing.assert_close(steps_of_fit(parts, weighted), expected)
    assert not torch.allclose(
        expected["out.lin_rel.weight"], plain_steps(2 * PIECES)["out.lin_rel.weight"]
    )


def test_features_are_scaled_as_the_graph_s_are() -> None:
    far = DATA.clone().update({"x": 5 * DATA.x + 20})
    scaling = Standardisation.of(Graph.from_pyg(far))
    scaled = [data.clone().update({"x": scaling.features(data.x)}) for data in pieces(far)]
    torch.testing.assert_close(
        steps_of_fit(pieces(far), far, standardise=True), plain_steps(2 * scaled)
    )


def saint_like() -> list[Data]:
    """Batches as those of PyG's GraphSAINT samplers: with `node_norm` and `edge_norm`."""
    weighted = data_of(edge_weight=torch.rand(GRAPH.num_edges) + 0.5)
    batches = pieces(weighted)
    for data in batches:
        data.node_norm = torch.rand(data.num_nodes) / 4
        data.edge_norm = torch.rand(data.num_edges) + 0.5
    return batches


def test_node_norm_weights_losses_and_edge_norm_edges() -> None:
    batches = saint_like()
    weighted = data_of(edge_weight=torch.ones(GRAPH.num_edges))
    expected = [
        data.clone().update({"edge_weight": data.edge_norm * data.edge_weight}) for data in batches
    ]
    torch.testing.assert_close(
        steps_of_fit(batches, weighted), plain_steps(2 * expected, weighted=True)
    )


def neighbor_like(seeds: Tensor) -> Data:
    """A batch as PyG's `NeighborLoader` makes it.

    The output nodes come first, and the edges are those into the nodes of one hop.
    """
    sources, targets = GRAPH.edge_index
    near = sources[torch.isin(targets, seeds)]
    neighbours = near.unique()
    n_id = torch.cat([seeds, neighbours[~torch.isin(neighbours, seeds)]])
    inside = torch.isin(targets, n_id) & torch.isin(sources, n_id)
    position = torch.full((NODES,), -1)
    position[n_id] = torch.arange(len(n_id))
    masks = {"train_mask": GRAPH.train[n_id], "val_mask": GRAPH.val[n_id]}
    edges = position[GRAPH.edge_index[:, inside]]
    facts = {"n_id": n_id, "input_id": torch.arange(len(seeds)), "batch_size": len(seeds)}
    return Data(x=GRAPH.x[n_id], edge_index=edges, y=GRAPH.y[n_id], **masks, **facts)


def test_the_first_nodes_of_a_batch_of_neighbours_train() -> None:
    batches = [neighbor_like(seeds) for seeds in GRAPH.train.nonzero().squeeze(1).split(3)]
    first = [torch.arange(data.num_nodes) < data.batch_size for data in batches]
    assert any(
        bool((data.train_mask & ~mask).any()) for data, mask in zip(batches, first, strict=True)
    )
    chosen = {id(data): mask for data, mask in zip(batches, first, strict=True)}
    expected = plain_steps(2 * batches, take=lambda data: chosen[id(data)])
    torch.testing.assert_close(steps_of_fit(batches, DATA), expected)
    without_masks = [data.clone() for data in batches]
    for data in without_masks:
        del data.train_mask
    torch.testing.assert_close(steps_of_fit(without_masks, DATA), expected)


def test_output_nodes_that_are_no_training_nodes_do_not_train() -> None:
    batches = [neighbor_like(seeds) for seeds in torch.arange(NODES).split(8)]
    chosen = {
        id(data): data.train_mask & (torch.arange(data.num_nodes) < data.batch_size)
        for data in batches
    }
    expected = plain_steps(2 * batches, take=lambda data: chosen[id(data)])
    torch.testing.assert_close(steps_of_fit(batches, DATA), expected)


def test_the_graphs_of_a_batch_are_no_batch_size() -> None:
    """A `Batch` of several `Data` has a property of this name."""
    joined = PyGBatch.from_data_list(PIECES[:2])
    assert joined.batch_size == 2
    reader = BatchReader(Graph.from_pyg(DATA))
    expected = joined.train_mask.nonzero().squeeze(1)
    assert reader.read(joined).loss_nodes.tolist() == expected.tolist()


def test_roots_of_several_subgraphs_train() -> None:
    """The batch is as that of ShaDowKHopSampler: the labels are those of the roots."""
    data = PyGBatch.from_data_list(PIECES[:2])
    roots = torch.tensor([1, 4, 9])
    shadow = data.clone().update({"root_n_id": roots, "y": data.y[roots]})
    batch = BatchReader(Graph.from_pyg(DATA)).read(shadow)
    expected = [node for node in roots.tolist() if data.train_mask[node]]
    assert batch.loss_nodes.tolist() == expected
    assert batch.y[batch.loss_nodes].tolist() == data.y[expected].tolist()


def test_several_labels_numbers_and_two_classes_train_on_a_loader_as_on_the_graph() -> None:
    several = data_of(tiny_graph(multi_label=True))
    assert same(trained([several], graph=several), trained(None, graph=several))
    numbers = DATA.clone().update({"y": DATA.x[:, :C] - DATA.x[:, 1 : C + 1]})
    assert same(
        trained([numbers], graph=numbers, loss="mse"), trained(None, graph=numbers, loss="mse")
    )
    two = DATA.clone().update(
        {"y": torch.where(GRAPH.train | GRAPH.val | GRAPH.test, DATA.y % 2, -1)}
    )
    gists = [GIST(one_output, 8, 2) for _ in range(2)]
    for gist, sampler in zip(gists, (None, [two]), strict=True):
        fit(gist, two, sampler=sampler, loss="binary-cross-entropy")
    assert same(theta(gists[0]), theta(gists[1]))


def one_output(width: int) -> nn.Module:
    return PyGGCN(F, width, 2, 1)


def test_partitioned_inputs_train_on_a_loader_as_on_the_graph() -> None:
    from gistgnn.nn import GCN

    def build(widths: tuple[int, ...]) -> nn.Module:
        return GCN(widths[0], widths[1:], C)

    states = []
    for sampler in (None, [DATA]):
        gist = GIST(build, (F, 8), 2, input_axis=0, seed=1)
        fit(gist, DATA, sampler=sampler)
        states.append(theta(gist))
    assert same(*states)


class Scribbler(nn.Module):
    """Writes into its features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(F, width)
        self.out = nn.Linear(width, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x *= 0.5
        return self.out(self.enter(x).relu())


@pytest.mark.parametrize("build", [Weighted, Scribbler])
@pytest.mark.parametrize("standardise", [True, False])
def test_what_the_loader_hands_out_stays_as_it_is(
    build: Callable[[int], nn.Module], standardise: bool
) -> None:
    before = saint_like()
    batches = copy.deepcopy(before)
    graph = data_of(edge_weight=torch.ones(GRAPH.num_edges))
    fit(GIST(build, 8, 2), graph, sampler=batches, standardise=standardise)
    for one, other in zip(batches, before, strict=True):
        assert list(one.keys()) == list(other.keys())
        assert all(torch.equal(one[name], other[name]) for name in one.keys())  # noqa: SIM118


class Watched:
    """Yields copies of batches, and counts those that are alive."""

    def __init__(self) -> None:
        self.alive: list[int] = []

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Data]:
        import weakref

        for data in PIECES:
            new = data.clone()
            self.refs = [ref for ref in getattr(self, "refs", []) if ref() is not None]
            self.refs.append(weakref.ref(new))
            self.alive.append(len(self.refs))
            yield new
            del new


@pytest.mark.parametrize(("runner", "most"), [("auto", 2), ("in-turn", 5)])
def test_batches_are_kept_for_a_round_at_most(runner: str, most: int) -> None:
    loader = Watched()
    trained(loader, 3, runner=runner, epochs=12, local_steps=4)
    assert max(loader.alive) <= most


@pytest.mark.parametrize("method", [LocalSGD, DataParallel])
def test_every_worker_draws_batches_of_its_own(method: Any) -> None:
    loader = RandomNodeLoader(DATA, num_parts=4, shuffle=True)
    result = method(gcn(), (8,), 2).fit(DATA, sampler=loader, epochs=4, progress=False)
    assert result.config["sampler"]["batches"] == "independent"
    sampling = FromLoader(loader, batches="independent")
    batches = LoaderBatches(sampling, BatchReader(Graph.from_pyg(DATA)), 0)
    first, second = (next(batches.for_sub_gcn(i).batches(0, 1)) for i in range(2))
    assert not torch.equal(first.x, second.x)
    assert torch.equal(next(batches.for_sub_gcn(1).batches(0, 1)).x, second.x)
    with refused("the list gives every worker the same batches", "shuffle"):
        method(gcn(), (8,), 2).fit(DATA, sampler=PIECES, epochs=4, progress=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", [Parts, Ensemble])
@pytest.mark.parametrize("make", [LOADERS["a list"], LOADERS["RandomNodeLoader"]])
def test_parts_train_on_a_loader(method: Any, make: Callable[[], Any]) -> None:
    scores = [
        method(gcn(), (8, 8), 2).fit(DATA, sampler=make(), epochs=4, progress=False).test
        for _ in range(2)
    ]
    assert scores[0] == scores[1]


def test_a_budget_trains_on_a_loader() -> None:
    gist = GIST(gcn(), (256, 256), 2)
    result = gist.fit(DATA, sampler=LOADERS["RandomNodeLoader"](), budget=1.5, progress=False)
    assert result.progress.steps > 0
    assert result.config["sampler"]["class"] == "RandomNodeLoader"


def test_a_result_names_the_loader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result: Result = fit(
        GIST(gcn(), (8, 8), 2), DATA, sampler=RandomNodeLoader(DATA, num_parts=4, shuffle=True)
    )
    result.save(tmp_path / "run")
    record = json.loads((tmp_path / "run/result.json").read_text())
    sampler = record["config"]["sampler"]
    expected = {
        "name": "loader",
        "batches": "shared",
        "class": "RandomNodeLoader",
        "steps_per_epoch": 4,
    }
    assert expected.items() <= sampler.items()
    assert sampler["num_parts"] == 4
    assert sampler["order"] == "RandomSampler"
    assert "num_workers" not in sampler
    assert record["fingerprint"]["settings"]["sampler"] == sampler
    assert load_run(tmp_path / "run", gcn()).test == result.test
    assert main(["list", str(tmp_path)]) == 0
    assert "run" in capsys.readouterr().out
    assert (tmp_path / "run/report.html").exists()
    with refused("those of a RandomNodeLoader", "GIST.fit"):
        from_description(sampler)


def without(*names: str, **fields: Any) -> list[Data]:
    data = DATA.clone().update(fields)
    for name in names:
        del data[name]
    return [data]


BAD: list[tuple[Any, str]] = [
    (iter(PIECES), "sampler is a list_iterator, which yields its batches once"),
    ((data for data in PIECES), "sampler is a generator, which yields its batches once"),
    (DATA, "sampler is a Data; expected a loader, or a list of the Data to train on: [data]"),
    ({"a": DATA}, "sampler is a dict; expected a loader"),
    ([], "the list has no batch"),
    (NoLength([]), "the NoLength has no batch"),
    ([3], "the loader's batch of step 0: it is 3; expected a torch_geometric.data.Data"),
    ([[DATA]], "expected a torch_geometric.data.Data"),
    ([HeteroData()], "it is a HeteroData"),
    (without("x"), "it has no x"),
    (without("y"), "it has no y"),
    (without("edge_index"), "it has neither edge_index nor adj_t"),
    (without("train_mask"), "it has neither train_mask nor batch_size"),
    (without(x=DATA.x[:, :3]), f"x has shape [{NODES}, 3]; expected [nodes, {F}]"),
    (without(y=DATA.y[:3]), f"y has 3 rows and x has {NODES}"),
    (without(y=DATA.y + C), "expected labels below num_classes"),
    (without(y=torch.zeros(NODES, 2)), "y has 2 columns; expected 1"),
    (without(y=torch.full((NODES,), -1)), "training nodes have no label"),
    (without(edge_index=DATA.edge_index + 1), f"expected node numbers from 0 to {NODES - 1}"),
    (without(edge_weight=torch.ones(DATA.num_edges)), "it has edge_weight, and the graph has none"),
    (without(edge_label_index=DATA.edge_index), "it has edge_label_index, so it is of links"),
    (without(train_mask=torch.arange(3)), "train_mask is of torch.int64; expected a mask of bools"),
    (without(train_mask=torch.ones(3, dtype=torch.bool)), "train_mask is a mask of length 3"),
    (without(node_norm=torch.ones(3)), f"node_norm has 3 numbers; expected {NODES}"),
    (without(train_mask=torch.zeros(NODES, dtype=torch.bool)), "1 batches without a training node"),
    (
        2 * without(train_mask=torch.zeros(NODES, dtype=torch.bool)),
        "2 batches without a training node",
    ),
    (PIECES[:1] + without("x"), "the loader's batch of step 1: it has no x"),
    (DataLoader, "sampler is <class"),
]


@pytest.mark.parametrize(("loader", "message"), BAD, ids=[message for _, message in BAD])
def test_batches_that_cannot_be_trained_on_are_refused(loader: Any, message: str) -> None:
    with refused(message):
        trained(loader)


def test_edge_data_of_the_graph_alone_are_refused() -> None:
    with refused("it has no edge_weight, and the graph has some"):
        trained([DATA], graph=data_of(edge_weight=torch.ones(GRAPH.num_edges)))


def test_batches_without_training_nodes_may_come_by_chance() -> None:
    empty = DATA.clone().update({"train_mask": torch.zeros(NODES, dtype=torch.bool)})
    state = trained([empty, DATA, empty, empty], 3, runner="in-turn")
    assert all(tensor.isfinite().all() for tensor in state.values())
    with refused("20 batches without a training node"):
        trained(NoLength([empty]), epochs=40)


def test_other_settings_that_contradict_are_refused() -> None:
    with refused("inductive is True, but the loader decides", "data.subgraph(data.train_mask)"):
        trained(PIECES, inductive=True)
    with refused("the graph is a HeteroData", "from_hetero"):
        trained(PIECES, graph=HeteroData())
    sampling = named_sampling(PIECES)
    assert isinstance(sampling, FromLoader)
    with refused("in a loop of your own, iterate over it"):
        sampling.sampler(whole_graph(GRAPH), 0)


def test_a_batch_may_have_one_node_and_no_edges() -> None:
    alone = [DATA.subgraph(torch.tensor([node])) for node in GRAPH.train.nonzero().squeeze(1)]
    assert all(data.num_edges == 0 for data in alone)
    state = trained(alone, runner="in-turn")
    assert all(tensor.isfinite().all() for tensor in state.values())


def test_a_loader_that_ends_early_begins_anew() -> None:
    class TooLong(NoLength):
        def __len__(self) -> int:
            return 9

    draws = Draws(TooLong(PIECES), 9, 0, ())
    assert [draws.at(step) is PIECES[step % 4] for step in range(9)] == [True] * 9

    class NothingLater(NoLength):
        def __iter__(self) -> Iterator[Any]:
            batches = self.batches
            self.batches = []
            return iter(batches)

    draws = Draws(NothingLater(PIECES), 4, 0, ())
    with pytest.raises(InputError, match="has yielded no batch in an epoch"):
        list(map(draws.at, range(5)))
