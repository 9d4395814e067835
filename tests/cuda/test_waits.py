"""The host does not wait for the GPU in a step; around the steps, in places that are listed here."""

from contextlib import closing
from functools import partial

import pytest

from gistgnn.runners.fused import Group
from gistgnn.runners.registry import RUNNERS, make_runner
from gistgnn.sampling import FullGraph, Sampler, named_sampling, whole_graph
from gistgnn.schedule import Stretch
from gistgnn.settings import Training
from gistgnn.subtrain import subtrain
from tests.helpers.models import OURS, PYG
from tests.helpers.pretended_gpu import Place

from .runs import GRAPH, M, make
from .waits import counted_waits, no_waits

MODELS = [*(f"{name} layer 2" for name in OURS), *(f"pyg {name} layer_norm None" for name in PYG), "features"]
TRAINING = Training(9, optimizer="adam", clip_norm=1.0)
ENDLESS = 10**6  # steps of the whole run

AT_THE_END: dict[Place, str] = {
    ("runners/in_turn.py", "InTurn.__call__"): "the mean loss of a sub-GCN",
    ("runners/auto.py", "Auto.__call__.<locals>.<dictcomp>"): "the mean loss of every sub-GCN",
    ("runners/fused.py", "Fused.__call__"): "the mean losses",
}
FOR_A_BATCH: dict[Place, str] = {
    ("nn/pattern.py", "Pattern.looped"): "which edges are self-loops decides how many entries there are",
}


def waits_of(gpu: str, model: str, runner: str, sampler: Sampler, steps: int) -> dict[Place, int]:
    """Where a round waits while its sub-GCNs train; the first round, which prepares things, does not count."""
    gist, run = make(model, "cuda"), make_runner(runner)
    found: dict[Place, int] = {}
    for number in range(2):
        round_ = gist.begin_round()
        with counted_waits(gpu) as seen:
            losses = run(round_, sampler, TRAINING, Stretch(number * steps, steps, ENDLESS), 0)
        round_.aggregate(losses)
        found = dict(seen)
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_no_step_waits(gpu: str, runner: str, model: str) -> None:
    """More steps make no more waits, and those that there are belong to the end of the round."""
    full = FullGraph(whole_graph(GRAPH.to("cuda")))
    few, many = (waits_of(gpu, model, runner, full, steps) for steps in (2, 6))
    assert few == many
    assert few.keys() <= AT_THE_END.keys()
    assert sum(few.values()) <= M


@pytest.mark.parametrize("model", MODELS)
def test_a_step_runs_where_waiting_is_an_error(gpu: str, model: str) -> None:
    batch = whole_graph(GRAPH.to("cuda"))
    gist = make(model, "cuda")
    round_ = gist.begin_round()
    sub = round_.subs[0]
    optimizer = TRAINING.make_optimizer(sub.parameters())
    step = partial(subtrain, sub, optimizer, [batch] * 2, TRAINING, lambda _: 0.01)
    step()
    with no_waits(gpu):
        step()
    group = Group(gist.begin_round(), list(range(M)), TRAINING)
    group.step(batch, 0.01)
    with no_waits(gpu):
        group.step(batch, 0.01)


@pytest.mark.parametrize("model", ["gcn layer 2", "graphsage layer 2", "gat layer 2", "gin layer 2"])
def test_operators_of_a_new_batch_wait_in_few_places(gpu: str, model: str) -> None:
    sampler = named_sampling("clusters", GRAPH.num_nodes).sampler(whole_graph(GRAPH.to("cuda")), 0)  # type: ignore[union-attr]
    gist = make(model, "cuda", m=1)
    sub = gist.begin_round().subs[0]
    optimizer = TRAINING.make_optimizer(sub.parameters())
    with closing(sampler.batches(0, 4)) as batches:
        first, *others = list(batches)
    subtrain(sub, optimizer, [first], TRAINING, lambda _: 0.01)
    with counted_waits(gpu) as found:
        subtrain(sub, optimizer, others, TRAINING, lambda _: 0.01)
    assert found.keys() <= FOR_A_BATCH.keys()
    assert sum(found.values()) <= 6 * len(others)
