"""Algorithm 1: what it is at m = 1, by hand, and from a seed."""

from typing import Any

import pytest
import torch
from torch import nn

from gistgnn import GIST
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN, Adjacency
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Training
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same, theta
from tests.helpers.models import USERS, C, F, tiny_graph

# Algorithm 1 at m = 1 is ordinary training.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "step"},
        {"schedule": "cosine", "clip_norm": 0.05},
        {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1, "weight_decay": 0.01},
        {"optimizer": "adamw", "weight_decay": 0.1, "optimizer_state": "carry"},
    ],
)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_one_sub_gcn_is_a_plain_loop_bit_for_bit(options: dict[str, Any], norm: str) -> None:
    gist = GIST(gcn(norm=norm), (8, 7), 1, seed=4)
    model, epochs = gist.model().train(), 13
    training = Training(epochs, **options)
    optimizer = training.make_optimizer(model.parameters())
    adj = Adjacency(GRAPH.edge_index, GRAPH.num_nodes, GRAPH.x.dtype)
    for step in range(epochs):
        optimizer.param_groups[0]["lr"] = training.rate_at(step, epochs)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(GRAPH.x, adj)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
        if training.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimizer.step()
    fit(gist, epochs=epochs, local_steps=4, **options)
    assert same(theta(gist), {n: t.detach() for n, t in named_tensors(model).items()})


@pytest.mark.parametrize("case", ["gcn", "input", "shared", "pyg"])
def test_rounds_by_hand_are_fit(case: str) -> None:
    builds: dict[str, tuple[Any, Any, int | None]] = {
        "gcn": (gcn(), (8, 7), None),
        "input": (lambda w: GCN(w[0], w[1:], C), (F, 8), 0),
        "shared": (USERS["residual"][0], 8, None),
        "pyg": (USERS["pyg sage stack"][0], (8, 7), None),
    }
    build, widths, input_axis = builds[case]
    fitted, own = (GIST(build, widths, 3, input_axis=input_axis, seed=2) for _ in range(2))
    fit(fitted, epochs=18, local_steps=2, lr=0.02)  # six steps each: three rounds
    adj = Adjacency(GRAPH.edge_index, GRAPH.num_nodes, GRAPH.x.dtype)
    adj.cache_products(GRAPH.x)
    for round_ in own.rounds(3):
        for i, sub in enumerate(round_):
            columns = round_.input_columns(i)
            x = GRAPH.x if columns is None else GRAPH.x[:, columns]
            optimizer = torch.optim.Adam(sub.parameters(), lr=0.02, fused=True)
            for _ in range(2):
                optimizer.zero_grad()
                out = sub(x, adj if isinstance(sub, GCN) else GRAPH.edge_index)
                nn.functional.cross_entropy(out[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
                optimizer.step()
    assert same(theta(fitted), theta(own))


# The result follows from the seed.


@pytest.mark.parametrize(("m", "sampler"), [(1, None), (3, None), (3, ClusterSampling(6, 2))])
def test_the_seed_decides_everything(m: int, sampler: ClusterSampling | None) -> None:
    runs = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        gist = GIST(gcn(dropout=0.5, norm="batch"), (8, 7), m, seed=seed)
        result = fit(gist, sampler=sampler)
        runs.append((theta(gist), quiet(result.progress.history)))
    assert same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert not same(runs[0][0], runs[2][0])


def test_fit_again_starts_anew() -> None:
    gist = GIST(gcn(dropout=0.3), (8, 7), 2)
    first = fit(gist)
    before = theta(gist)
    second = fit(gist)
    assert same(before, theta(gist))
    assert quiet(first.progress.history) == quiet(second.progress.history)
    list(gist.rounds(1))
    fit(gist)
    assert same(before, theta(gist))


def test_the_users_random_stream_does_not_move() -> None:
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    gist = GIST(gcn(dropout=0.3), (8, 7), 2)
    for work in (gist.model, lambda: fit(gist), lambda: list(gist.rounds(3))):
        work()
        assert torch.equal(torch.random.get_rng_state(), before)


def test_m_the_epochs_and_the_batches_suit_the_graph() -> None:
    for nodes, m, epochs in ((24, 4, 400), (10_001, 1, 100)):
        gist = GIST(gcn(), (8, 7))
        result = gist.fit(tiny_graph(nodes), progress=False, callbacks=[InterruptWhen(lambda: True)])
        assert (gist.sub_gcns, result.config["training"]["epochs"]) == (m, epochs)
        assert (result.batches is None) == (nodes == 24)
        given = GIST(gcn(), (8, 7), 2)
        given.fit(tiny_graph(nodes), epochs=1, progress=False)
        assert given.sub_gcns == 2
