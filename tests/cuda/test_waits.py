"""The host does not wait for the GPU in a step; around the steps, in places that are listed here."""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gistgnn
from gistgnn.runners.registry import RUNNERS, make_runner
from gistgnn.sampling import FullGraph, Sampler, whole_graph
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain
from tests.helpers.models import OURS, PYG

from .runs import GRAPH, SAMPLING, M, make

pytestmark = pytest.mark.cuda
Place = tuple[str, str]  # a file of gistgnn, and a function in it
PACKAGE = f"{Path(gistgnn.__file__).parent}/"
COUNTING = ("gat",)  # PyG's layers that count self-loops in each call, and so wait
MODELS = [f"{name} layer 2" for name in OURS]
MODELS += [*(f"pyg {name} layer_norm None" for name in PYG if name not in COUNTING), "features"]
TRAINING = Training(9, optimizer="adam", clip_norm=1.0)
ENDLESS = 10**6  # steps of the whole run

RUNNER_CLASSES = {"in_turn": "InTurn", "auto": "Auto", "fused": "Fused"}
AT_THE_END: set[Place] = {(f"runners/{file}.py", f"{name}.__call__") for file, name in RUNNER_CLASSES.items()}  # losses


@contextmanager
def counted_waits() -> Iterator[Counter[Place]]:
    """Yield a counter of the files and functions of gistgnn in which the host waits for the GPU within the block."""
    found: Counter[Place] = Counter()

    def seen(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing CUDA operation" in str(message):
            found[place_of(sys._getframe(1))] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")


def place_of(frame: FrameType) -> Place:
    """Return the function of gistgnn that a stack frame is in; or the frame at the bottom of the stack."""
    while frame.f_back is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    function = frame.f_code.co_qualname.partition(".<locals>")[0]  # newer Pythons have no function for comprehensions
    return frame.f_code.co_filename.removeprefix(PACKAGE), function


def waits_of(model: str, runner: str, sampler: Sampler, steps: int) -> dict[Place, int]:
    """Where a round waits while its sub-GCNs train; the first round, which prepares things, does not count."""
    gist, run = make(model, "cuda"), make_runner(runner)
    found: dict[Place, int] = {}
    for number in range(2):
        round_ = gist.begin_round()
        with counted_waits() as seen:
            losses = run(round_, sampler, TRAINING, StepRange(number * steps, steps, ENDLESS), 0)
        round_.aggregate(losses)
        found = dict(seen)
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_no_step_waits(runner: str, model: str) -> None:
    """More steps make no more waits, and those that there are belong to the end of the round."""
    full = FullGraph(whole_graph(GRAPH.to("cuda:0")))
    few, many = (waits_of(model, runner, full, steps) for steps in (1, 3))
    assert few == many
    assert few.keys() <= AT_THE_END
    assert sum(few.values()) <= M


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_making_batches_does_not_wait(sampler: str) -> None:
    """A thread makes them while others train: it would wait for all that these have asked of the GPU."""
    batches_of = SAMPLERS[sampler](**SAMPLING[sampler]).sampler(whole_graph(GRAPH.to("cuda:0")), 0, layers=3)
    with closing(batches_of.batches(0, 2)) as batches:
        list(batches)
    with counted_waits() as found, closing(batches_of.batches(2, 3)) as batches:
        assert len(list(batches)) == 3
    assert not found


@pytest.mark.parametrize("model", ["gcn layer 2", "graphsage layer 2", "gat layer 2", "gin layer 2"])
def test_a_step_on_a_new_batch_does_not_wait(model: str) -> None:
    """The operators of a batch are computed in the step that uses them first."""
    sampler = SAMPLERS["clusters"](**SAMPLING["clusters"]).sampler(whole_graph(GRAPH.to("cuda:0")), 0)
    gist = make(model, "cuda", m=1)
    sub = gist.begin_round().subs[0]
    optimizer = TRAINING.make_optimizer(sub.parameters())
    with closing(sampler.batches(0, 4)) as batches:
        first, *others = list(batches)
    subtrain(sub, optimizer, [first], TRAINING, lambda _: 0.01)
    with counted_waits() as found:
        subtrain(sub, optimizer, others, TRAINING, lambda _: 0.01)
    assert not found


@pytest.mark.parametrize("m", [1, M])
def test_taking_and_merging_wait_once_for_each_sub_gcn(m: int) -> None:
    """Whether its values are finite is asked; slices are taken and written without waiting."""
    gist = make("gcn layer 2", "cuda", m=m)
    gist.begin_round().aggregate()
    with counted_waits() as found:
        gist.begin_round().aggregate()
    assert dict(found) == {("round.py", "_not_finite"): m}
