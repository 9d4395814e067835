import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, DivergedError, InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN, Adjacency
from tests.helpers.models import OURS, USERS, tiny_graph

GRAPH = tiny_graph()
ADJ = Adjacency(GRAPH.edge_index, GRAPH.num_nodes, GRAPH.x.dtype)


def make(m: int = 3, seed: int = 0) -> GIST:
    return GIST(OURS["gcn"], (8, 7), m, seed=seed)


def train(sub: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2, x: Tensor = GRAPH.x) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(sub(x, ADJ)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
        optimizer.step()


def adam(sub: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(sub.parameters(), lr=0.05)


def rounds_of(gist: GIST, count: int, *, carry: bool = False) -> None:
    for round_ in gist.rounds(count):
        for i, sub in enumerate(round_):
            optimizer = adam(sub)
            if carry:
                round_.carry(i, optimizer)
            train(sub, optimizer)


def same(gist: GIST, other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in gist.theta.tensors.items())


def test_a_round_gives_plain_modules_and_leaving_it_aggregates() -> None:
    gist = make()
    before = gist.theta.copy()
    for round_ in gist.rounds(1):
        assert len(round_) == len(list(round_)) == 3
        for own, sub in zip(round_.blocks, round_, strict=True):
            assert type(sub) is GCN
            assert sub.training
            assert named_tensors(sub)["convs.1.weight"].shape == (len(own[1]), len(own[0]))
            train(sub, adam(sub))
        assert same(gist, before)
    assert not same(gist, before)
    for own, sub in zip(round_.blocks, round_, strict=True):
        new = gist.theta.tensors["convs.1.weight"][own[1]][:, own[0]]
        assert torch.equal(new, named_tensors(sub)["convs.1.weight"])
    shared = torch.stack([named_tensors(sub)["convs.2.bias"] for sub in round_]).mean(0)
    torch.testing.assert_close(gist.theta.tensors["convs.2.bias"], shared.detach())


def test_a_list_of_the_sub_gcns_trained_later_in_any_order_is_the_same() -> None:
    one, other = make(), make()
    rounds_of(one, 3)
    for round_ in other.rounds(3):
        for sub in reversed(list(round_)):
            train(sub, adam(sub))
    assert same(one, other.theta.tensors)


def test_a_new_round_starts_without_gradients() -> None:
    """Modules are used again; what a broken-off round left in them must not reach the next."""
    gist = GIST(OURS["gcn"], (8, 6), 2)
    rounds_of(gist, 1)
    for round_ in gist.rounds(1):
        assert all(p.grad is None for sub in round_ for p in sub.parameters())


DIVERGED = ("round 3", "'convs.1.bias'", "sub-GCN 1", "learning rate")


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("error", KeyError, ()),
        ("one without carry", InputError, ("sub-GCN 1", "all or none")),
        ("nan", DivergedError, DIVERGED),
        ("inf", DivergedError, DIVERGED),
    ],
)
def test_a_round_that_fails_changes_nothing(how: str, error: type[Exception], said: tuple[str, ...]) -> None:
    gist = make()
    list(gist.rounds(2))
    before = gist.theta.copy()

    def fail() -> None:
        for round_ in gist.rounds(1):
            for i, sub in enumerate(round_):
                optimizer = adam(sub)
                if how == "one without carry" and i != 1:
                    round_.carry(i, optimizer)
                train(sub, optimizer)
                if how == "error":
                    raise KeyError
            if error is DivergedError:
                with torch.no_grad():
                    named_tensors(round_.subs[1])["convs.1.bias"][0] = float(how)

    with pytest.raises(error) as caught:
        fail()
    assert all(part in str(caught.value) for part in said)
    assert same(gist, before)


def test_carry_keeps_the_moments() -> None:
    gist = make()
    rounds_of(gist, 3, carry=True)
    assert gist.theta.moments["moments/convs.1.weight/step"] == 6
    mean = gist.theta.moments["moments/convs.1.weight/exp_avg"]
    assert mean.shape == (7, 8)
    assert mean.any()
    other = make()
    rounds_of(other, 3)
    assert not same(gist, other.theta.tensors)


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
        own, other = round_.blocks[trained][0], round_.blocks[1 - trained][0]
    kept = gist.theta.moments["moments/hidden.weight/exp_avg_sq"]
    assert kept[own].any()
    assert not kept[other].any()
