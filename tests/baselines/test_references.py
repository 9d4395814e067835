"""Each baseline against itself, written in ten lines."""

from copy import deepcopy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gistgnn.baselines import DataParallel
from gistgnn.evaluation.scores import Predictions, evaluate, score_predictions
from gistgnn.layout.axes import named_tensors
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.sampling import Batch, forward, whole_graph

from .cases import GRAPH, LOCAL, LR, STEPS, batches, fit
from .cases import make as make_scaled

make = partial(make_scaled, width_scaling="none")  # tests/fit/test_width_scaling.py shows the other rates
WHOLE = whole_graph(GRAPH)


def initial() -> nn.Module:
    """The full model as every method begins with it."""
    return make("gist", 2).model().train()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(forward(model, batch)[batch.loss_nodes], batch.y[batch.loss_nodes])


def scores(logits: torch.Tensor, split: str) -> dict[str, float]:
    found = Predictions.of([(slice(0, len(logits)), logits)], GRAPH)
    return score_predictions(found, GRAPH, [split])[split]


def close(found: nn.Module, expected: nn.Module) -> None:
    for name, tensor in named_tensors(expected).items():
        torch.testing.assert_close(named_tensors(found)[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_local_sgd_averages_full_models_after_every_zeta_steps(workers: int) -> None:
    model, seen = initial(), [batches(w) for w in range(workers)]
    for _ in range(STEPS // LOCAL):
        copies = [deepcopy(model) for _ in range(workers)]
        for copy, each in zip(copies, seen, strict=True):
            adam = torch.optim.Adam(copy.parameters(), LR)  # a new one in every round
            for _ in range(LOCAL):
                adam.zero_grad()
                loss(copy, next(each)).backward()
                adam.step()
        for parameters in zip(model.parameters(), *(copy.parameters() for copy in copies), strict=True):
            parameters[0].data = torch.stack([p.data for p in parameters[1:]]).mean(dim=0)
    gist = make("local-sgd", workers)
    fit(gist, optimizer_state="reset" if workers > 1 else "carry")
    if workers > 1:  # one worker is ordinary training, whose moments go on
        close(gist.model(), model)
    else:
        alone = make("gist", 1)
        fit(alone)
        assert all(torch.equal(t, gist.theta.place.tensors[n]) for n, t in alone.theta.place.tensors.items())


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_data_parallel_steps_by_the_mean_of_all_gradients(workers: int) -> None:
    model, seen = initial(), [batches(w) for w in range(workers)]
    adam = torch.optim.Adam(model.parameters(), LR)
    for _ in range(STEPS):
        adam.zero_grad()
        torch.stack([loss(model, next(each)) for each in seen]).mean().backward()
        adam.step()
    gist = make("data-parallel", workers)
    assert isinstance(gist, DataParallel)
    fit(gist)
    close(gist.model(), model)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_an_ensemble_averages_the_logits_of_members_at_their_best(members: int) -> None:
    subs = make("gist", members).begin_round().subs  # the first round's sub-GCNs, which are never merged
    best = []
    for i, sub in enumerate(subs):
        adam, each, found = torch.optim.Adam(sub.parameters(), LR), batches(i), (-1.0, torch.empty(0))
        for step in range(STEPS):
            adam.zero_grad()
            loss(sub, next(each)).backward()
            adam.step()
            if step % LOCAL == LOCAL - 1:
                logits = forward(sub, WHOLE).detach()
                validation = scores(logits, "validation")["accuracy"]
                found = max(found, (validation, logits), key=lambda pair: pair[0])
        best.append(found[1])
    expected = torch.stack(best).mean(dim=0)
    result = fit(make("ensemble", members))
    assert isinstance(result.model, EnsembleModel)
    assert len(result.model.members) == members
    torch.testing.assert_close(forward(result.model, WHOLE), expected, rtol=1e-4, atol=1e-5)
    assert result.test == scores(expected, "test")
    assert evaluate(result.model, GRAPH, ["test"])["test"] == result.test


@pytest.mark.parametrize("method", ["gist", "data-parallel", "local-sgd", "ensemble"])
def test_epochs_are_split_over_the_workers(method: str) -> None:
    progress = fit(make(method, 3), epochs=6, training="split").progress
    assert progress.history[-1]["step"] == 4  # of twelve steps, each takes a third
    assert progress.steps == 12
