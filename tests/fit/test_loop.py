"""`Loop`: a loop of the user's own, watched."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gistgnn import GIST, Loop, Saving
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import forward, whole_graph
from gistgnn.theta.registry import Store
from tests.helpers.fitting import GRAPH, gcn, same
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
    plain, watched = make(), make()
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
    unwatched = train(Loop(make(), 6))  # the model is the last one
    assert unwatched.progress.history == []
    assert same(tensors(unwatched.best_model()), tensors(plain.model()))


def test_patience_and_the_direction_of_the_score() -> None:
    falling = iter(range(100, 0, -1))
    loop = train(Loop(make(), 50, lambda model: next(falling), patience=3))
    assert (loop.progress.rounds, loop.progress.best_round, loop.progress.stopped_early) == (4, 1, True)
    falling = iter(range(100, 0, -1))
    loop = train(Loop(make(), 7, lambda model: next(falling), patience=1, higher_is_better=False, evaluate_every=3))
    assert [entry["round"] for entry in loop.progress.history] == [3, 6, 7]
    assert (loop.progress.best_round, loop.progress.stopped_early) == (7, False)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_loop_that_was_left_is_resumed(tmp_path: Path, kind: str) -> None:
    def again() -> Loop:
        store: Any = Store("disk", tmp_path / "theta") if kind == "disk" else "memory"
        return Loop(make(store=store), 5, accuracy, saving=Saving(tmp_path / "loop", every=1, resume=True))

    expected = train(Loop(make(), 5, accuracy))
    assert train(again(), rounds=2).progress.rounds == 2
    loop = train(again())
    assert loop.progress.rounds == 5
    found, scores = ([entry["score"] for entry in each.progress.history] for each in (loop, expected))
    assert found == scores
    torch.testing.assert_close(tensors(loop.best_model()), tensors(expected.best_model()))
    assert list(again()) == []
    with refused("is of another run", "seed was 0, now 1"):
        Loop(make(seed=1), 5, accuracy, saving=Saving(tmp_path / "loop", resume=True))
