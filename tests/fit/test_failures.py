"""What fails after a round costs nothing that was trained.

The state is saved, and a resumed run ends like an unbroken one.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Callback, Graph, Result, Saving
from gistgnn.errors import InputError
from gistgnn.fit.loop import Loop
from gistgnn.sampling import forward, whole_graph
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta import Store
from tests.helpers.fitting import GRAPH, fit, gcn, same
from tests.helpers.logs import logged
from tests.helpers.refusals import full_disk, refused

ROUNDS = 6


class BrokenError(Exception):
    """What the user's code raises."""


class Fails(Callback):
    """Raises an error in a method of a callback, in one round."""

    def __init__(self, hook: str, number: int, error: BaseException) -> None:
        self._number = number
        self._error = error
        setattr(self, hook, self._raise)

    def _raise(self, run: Any, *_: object) -> None:
        if run.round == self._number:
            raise self._error


def run(gist: GIST, saving: Saving | None = None, callbacks: tuple[Any, ...] = ()) -> Result:
    return fit(gist, epochs=24, lr=0.03, saving=saving, callbacks=list(callbacks), evaluate_every=1)


def make(store: str | Store = "memory") -> GIST:
    return GIST(gcn(), (8, 7), 2, store=store)


def test_an_error_while_sub_gcns_train_leaves_the_last_round(tmp_path: Path) -> None:
    calls = iter(range(99))

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        if (last := next(calls)) > 12:
            raise KeyboardInterrupt if last == 13 else BrokenError
        return nn.functional.cross_entropy(logits, targets)

    saving = Saving(tmp_path / "c")
    for error in (KeyboardInterrupt, BrokenError):
        with pytest.raises(error) as caught:
            fit(make(), epochs=24, lr=0.03, evaluate_every=1, loss=loss, saving=saving)
        newest = Checkpoints(saving.path).newest()
        assert newest is not None
        assert newest.name.removeprefix("round-0000000") in caught.value.__notes__[0]
        calls = iter([*range(12), 14])
    assert caught.value.result.history == caught.value.result.progress.history  # type: ignore[attr-defined]


def test_without_saving_the_error_has_the_result() -> None:
    gist = make()
    with pytest.raises(BrokenError) as caught:
        run(gist, callbacks=(Fails("on_evaluation", 3, BrokenError()),))
    result = caught.value.result  # type: ignore[attr-defined]
    assert result.progress.rounds == len(result.history) == 3
    assert result.model(GRAPH.x, GRAPH.edge_index).shape == (GRAPH.num_nodes, GRAPH.num_classes)
    with pytest.raises(BrokenError) as caught:
        run(gist, callbacks=(type("End", (), {"on_fit_end": lambda *_: full_of_trouble()})(),))
    assert caught.value.result.progress.rounds == ROUNDS  # type: ignore[attr-defined]
    with pytest.raises(BrokenError) as caught:
        run(gist, callbacks=(Fails("on_fit_begin", 0, BrokenError()),))
    assert not hasattr(caught.value, "result"), "no round was over"


def full_of_trouble() -> None:
    raise BrokenError


def test_a_full_disk_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gistgnn.storage.checkpoints.write_tensors", full_disk)
    with pytest.raises(BrokenError) as caught:
        run(make(), Saving(tmp_path / "c"), (Fails("on_evaluation", 3, BrokenError()),))
    assert "cannot be saved" in caught.value.__notes__[0]
    assert caught.value.result.progress.rounds == 3  # type: ignore[attr-defined]


# A loop of the user's own.


def looped(
    gist: GIST, validate: Callable[[nn.Module], Any], saving: Saving, leave: Any = None
) -> Loop:
    loop = Loop(gist, 5, validate, saving=saving)
    for round_ in loop:
        for sub in round_:
            optimizer = torch.optim.SGD(sub.parameters(), lr=0.1)
            forward(sub, whole_graph(GRAPH))[GRAPH.train].pow(2).mean().backward()
            optimizer.step()
        if leave is not None and loop.progress.rounds == 3:
            raise leave
    return loop


def size(model: nn.Module) -> float:
    return float(sum(parameter.detach().abs().sum() for parameter in model.parameters()))


@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
def test_a_loop_whose_validation_fails_goes_on(
    number: int, error: type[BaseException], tmp_path: Path
) -> None:
    unbroken = looped(make(), size, Saving(tmp_path / "whole"))
    calls = iter(range(1, 99))

    def fails(model: nn.Module) -> float:
        if next(calls) == number:
            raise error
        return size(model)

    with pytest.raises(error):
        looped(make(), fails, Saving(tmp_path / "c"))
    gist = make()
    resumed = looped(gist, size, Saving(tmp_path / "c", resume=True))
    scores = [
        [(entry["round"], entry["score"]) for entry in loop.progress.history]
        for loop in (unbroken, resumed)
    ]
    assert scores[0] == scores[1]
    assert same(resumed.best_model().state_dict(), unbroken.best_model().state_dict())


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
def test_a_loop_that_is_left_goes_on(error: type[BaseException], tmp_path: Path) -> None:
    unbroken = looped(make(), size, Saving(tmp_path / "whole"))
    with pytest.raises(error):
        looped(make(), size, Saving(tmp_path / "c"), leave=error())
    resumed = looped(make(), size, Saving(tmp_path / "c", resume=True))
    assert [entry["score"] for entry in unbroken.progress.history] == [
        entry["score"] for entry in resumed.progress.history
    ]


