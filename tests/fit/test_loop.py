"""`Loop`: a loop of the user's own, watched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gistgnn import GIST, Graph, Loop, Saving
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN, Adjacency
from gistgnn.sampling import forward, whole_graph
from gistgnn.theta.registry import Store
from gistgnn.theta.theta import Theta
from tests.helpers.fitting import GRAPH, fit, gcn, same
from tests.helpers.refusals import refused

BATCH = whole_graph(GRAPH)


def make(**options: Any) -> GIST:
    return GIST(gcn(), (8, 7), 2, **options)


def accuracy(model: nn.Module) -> Tensor:
    assert not model.training
    assert not torch.is_grad_enabled()
    return (forward(model, BATCH).argmax(dim=1) == GRAPH.y)[GRAPH.val].float().mean()


def train(loop: Any, rounds: int = 99) -> Any:
    for k, round_ in enumerate(loop):
        if k == rounds:
            break
        for sub in round_:
            optimizer = torch.optim.Adam(sub.parameters(), lr=0.03)
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(forward(sub, BATCH)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
                optimizer.step()
    return loop


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}


def test_a_loop_trains_as_rounds_do_and_keeps_the_best() -> None:
    plain = make()
    watched = make()
    train(plain.rounds(6))
    loop = train(Loop(watched, 6, accuracy))
    assert same(watched.theta.copy(), plain.theta.copy())
    scores = [entry["score"] for entry in loop.progress.history]
    assert [entry["round"] for entry in loop.progress.history] == [1, 2, 3, 4, 5, 6]
    assert loop.progress.best_score == max(scores)
    assert loop.progress.best_round == scores.index(max(scores)) + 1
    with torch.no_grad():
        assert float(accuracy(loop.best_model())) == pytest.approx(loop.progress.best_score)
    assert (len(loop), loop.progress.rounds, loop.progress.stopped_early) == (6, 6, False)
    unwatched = train(Loop(make(), 6))
    assert unwatched.progress.history == []
    assert same(tensors(unwatched.best_model()), tensors(plain.model())), "it is the last model"


def test_patience_ends_a_loop_by_the_direction_of_the_score() -> None:
    falling = iter(range(100, 0, -1))
    loop = train(Loop(make(), 50, lambda model: next(falling), patience=3))
    assert (loop.progress.rounds, loop.progress.best_round) == (4, 1)
    assert loop.progress.stopped_early
    falling = iter(range(100, 0, -1))
    options: dict[str, Any] = {"patience": 1, "higher_is_better": False, "evaluate_every": 3}
    loop = train(Loop(make(), 7, lambda model: next(falling), **options))
    assert [entry["round"] for entry in loop.progress.history] == [3, 6, 7]
    assert (loop.progress.best_round, loop.progress.stopped_early) == (7, False)


def test_a_loop_that_its_patience_has_ended_stays_over_unless_it_becomes_longer(
    tmp_path: Path,
) -> None:
    def again(patience: int) -> Loop:
        falling = iter(range(100, 0, -1))
        saving = Saving(tmp_path / "loop", resume=True)
        return train(
            Loop(make(), 50, lambda model: next(falling), patience=patience, saving=saving)
        )

    for patience, rounds in ((3, 4), (3, 4), (5, 6), (2, 6)):
        loop = again(patience)
        assert (loop.progress.rounds, loop.progress.stopped_by) == (rounds, "patience")
        assert loop.progress.best_round == 1


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_loop_that_was_left_is_resumed(tmp_path: Path, kind: str) -> None:
    def again() -> Loop:
        store: Any = Store("disk", tmp_path / "theta") if kind == "disk" else "memory"
        return Loop(
            make(store=store), 5, accuracy, saving=Saving(tmp_path / "loop", every=1, resume=True)
        )

    expected = train(Loop(make(), 5, accuracy))
    assert train(again(), rounds=2).progress.rounds == 2
    loop = train(again())
    assert loop.progress.rounds == 5
    scores, expected_scores = (
        [entry["score"] for entry in run.progress.history] for run in (loop, expected)
    )
    assert scores == expected_scores
    torch.testing.assert_close(tensors(loop.best_model()), tensors(expected.best_model()))
    assert list(again()) == []
    with refused("is of another run", "seed was 0, now 1"):
        Loop(make(seed=1), 5, accuracy, saving=Saving(tmp_path / "loop", resume=True))


# What the user gets stays as it is.


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_later_rounds_and_runs_change_no_model_that_was_given(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where large tensors are mapped, of which every tensor is one here."""
    monkeypatch.setattr("gistgnn.theta.disk.LARGE", 0)
    monkeypatch.setattr("gistgnn.storage.tensors.LARGE", 0)
    models: list[tuple[nn.Module, dict[str, Tensor]]] = []

    def remember(model: nn.Module) -> Tensor:
        models.append((model, tensors(model)))
        return torch.tensor(float(len(models)))

    def unchanged() -> bool:
        return all(same(tensors(model), expected) for model, expected in models)

    gist = make(store=Store("disk", tmp_path / "theta") if kind == "disk" else kind)
    loop = Loop(gist, 6, remember, evaluate_every=2)
    for round_ in loop:
        remember(gist.model())
        remember(loop.best_model())
        for sub in round_:
            with torch.no_grad():
                for parameter in sub.parameters():
                    parameter.add_(0.1)
    assert unchanged()
    assert not same(models[0][1], models[-1][1])
    remember(loop.best_model())

    class Keeps(Callback):
        def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
            remember(run.model())

    for _ in range(2):
        remember(fit(gist, callbacks=[Keeps()]).model)
    train(gist.rounds(2))
    assert unchanged()
    # Changes of these models do not reach Θ.
    with torch.no_grad():
        for model, _ in models:
            for tensor in named_tensors(model).values():
                tensor.zero_()
    assert not same(gist.theta.copy(), tensors(models[-1][0]))


