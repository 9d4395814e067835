"""A run that is refused leaves the model as it was, and every run begins from scratch."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Graph, Loop, Saving
from gistgnn.evaluation import Evaluation
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import ClusterSampling
from tests.helpers.fitting import GRAPH, fit, gcn, quiet, same
from tests.helpers.refusals import refused
from tests.theta.stores import shaken, store, values


class Raises(Callback):
    """Raises an error when the run begins, after it has asked for the model."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def on_fit_begin(self, run: Run) -> None:
        run.model()
        raise self._error


def fails(*_: Any) -> Tensor:
    raise ValueError("no such score")


def interrupts(*_: Any) -> Tensor:
    raise KeyboardInterrupt


NUMBERS = Graph.build(
    GRAPH.x,
    GRAPH.edge_index,
    GRAPH.x.sum(dim=1),
    train=GRAPH.train,
    val=GRAPH.val,
    test=GRAPH.test,
    regression=True,
)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """The error of a number, which the first of several outputs is."""
    return (outputs[:, 0] - targets.view(-1)) ** 2


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    return -squared(outputs, targets).mean()


MEAN = {"graph": NUMBERS, "loss": squared, "metric": error}
"""A run in which Θ is the mean of its sub-GCNs."""
REFUSALS: dict[str, dict[str, Any]] = {
    "metric": {"metric": fails},
    "Ctrl-C in the preparation": {"metric": interrupts},
    "loss": {"loss": lambda logits, targets: torch.tensor("x")},
    "sampler": {"sampler": "no such"},
    "init of another model": {"init": nn.Linear(2, 2), **MEAN},
    "mean": {**MEAN, "metric": fails},
    "Ctrl-C of a mean": {**MEAN, "metric": interrupts},
    "init": {"metric": fails, "init": "other"},
    "scaled": {"metric": fails, "standardise": True},
    "evaluation": {"evaluation": Evaluation("parts", parts=99)},
    "callback": {**MEAN, "callbacks": [Raises(RuntimeError())], "standardise": True},
    "Ctrl-C in a callback": {"callbacks": [Raises(KeyboardInterrupt())], "standardise": True},
}


def make(folder: Path, kind: str = "memory") -> GIST:
    folder.mkdir(parents=True, exist_ok=True)
    return GIST(gcn(dropout=0.3, norm="batch"), (8, 6), 2, store=store(kind, folder))


def state(gist: GIST) -> dict[str, Any]:
    """What the user sees of a model: its Θ, its output, its blocks, and where its rounds stand."""
    model = gist.model()
    with torch.no_grad():
        output = model(GRAPH.x, GRAPH.edge_index)
    blocks = [block.tolist() for of_sub in gist.begin_round().blocks for block in of_sub]
    gist.next_round -= 1
    seen = {"theta": values(gist.theta), "output": output, "blocks": blocks}
    return seen | {"rounds": gist.next_round, "scaled": gist.scaling is not None}


def agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (
        same(one["theta"], other["theta"])
        and torch.equal(one["output"], other["output"])
        and all(one[name] == other[name] for name in ("blocks", "rounds", "scaled"))
    )


def refuse(gist: GIST, name: str) -> None:
    options = dict(REFUSALS[name])
    if options.get("init") == "other":
        options["init"] = GIST(gcn(dropout=0.3, norm="batch"), (8, 6), 2, seed=9).model()
    with pytest.raises(BaseException):  # noqa: B017, PT011
        fit(gist, **options)


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_fit_after_refused_ones_is_that_of_a_fresh_model(kind: str, tmp_path: Path) -> None:
    fresh = make(tmp_path / "fresh", kind)
    expected = fit(fresh)
    gist = make(tmp_path / "own", kind)
    for name in REFUSALS:
        refuse(gist, name)
        assert gist.scaling is None
        assert gist.next_round == 0
    result = fit(gist)
    assert same(values(gist.theta), values(fresh.theta))
    assert quiet(result.history) == quiet(expected.history)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("work", ["fit", "rounds", "nothing"])
def test_a_refused_fit_leaves_what_was_trained(kind: str, work: str, tmp_path: Path) -> None:
    def trained(folder: Path) -> GIST:
        gist = make(folder, kind)
        if work == "fit":
            fit(gist, standardise=True, optimizer_state="carry")
        elif work == "rounds":
            shaken(gist, 2, torch.optim.Adam)
        return gist

    expected = state(trained(tmp_path / "expected"))
    gist = trained(tmp_path / "own")
    for name in REFUSALS:
        refuse(gist, name)
    assert agree(state(gist), expected)
    assert [path.name for path in (tmp_path / "own").glob("[!.]*")] == ["theta"] * (kind == "disk")


