"""Recorded steps are the same as steps one by one.

The GPU is a pretended one; tests/cuda tries a real one.
"""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.graphs import Graph
from gistgnn.nn import MODELS
from gistgnn.runners.fused import Fused
from gistgnn.runners.recorded import STEPS_BEFORE, FixedBatch
from gistgnn.sampling import Batch, ClusterSampling, FullGraph, Sampler, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import MeanLoss, loss_of
from tests.helpers.models import tiny_graph
from tests.helpers.pretended_gpu import Recording, pretended_gpu


def without_loops(graph: Graph) -> Graph:
    source, target = graph.edges.edge_index()
    edge_index = torch.stack([source, target])[:, source != target]
    masks = {"train": graph.train, "val": graph.val, "test": graph.test}
    return Graph.build(graph.x, edge_index, graph.y, **masks, num_classes=graph.num_classes)


GRAPH = without_loops(tiny_graph(48))
ROUNDS = 3
ZETA = 4
SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "lr": 0.05}


def model(name: str, widths: Any, **options: Any) -> nn.Module:
    return MODELS[name](
        GRAPH.num_features, widths, GRAPH.num_classes, **{"norm": "layer", **options}
    )


def sampler_of(kind: str, device: str) -> Sampler:
    full_batch = whole_graph(GRAPH.to(torch.device(device)))
    if kind == "full":
        return FullGraph(full_batch)
    return ClusterSampling(12, 4, "random", precompute=kind == "precomputed").sampler(full_batch, 0)


def trained(
    name: str,
    kind: str,
    device: str,
    m: int,
    *,
    dropout: float = 0.0,
    resumed: bool = False,
    **options: Any,
) -> dict[str, Tensor]:
    """Train some rounds by the fused runner; return Θ and its moments on the host.

    `resumed`: every round has a runner and a sampler of its own, as after a run is resumed.
    """
    gist = GIST(
        lambda widths: model(name, widths, dropout=dropout),
        (16, 16),
        m,
        device=device,
        width_scaling="none",
    )
    run = Fused()
    training = Training(9, **{**SGD, **options})
    sampler = sampler_of(kind, device)
    for number in range(ROUNDS):
        if resumed:
            run = Fused()
            sampler = sampler_of(kind, device)
        round_ = gist.begin_round()
        round_.keeps_moments = training.keeps_moments
        losses = run(round_, sampler, training, StepRange(number * ZETA, ZETA, ROUNDS * ZETA), 0)
        assert sorted(losses) == list(range(m))
        round_.aggregate(losses)
    storage = gist.theta.place
    return {name: tensor.cpu() for name, tensor in (storage.tensors | storage.moments).items()}


def agree(name: str, kind: str, m: int, **options: Any) -> None:
    expected = trained(name, kind, "cpu", m, **options)
    Recording.made = 0
    with pretended_gpu():
        actual = trained(name, kind, "cuda:0", m, **options)
    assert Recording.made >= 1
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(
            actual[key], tensor, rtol=1e-3, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["full", "batches", "precomputed"])
@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat", "gatv2", "gin"])
def test_recorded_steps_are_those_one_by_one(name: str, kind: str) -> None:
    agree(name, kind, 2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adamw", "momentum": 0.0, "lr": 1e-4, "weight_decay": 0.1},
        {"optimizer_state": "reset"},
        {"schedule": "step"},
        {"clip_norm": 0.1},
    ],
    ids=str,
)
def test_settings_hold_in_recorded_steps(options: dict[str, Any]) -> None:
    agree("graphsage", "batches", 2, **options)


@pytest.mark.parametrize("m", [1, 3, 4])
def test_one_sub_gcn_and_blocks_of_several_sizes_are_recorded(m: int) -> None:
    agree("graphsage", "precomputed", m)


@pytest.mark.parametrize("kind", ["full", "batches", "precomputed"])
def test_a_runner_that_is_gone_leaves_no_memory_on_the_gpu(kind: str) -> None:
    """Memory on a GPU must not wait until Python looks for cycles of references."""
    training = Training(1, **SGD)
    gc.disable()
    try:
        with pretended_gpu():
            gist = GIST(lambda widths: model("graphsage", widths), (16, 16), 2, device="cuda:0")
            run = Fused()
            # So few steps that the pretended recording, which keeps its function, is not made.
            steps = StepRange(0, STEPS_BEFORE - 1, ZETA)
            run(gist.begin_round(), sampler_of(kind, "cuda:0"), training, steps, 0)
            [group] = run._groups
            assert group.is_recorded
            reference = weakref.ref(group)
            del run, group
            assert reference() is None
    finally:
        gc.enable()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["full", "batches", "precomputed"])
