"""The host does not wait for the GPU in a step: a round of more steps has no more waits."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from gistgnn.runners.recorded import STEPS_BEFORE
from gistgnn.runners.registry import RUNNERS, make_runner
from gistgnn.sampling import FullGraph, Sampler, whole_graph
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from tests.helpers.models import OURS, PYG

from .runs import GRAPH, SAMPLING, M, make

pytestmark = pytest.mark.cuda
COUNTING = ("gat",)  # PyG's layers that count self-loops in each call, and so wait
MODELS = [f"{name} layer 2" for name in OURS]
MODELS += [*(f"pyg {name} layer_norm None" for name in PYG if name not in COUNTING), "features"]
TRAINING = Training(9, optimizer="adam", clip_norm=1.0)
ENDLESS = 10**6  # steps of the whole run


@contextmanager
def counted_waits() -> Iterator[list[str]]:
    """Yield a list of the waits for the GPU within the block.

    It gets an entry for every time that a thread waits.
    """
    waits: list[str] = []

    def seen(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing CUDA operation" in str(message):
            waits.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")


def waits_of(model: str, runner: str, sampler: Sampler, steps: int) -> int:
    """How often a round waits while its sub-GCNs train.

    Earlier rounds prepare things, and record steps.
    """
    gist = make(model, "cuda")
    run = make_runner(runner)
    for number in range(STEPS_BEFORE + 3):
        round_ = gist.begin_round()
        with counted_waits() as waits:
            losses = run(round_, sampler, TRAINING, StepRange(number * steps, steps, ENDLESS), 0)
        round_.aggregate(losses)
    return len(waits)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_no_step_waits(runner: str, model: str) -> None:
    full = FullGraph(whole_graph(GRAPH.to("cuda:0")))
    few, many = (waits_of(model, runner, full, steps) for steps in (1, 3))
    assert few == many <= M


# LADIES and FastGCN sample sums, which attention does not compute.
ATTENDING_ON_SUMS = (("gat", "ladies"), ("gat", "fastgcn"))
NEW_BATCHES = [
    (model, name)
    for model in ("gcn", "graphsage", "gat", "gin")
    for name in SAMPLING
    if (model, name) not in ATTENDING_ON_SUMS
]


@pytest.mark.parametrize(("model", "sampler"), NEW_BATCHES)
def test_a_step_on_a_new_batch_does_not_wait(model: str, sampler: str) -> None:
    """A thread makes batches while others train.

    A batch's operators are computed in the step that uses them first.
    """
    batches_of = SAMPLERS[sampler](**SAMPLING[sampler]).sampler(
        whole_graph(GRAPH.to("cuda:0")), 0, layers=3
    )
    few, many = (waits_of(f"{model} layer 2", "in-turn", batches_of, steps) for steps in (1, 3))
    assert few == many <= M