def test_modules_of_a_loop_are_not_trained_by_fit() -> None:
    gist = make()
    for round_ in gist.rounds(1):
        subs = list(round_)
    before = [tensors(sub) for sub in subs]
    fit(gist)
    assert all(same(tensors(sub), expected) for sub, expected in zip(subs, before, strict=True))


# Where a loop goes on.

BEFORE: dict[str, Callable[[GIST], Any]] = {
    "fresh": lambda gist: None,
    "after a fit": lambda gist: fit(gist, epochs=8),
    "after rounds": lambda gist: train(gist.rounds(3)),
    "after a round that was left": lambda gist: train(gist.rounds(3), rounds=2),
}


def move(sub: nn.Module, i: int) -> None:
    with torch.no_grad():
        for p in sub.parameters():
            p.add_(0.01 * (i + 1) * torch.cos(torch.arange(p.numel()).view_as(p)))


def draws(loop: Loop, rounds: int = 99) -> list[Any]:
    """Train, and return the numbers and blocks of the rounds that have ended."""
    drawn = []
    for k, round_ in enumerate(loop):
        if k == rounds:
            break
        blocks = [block.tolist() for of_sub in round_.blocks for block in of_sub]
        drawn.append((round_.number, blocks))
        for i, sub in enumerate(round_):
            move(sub, i)
    return drawn


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("before", BEFORE)
def test_a_loop_that_was_left_goes_on_like_an_unbroken_one(
    kind: str, before: str, tmp_path: Path
) -> None:
    """In the same process, with and without saving, and in a new one that resumes."""
    plain = make()
    BEFORE[before](plain)
    unbroken = Loop(plain, 6, accuracy)
    expected = draws(unbroken)
    for way in ("the same", "saving", "resumed"):
        theta_store: Any = Store("disk", tmp_path / way / "theta") if kind == "disk" else "memory"
        saving = (
            None if way == "the same" else Saving(tmp_path / way / "loop", every=1, resume=True)
        )
        gist = make(store=theta_store)
        BEFORE[before](gist)
        loop = Loop(gist, 6, accuracy, saving=saving)
        drawn = []
        for rounds in (2, 0, 1, 99):
            drawn += draws(loop, rounds)
            if way == "resumed":
                gist = make(store=theta_store)
                loop = Loop(gist, 6, accuracy, saving=saving)
        assert drawn == expected
        assert same(gist.theta.copy(), plain.theta.copy())
        assert [(entry["round"], entry["score"]) for entry in loop.progress.history] == [
            (entry["round"], entry["score"]) for entry in unbroken.progress.history
        ]
        assert same(tensors(loop.best_model()), tensors(unbroken.best_model()))
        assert list(loop) == []


def test_rounds_between_two_loops_are_gone_on_from() -> None:
    gist = make()
    loop = Loop(gist, 4)
    draws(loop, 2)
    train(gist.rounds(2))
    after = gist.theta.copy()
    assert [number for number, _ in draws(loop)] == [gist.next_round - 2, gist.next_round - 1]
    assert not same(gist.theta.copy(), after)
    assert same(tensors(loop.best_model()), tensors(gist.model()))


def test_without_scores_the_best_model_is_the_last_one() -> None:
    """Not the best one of a fit before it."""
    gist = make()
    fit(gist)
    loop = Loop(gist, 2)
    assert same(tensors(loop.best_model()), tensors(gist.model()))
    draws(loop)
    assert same(tensors(loop.best_model()), tensors(gist.model()))