@pytest.mark.parametrize("name", ["graphsage", "gat"])
def test_dropout_does_not_depend_on_what_is_recorded(name: str, kind: str) -> None:
    """A run that was resumed in every round, and so records nothing anew, is the unbroken one."""
    with pretended_gpu():
        unbroken, resumed = (
            trained(name, kind, "cuda:0", 2, dropout=0.5, resumed=is_resumed)
            for is_resumed in (False, True)
        )
    for key, tensor in unbroken.items():
        torch.testing.assert_close(resumed[key], tensor, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat", "gatv2", "gin"])
@pytest.mark.parametrize("spare", [(2, 0), (2, 9), (7, 0), (40, 500)])
def test_spare_nodes_and_edges_change_nothing(name: str, spare: tuple[int, int]) -> None:
    """Neither the loss nor its gradients."""
    batch = next(iter(sampler_of("batches", "cpu").batches(0, 1)))
    fixed = FixedBatch(batch, len(batch.x) + spare[0], batch.adj.num_edges + spare[1])
    fixed.copy(batch)
    torch.manual_seed(0)
    net = model(name, (8, 8))
    actual = gradients(net, fixed.batch())
    expected = gradients(net, batch)
    assert fixed.batch().adj.num_edges == batch.adj.num_edges + spare[1]
    for tensor, expected_tensor in zip(actual, expected, strict=True):
        torch.testing.assert_close(tensor, expected_tensor, rtol=1e-4, atol=1e-6)


def gradients(net: nn.Module, batch: Batch) -> list[Tensor]:
    loss = loss_of(net(batch.x, batch.adj)[batch.loss_nodes], batch)
    return [loss.detach(), *torch.autograd.grad(loss, list(net.parameters()))]


def steps_of(batches: list[Batch], net: nn.Module, training: Training) -> int:
    """Train on these batches by a runner with one sub-GCN; return how often steps were recorded."""

    class These(FullGraph):
        def batches(self, first_step: int, steps: int) -> Any:
            yield from batches

    Recording.made = 0
    gist = GIST(lambda widths: net_like(net, widths), 16, 1, device="cuda:0", width_scaling="none")
    Fused()(gist.begin_round(), These(batches[0]), training, StepRange(0, len(batches), 99), 0)
    return Recording.made


def net_like(net: nn.Module, width: int) -> nn.Module:
    return model("graphsage", (width,), norm=net.norm)


def test_all_batches_of_clusters_fit_the_largest_one_that_is_announced() -> None:
    """Also those of later epochs, which have other clusters.

    With self-loops no batch is recorded.
    """
    with pretended_gpu():
        sampler = sampler_of("batches", "cuda:0")
        assert sampler.largest_batch is not None
        nodes, edges = sampler.largest_batch
        batches = list(sampler.batches(0, 30))
        assert max(len(batch.x) for batch in batches) <= nodes
        assert sum(batch.adj.num_edges <= edges for batch in batches) > 20
        looped = whole_graph(tiny_graph(48).to(torch.device("cuda:0")))
        assert ClusterSampling(12, 4, "random").sampler(looped, 0).largest_batch is None


def test_larger_batches_than_foreseen_train_without_a_recording() -> None:
    """Θ is the same."""

    def trained_with(largest: tuple[int, int] | None) -> dict[str, Tensor]:
        sampler = sampler_of("batches", "cuda:0")
        sampler.largest_batch = largest
        gist = GIST(
            lambda widths: model("gcn", widths), (16, 16), 2, device="cuda:0", width_scaling="none"
        )
        round_ = gist.begin_round()
        round_.aggregate(Fused()(round_, sampler, Training(9, **SGD), StepRange(0, 9, 99), 0))
        return {name: tensor.cpu() for name, tensor in gist.theta.place.tensors.items()}

    with pretended_gpu():
        foreseen = sampler_of("batches", "cuda:0").largest_batch
        expected = trained_with(foreseen)
        for largest in (None, (3, 3), (foreseen[0], 35)):
            for name, tensor in trained_with(largest).items():
                torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)


def test_spare_nodes_change_nothing_where_nodes_have_several_labels() -> None:
    """Their loss is the binary cross-entropy."""
    graph = without_loops(tiny_graph(48, multi_label=True))
    batch = whole_graph(graph)
    batch.adj.pattern.loops = 0
    fixed = FixedBatch(batch, len(batch.x) + 5, batch.adj.num_edges + 7)
    fixed.copy(batch)
    net = MODELS["gcn"](graph.num_features, (8,), graph.num_classes, norm="layer")
    for tensor, expected in zip(gradients(net, fixed.batch()), gradients(net, batch), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-6)


def test_the_mean_loss_is_of_values_not_of_a_tensor_that_is_written_again() -> None:
    losses = MeanLoss()
    loss = torch.zeros(2, dtype=torch.float64)
    for value in (1.0, 2.0, 6.0):
        losses.add(loss.fill_(value))
    assert losses.mean is not None
    assert losses.mean.tolist() == [3.0, 3.0]


def test_what_depends_on_all_nodes_or_on_the_host_is_not_recorded() -> None:
    with pretended_gpu():
        batch = whole_graph(GRAPH.to(torch.device("cuda:0")))
        batches = [batch] * (STEPS_BEFORE + 4)
        plain = Training(9, **SGD)
        assert steps_of(batches, model("graphsage", (16,)), plain) == 1
        assert steps_of(batches, model("graphsage", (16,), norm="batch"), plain) == 0
        assert steps_of(batches, model("graphsage", (16,), norm="whole"), plain) == 0
        scheduler = torch.optim.lr_scheduler.OneCycleLR
        scheduled = Training(
            9, **SGD, schedule=lambda optimizer, total_steps: scheduler(optimizer, 0.1, total_steps)
        )
        assert steps_of(batches, model("graphsage", (16,)), scheduled) == 0