def test_a_loop_whose_score_is_nan_has_no_score(tmp_path: Path) -> None:
    scores = iter([float("nan"), 0.5, float("inf"), 0.7, 0.6])
    loop = looped(make(), lambda model: next(scores), Saving(tmp_path / "c"))
    assert [entry["score"] for entry in loop.progress.history] == [None, 0.5, None, 0.7, 0.6]
    assert (loop.progress.best_score, loop.progress.best_round) == (0.7, 4)
    with pytest.raises(InputError):
        looped(make(), lambda model: "good", Saving(tmp_path / "d"))


# A metric without a value.


def values(*scores: float | BaseException) -> Callable[[Tensor, Tensor], float]:
    """Return a metric that has these values, each for validation and for test.

    Before them it is tried on both splits.
    """
    values_to_come = iter([0.5, 0.5, *(score for score in scores for _ in range(2))])

    def metric(logits: Tensor, targets: Tensor) -> float:
        value = next(values_to_come)
        if isinstance(value, BaseException):
            raise value
        return value

    return metric


@pytest.mark.parametrize("failure", [float("nan"), float("inf"), BrokenError("it is mine")])
def test_a_metric_without_a_value_costs_that_score_alone(failure: Any) -> None:
    metric = values(failure, 0.2, failure, 0.4, 0.3, failure)
    gist = make()
    with logged() as messages:
        result = fit(gist, epochs=24, lr=0.03, evaluate_every=1, metric=metric)
    assert [entry["validation"] for entry in result.history] == [None, 0.2, None, 0.4, 0.3, None]
    assert [entry["test"] for entry in result.history] == [None, 0.2, None, 0.4, 0.3, None]
    assert (result.progress.best_round, result.progress.best_score) == (4, 0.4)
    assert result.validation["metric"] == 0.4
    assert "accuracy" in result.progress.last["validation"]
    assert sum("no metric of the validation nodes" in message for message in messages) == 1
    plain = make()
    run(plain)
    assert same(gist.theta.copy(), plain.theta.copy()), "scores do not change training"
    result = fit(
        make(), epochs=24, lr=0.03, evaluate_every=1, metric=values(*[failure] * 6), patience=1
    )
    assert {entry["validation"] for entry in result.history} == {None}
    # Without any score the model is the last one.
    assert (result.progress.best_round, result.progress.best_score) == (ROUNDS, None)
    assert result.summary().count(", metric -\n") == 2


def test_a_metric_that_cannot_score_the_validation_nodes_is_refused_before_training() -> None:
    begun: list[Any] = []
    callbacks = [type("Begun", (), {"on_fit_begin": lambda self, run: begun.append(run)})()]
    alone = replace(GRAPH, val=GRAPH.val & (GRAPH.y == 0))
    with refused("roc_auc cannot score the validation nodes", "class 0, 1, 2"):
        fit(make(), graph=alone, metric="roc_auc", callbacks=callbacks)
    with refused("average_precision cannot score the validation nodes", "class 1, 2"):
        fit(make(), graph=alone, metric="average_precision", callbacks=callbacks)
    for metric in (lambda *_: float("nan"), lambda *_: 1 / 0, lambda *_: "good"):
        with refused("cannot score the validation nodes"):
            fit(make(), metric=metric, callbacks=callbacks)
    single = GRAPH.val & (torch.arange(GRAPH.num_nodes) == int(GRAPH.val.nonzero()[0]))
    masks = {"train": GRAPH.train, "val": single, "test": GRAPH.test}
    numbers = Graph.build(GRAPH.x, GRAPH.edge_index, GRAPH.x[:, :3], regression=True, **masks)
    with refused("r2 cannot score the validation nodes", "two nodes"):
        fit(make(), graph=numbers, callbacks=callbacks)
    assert begun == []
    masks |= {"val": GRAPH.test, "test": single}
    numbers = Graph.build(GRAPH.x, GRAPH.edge_index, GRAPH.x[:, :3], regression=True, **masks)
    with logged() as messages:
        result = fit(make(), graph=numbers)
    assert result.test["r2"] is None
    assert result.test["mae"] is not None
    assert sum("r2" in message and "two nodes" in message for message in messages) >= 1