def test_a_loop_in_two_places_is_refused(tmp_path: Path) -> None:
    for saving in (None, Saving(tmp_path / "loop", every=1)):
        loop = Loop(make(), 5, saving=saving)
        with refused("this Loop is iterated already"):
            for _ in loop:
                list(loop)
        assert len(draws(loop)) == 5
    gist = make()
    loop = Loop(gist, 5)
    draws(loop, 2)
    best = tensors(loop.best_model())
    fit(gist)
    with refused("trained anew", "new Loop"):
        list(loop)
    assert same(tensors(loop.best_model()), best)


def test_a_loop_whose_checkpoint_is_refused_leaves_the_model(tmp_path: Path) -> None:
    draws(Loop(make(seed=1), 2, saving=Saving(tmp_path / "loop")))
    gist = make()
    train(gist.rounds(2))
    before = gist.theta.copy()
    rounds = gist.next_round
    with refused("seed was 1, now 0"):
        Loop(gist, 5, saving=Saving(tmp_path / "loop", resume=True))
    assert same(gist.theta.copy(), before)
    assert gist.next_round == rounds
    # The folder is not locked.
    Loop(make(seed=1), 5, saving=Saving(tmp_path / "loop", resume=True))


@pytest.mark.parametrize("where", ["body", "validate", "merge"])
def test_a_loop_that_was_interrupted_goes_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = Loop(make(), 4, accuracy)
    expected = draws(unbroken)
    asked = iter(range(100))

    def interrupt(name: str, n: int) -> None:
        if where == name and next(asked) == n:
            raise KeyboardInterrupt

    def validate(model: nn.Module) -> Tensor:
        interrupt("validate", 1)
        return accuracy(model)

    plain_commit = Theta.commit

    def commit(theta: Theta, loss: float) -> None:
        plain_commit(theta, loss)
        interrupt("merge", 1)

    monkeypatch.setattr(Theta, "commit", commit)
    gist = make()
    loop = Loop(gist, 4, validate, saving=Saving(tmp_path / "loop", every=1))
    numbers = []

    def work() -> None:
        for round_ in loop:
            interrupt("body", 1)
            numbers.append(round_.number)
            for i, sub in enumerate(round_):
                move(sub, i)

    with pytest.raises(KeyboardInterrupt):
        work()
    numbers += [number for number, _ in draws(loop)]
    assert numbers == [number for number, _ in expected]
    assert loop.progress.rounds == 4
    assert [entry["round"] for entry in loop.progress.history] == [1, 2, 3, 4]
    assert same(tensors(loop.best_model()), tensors(unbroken.best_model()))


# Numbers as targets.


@pytest.mark.parametrize("m", [2, 3])
def test_a_loop_of_a_regression_trains_what_fit_trains(m: int) -> None:
    graph = regression_graph()

    def steps(gist: GIST, rounds: Any) -> GIST:
        adj = Adjacency(graph.edge_index, graph.num_nodes, graph.x.dtype)
        adj.cache_products(graph.x)
        for round_ in rounds:
            for sub in round_:
                optimizer = torch.optim.Adam(gist.parameter_groups(sub, lr=0.02), fused=True)
                for _ in range(2):
                    optimizer.zero_grad()
                    outputs = sub(graph.x, adj)[graph.train]
                    F.mse_loss(outputs, graph.y[graph.train].view(-1, 1)).backward()
                    optimizer.step()
        return gist

    def build(widths: Any) -> nn.Module:
        return GCN(graph.num_features, widths, 1)

    fitted = GIST(build, (8, 7), m)
    fit(fitted, graph, epochs=6 * m, lr=0.02)
    by_hand = GIST(build, (8, 7), m, regression=True)
    looped = GIST(build, (8, 7), m, regression=True)
    steps(by_hand, by_hand.rounds(3))
    steps(looped, Loop(looped, 3))
    for name, tensor in fitted.theta.copy().items():
        torch.testing.assert_close(by_hand.theta.copy()[name], tensor, rtol=1e-5, atol=1e-6)
    assert same(looped.theta.copy(), by_hand.theta.copy())
    # A loop after a fit has sub-GCNs of the same scale.
    after_fit = tensors(fitted.begin_round().subs[0])
    after_loop = tensors(by_hand.begin_round().subs[0])
    torch.testing.assert_close(after_fit, after_loop, rtol=1e-5, atol=1e-6)
    if m == 2:
        assert same(after_fit, after_loop)


def regression_graph() -> Graph:
    weights = torch.linspace(-1, 1, GRAPH.num_features)
    splits = {name: getattr(GRAPH, name) for name in ("train", "val", "test")}
    return Graph.build(GRAPH.x, GRAPH.edge_index, GRAPH.x @ weights, **splits, regression=True)
