import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import Batch, ClusterBatches, ClusterSampling, FullGraph, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain
from tests.helpers.logs import logged
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import fit, make, state

GRAPH = tiny_graph()


def thetas(sampler: ClusterSampling | None, **options: Any) -> dict[str, Tensor]:
    gist = GIST(lambda w: OURS["gcn"](w), (8, 7), 2)
    gist.fit(GRAPH, sampler=sampler, progress=False, **{"epochs": 8, "local_steps": 2, **options})
    return gist.theta.copy()


def test_all_clusters_in_one_batch_train_as_the_whole_graph_does() -> None:
    by_clusters, whole = thetas(ClusterSampling(5, 5, "random"), lr=0.01), thetas(None, lr=0.01)
    for name, tensor in whole.items():
        torch.testing.assert_close(by_clusters[name], tensor, rtol=1e-3, atol=1e-4)


def test_an_epoch_takes_as_many_steps_as_there_are_batches() -> None:
    result = fit(make(1), sampler=ClusterSampling(7, 2, "random"), epochs=3, local_steps=4)
    assert result.progress.steps == 3 * 4
    assert result.progress.rounds == 3
    assert [entry["epoch"] for entry in result.history] == [2, 3]  # evaluated every second round, and at the end


def unlabelled(batch: Batch) -> Batch:
    return Batch(batch.x, batch.edges, batch.y, batch.loss_nodes[:0])


def test_a_step_without_training_nodes_changes_nothing() -> None:
    labelled, training = whole_graph(GRAPH), Training(1, weight_decay=0.1)

    def trained(batches: list[Batch]) -> tuple[list[list[float]], Any, Any]:
        torch.manual_seed(0)
        model = OURS["gcn"]((6,)).train()
        optimizer = training.make_optimizer(model.parameters())
        loss = subtrain(model, optimizer, batches, training, lambda k: 0.1)
        counted = [float(s["step"]) for s in optimizer.state.values()]
        return [t.tolist() for t in named_tensors(model).values()], loss, counted

    without = unlabelled(labelled)
    assert trained([without, labelled, without, labelled]) == trained([labelled, labelled])
    values, loss, counted = trained([without, without])
    assert loss is None
    assert counted == []
    assert values == trained([])[0]


def test_a_round_without_training_nodes() -> None:
    gist = make()
    before = gist.theta.copy()
    round_ = gist.begin_round()
    sampler = FullGraph(unlabelled(whole_graph(GRAPH)))
    assert not InTurn()(round_, sampler, Training(9), StepRange(0, 3, 9), seed=0)
    round_.aggregate()
    assert all(torch.equal(tensor, before[name]) for name, tensor in gist.theta.tensors.items())


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gistgnn-prefetch"]


def test_an_error_in_a_step_ends_the_thread() -> None:
    gist = make()
    round_ = gist.begin_round()
    failing = Training(900, clip_norm=1.0)
    clusters = cluster(GRAPH.edge_index, 24, 6, "random")
    sampler = ClusterBatches(whole_graph(GRAPH), clusters, 2)
    round_.subs[1].forward = lambda x, adj: 1 / 0  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ZeroDivisionError):
        InTurn()(round_, sampler, failing, StepRange(0, 100, 900), seed=0)
    assert at_work() == []


def test_the_seed_decides_and_nothing_else() -> None:
    sampler = ClusterSampling(6, 2)
    first = make(seed=4)
    expected = state(first, fit(first, sampler=sampler))
    torch.manual_seed(99)
    again, other = make(seed=4), make(seed=5)
    assert state(again, fit(again, sampler=sampler)) == expected
    assert state(other, fit(other, sampler=sampler)) != expected
    own = make(seed=4)
    assert state(own, fit(own, sampler=ClusterSampling(6, 2, batches="independent"))) != expected


def test_more_clusters_than_nodes() -> None:
    with refused("clusters is 25", "from 1 to 24"):
        fit(make(), sampler=ClusterSampling(25, 2))


def test_clustering_is_logged_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with logged() as notes:
        make().fit(GRAPH, progress=False, epochs=2, sampler=ClusterSampling(6, 2))
    assert "METIS cuts 24 nodes" in notes[0]
    assert capsys.readouterr().out == ""
