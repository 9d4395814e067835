"""Algorithm 1: what it is at m = 1, by hand, and from a seed; its rounds."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, DivergedError, InputError
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN, Adjacency
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Training
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same, theta
from tests.helpers.models import OURS, PLAIN, USERS, C, F, tiny_graph

ADJ = Adjacency(GRAPH.edge_index, GRAPH.num_nodes, GRAPH.x.dtype)

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
    gist = GIST(gcn(norm=norm), (8, 7), 1, seed=4, width_scaling="none")
    model = gist.model().train()
    epochs = 13
    plain = {name: value for name, value in PLAIN.items() if name != "standardise"}
    training = Training(epochs, **{**plain, **options})
    optimizer = training.make_optimizer(model.parameters())
    for step in range(epochs):
        optimizer.param_groups[0]["lr"] = training.rate_at(step, epochs)
        optimizer.zero_grad()
        out = model(GRAPH.x, ADJ)[GRAPH.train]
        nn.functional.cross_entropy(out, GRAPH.y[GRAPH.train]).backward()
        if training.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimizer.step()
    fit(gist, epochs=epochs, local_steps=4, **options)
    assert same(theta(gist), {n: t.detach() for n, t in named_tensors(model).items()})


@pytest.mark.parametrize(
    ("build", "widths", "input_axis"),
    [
        (gcn(), (8, 7), None),
        (lambda w: GCN(w[0], w[1:], C), (F, 8), 0),
        (USERS["residual"][0], 8, None),
        (USERS["pyg sage stack"][0], (8, 7), None),
    ],
)
def test_rounds_by_hand_train_what_fit_trains(
    build: Any, widths: Any, input_axis: int | None
) -> None:
    fitted, by_hand = (GIST(build, widths, 3, input_axis=input_axis, seed=2) for _ in range(2))
    fit(fitted, epochs=18, local_steps=2, lr=0.02)  # Each takes six steps, in three rounds.
    adj = Adjacency(GRAPH.edge_index, GRAPH.num_nodes, GRAPH.x.dtype)
    adj.cache_products(GRAPH.x)
    for round_ in by_hand.rounds(3):
        for i, sub in enumerate(round_):
            columns = round_.input_columns(i)
            x = GRAPH.x if columns is None else GRAPH.x[:, columns]
            optimizer = torch.optim.Adam(by_hand.parameter_groups(sub, lr=0.02), fused=True)
            for _ in range(2):
                optimizer.zero_grad()
                out = sub(x, adj if isinstance(sub, GCN) else GRAPH.edge_index)
                nn.functional.cross_entropy(out[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
                optimizer.step()
    assert same(theta(fitted), theta(by_hand))


# The result follows from the seed.


@pytest.mark.parametrize(("m", "sampler"), [(1, None), (3, None), (3, ClusterSampling(6, 2))])
def test_the_seed_decides_everything(m: int, sampler: ClusterSampling | None) -> None:
    def run(seed: int, noise: int) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        torch.manual_seed(noise)
        gist = GIST(gcn(dropout=0.5, norm="batch"), (8, 7), m, seed=seed)
        result = fit(gist, sampler=sampler)
        return theta(gist), quiet(result.progress.history)

    expected, history = run(seed=0, noise=1)
    with_other_noise, history_with_other_noise = run(seed=0, noise=2)
    with_other_seed, _ = run(seed=1, noise=1)
    assert same(with_other_noise, expected)
    assert history_with_other_noise == history
    assert not same(with_other_seed, expected)


def test_the_users_random_stream_does_not_move() -> None:
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    gist = GIST(gcn(dropout=0.3), (8, 7), 2)
    for work in (gist.model, lambda: fit(gist), lambda: list(gist.rounds(3))):
        work()
        assert torch.equal(torch.random.get_rng_state(), before)


def test_m_the_epochs_and_the_batches_suit_the_graph_and_the_width() -> None:
    for nodes, width, expected_m in ((24, 7, 1), (2_001, 7, 1), (24, 1024, 2)):
        gist = GIST(gcn(), (width, 7))
        result = gist.fit(
            tiny_graph(nodes), progress=False, callbacks=[InterruptWhen(lambda: True)]
        )
        assert gist.sub_gcns == expected_m
        assert result.config["training"]["epochs"] == 100 * expected_m
        assert (result.batches is None) == (nodes == 24)
        with_two = GIST(gcn(), (8, 7), 2)
        with_two.fit(tiny_graph(nodes), epochs=1, progress=False)
        assert with_two.sub_gcns == 2


# The rounds of a loop by hand.


def make() -> GIST:
    return GIST(OURS["gcn"], (8, 7), 3)


def train(
    sub: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2, x: Tensor = GRAPH.x
) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(sub(x, ADJ)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
        optimizer.step()


def adam(sub: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(sub.parameters(), lr=0.05)


def test_a_round_gives_plain_modules_and_leaving_it_aggregates() -> None:
    gist = make()
    before = gist.theta.copy()
    for round_ in gist.rounds(1):
        assert len(round_) == len(list(round_)) == 3
        for blocks, sub in zip(round_.blocks, round_, strict=True):
            assert type(sub) is GCN
            assert sub.training
            assert named_tensors(sub)["convs.1.weight"].shape == (len(blocks[1]), len(blocks[0]))
            train(sub, adam(sub))
        assert same(theta(gist), before)
    assert not same(theta(gist), before)
    for blocks, sub in zip(round_.blocks, round_, strict=True):
        new = gist.theta.place.tensors["convs.1.weight"][blocks[1]][:, blocks[0]]
        assert torch.equal(new, named_tensors(sub)["convs.1.weight"])
    shared = torch.stack([named_tensors(sub)["convs.2.bias"] for sub in round_]).mean(0)
    torch.testing.assert_close(gist.theta.place.tensors["convs.2.bias"], shared.detach())


def test_a_new_round_starts_without_gradients() -> None:
    """Modules are used again; what a broken-off round left in them must not reach the next."""
    gist = GIST(OURS["gcn"], (8, 6), 2)
    for round_ in gist.rounds(1):
        for sub in round_:
            train(sub, adam(sub))
    for round_ in gist.rounds(1):
        assert all(p.grad is None for sub in round_ for p in sub.parameters())


DIVERGED = ("round 3", "'convs.1.bias'", "sub-GCN 1", "learning rate")


@pytest.mark.parametrize(
    ("failure", "error", "messages"),
    [
        ("error", KeyError, ()),
        ("one without carry", InputError, ("sub-GCN 1", "all or none")),
        ("nan", DivergedError, DIVERGED),
        ("inf", DivergedError, DIVERGED),
    ],
)
def test_a_round_that_fails_changes_nothing(
    failure: str, error: type[Exception], messages: tuple[str, ...]
) -> None:
    gist = make()
    list(gist.rounds(2))
    before = gist.theta.copy()

    def fail() -> None:
        for round_ in gist.rounds(1):
            for i, sub in enumerate(round_):
                optimizer = adam(sub)
                if failure == "one without carry" and i != 1:
                    round_.carry(i, optimizer)
                train(sub, optimizer)
                if failure == "error":
                    raise KeyError
            if error is DivergedError:
                with torch.no_grad():
                    named_tensors(round_.subs[1])["convs.1.bias"][0] = float(failure)

    with pytest.raises(error) as caught:
        fail()
    assert all(part in str(caught.value) for part in messages)
    assert same(theta(gist), before)


@pytest.mark.parametrize("trained", [0, 1])
def test_carry_where_only_one_sub_gcn_took_steps(trained: int) -> None:
    """The others' entries have no moments yet: they count as zero, and nobody's are lost."""
    gist = GIST(USERS["features"][0], (8,), 2)
    for round_ in gist.rounds(1):
        for i, sub in enumerate(round_):
            optimizer = adam(sub)
            round_.carry(i, optimizer)
            if i == trained:
                optimizer.zero_grad()
                sub(GRAPH.x).square().sum().backward()
                optimizer.step()
        of_trained = round_.blocks[trained][0]
        of_untrained = round_.blocks[1 - trained][0]
    second_moments = gist.theta.place.moments["moments/hidden.weight/exp_avg_sq"]
    assert second_moments[of_trained].any()
    assert not second_moments[of_untrained].any()