def test_a_refused_fit_leaves_how_the_model_is_made() -> None:
    """With one sub-GCN nothing is merged, so buffers stay those of the training.

    These are the buffers that follow from whole parameters.
    """
    gist = GIST(gcn(), (8, 7), 1)
    for name in ("mean", "metric"):
        refuse(gist, name)
        assert not gist.full_spec.merges
    # With a budget the model may be made of several narrow ones.
    with pytest.raises(ValueError, match="no such score"):
        fit(gist, metric=fails, budget=9, epochs=None, local_steps=None, schedule="cosine")
    assert not gist.full_spec.merges


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize(
    "first",
    [
        {"standardise": True},
        {"optimizer_state": "carry"},
        MEAN,
        {"sampler": ClusterSampling(4, 2, method="random")},
        {"init": "other"},
        {"evaluate_every": 99, "epochs": 5},
    ],
)
def test_fit_begins_from_scratch(kind: str, first: dict[str, Any], tmp_path: Path) -> None:
    fresh = make(tmp_path / "fresh", kind)
    expected = fit(fresh)
    gist = make(tmp_path / "own", kind)
    if "init" in first:
        first = {"init": GIST(gcn(dropout=0.3, norm="batch"), (8, 6), 2, seed=9).model()}
    earlier = fit(gist, **first)
    model = {name: tensor.detach().clone() for name, tensor in named_tensors(earlier.model).items()}
    assert quiet(fit(gist).history) == quiet(expected.history)
    assert same(values(gist.theta), values(fresh.theta))
    assert same(
        {name: tensor.detach() for name, tensor in named_tensors(earlier.model).items()}, model
    )


def frozen(gist: GIST) -> None:
    """A loop of the user's own that freezes what it trains, and puts hooks on it."""
    for round_ in gist.rounds(2):
        for sub in round_:
            sub.requires_grad_(False)
            sub.register_forward_hook(lambda *_: pytest.fail("a module of the user's"))


def broken_off(gist: GIST) -> None:
    class Stops(Callback):
        def on_round_end(self, run: Run, loss: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(gist, standardise=True, callbacks=[Stops()])


@pytest.mark.parametrize("work", [frozen, broken_off])
def test_fit_begins_from_scratch_after_other_work(
    work: Callable[[GIST], None], tmp_path: Path
) -> None:
    fresh = make(tmp_path)
    gist = make(tmp_path)
    expected = fit(fresh)
    work(gist)
    assert quiet(fit(gist).history) == quiet(expected.history)
    assert same(values(gist.theta), values(fresh.theta))


def test_a_theta_on_disk_that_was_resumed_is_not_deleted(tmp_path: Path) -> None:
    shaken(make(tmp_path, "disk"), 3)
    expected = values(make_resumed(tmp_path).theta)
    gist = make_resumed(tmp_path)
    for options in ({}, {"saving": Saving(tmp_path / "checkpoints", resume=True)}):
        with refused(str(tmp_path / "theta"), "3 rounds", "another folder"):
            fit(gist, **options)
    with refused("not empty"):
        fit(make(tmp_path, "disk"))
    assert same(values(make_resumed(tmp_path).theta), expected)
    shaken(gist, 1)
    assert make_resumed(tmp_path).next_round == 4


def make_resumed(folder: Path) -> GIST:
    gist = make(folder, "disk")
    gist.resume()
    return gist


def test_a_checkpoint_does_not_replace_another_theta_on_disk(tmp_path: Path) -> None:
    """The checkpoint of a run in memory goes on in files, but not in those of another run."""
    saving = Saving(tmp_path / "checkpoints", every=1, resume=True)
    loop = Loop(make(tmp_path), 9, saving=saving)
    for round_ in loop:
        if round_.number == 5:
            break
    shaken(make(tmp_path, "disk"), 2)
    expected = values(make_resumed(tmp_path).theta)
    with refused(str(tmp_path / "theta"), "after 2 rounds", "after 5 rounds"):
        Loop(make(tmp_path, "disk"), 9, saving=saving)
    assert same(values(make_resumed(tmp_path).theta), expected)


# What a run leaves in memory.


def test_fit_leaves_neither_sub_gcns_nor_gradients() -> None:
    made: list[weakref.ref[nn.Module]] = []

    def build(widths: Any) -> nn.Module:
        model: nn.Module = gcn()(widths)
        made.append(weakref.ref(model))
        return model

    gist = GIST(build, (8, 6), 2)
    result = fit(gist, optimizer_state="carry")
    gc.collect()
    alive = [model for reference in made if (model := reference()) is not None]
    assert alive == [result.model]
    assert all(parameter.grad is None for parameter in result.model.parameters())
