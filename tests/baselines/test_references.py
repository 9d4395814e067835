"""Each baseline against itself, written in ten lines."""

from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gistgnn import GIST
from gistgnn.baselines import DataParallel
from gistgnn.baselines.registry import METHODS
from gistgnn.evaluation.scores import Predictions, evaluate, score_predictions
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GraphSAGE
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.sampling import Batch, ClusterSampling, Sampler, forward, whole_graph
from gistgnn.utils.random_streams import generator
from tests.helpers.models import PLAIN
from tests.helpers.models import F as F_IN

from .cases import BATCHES, GRAPH, LOCAL, LR, STEPS, batches, build, fit
from .cases import make as make_scaled

# tests/fit/test_width_scaling.py shows the other rates
make = partial(make_scaled, width_scaling="none")
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
    model = initial()
    seen = [batches(w) for w in range(workers)]
    for _ in range(STEPS // LOCAL):
        copies = [deepcopy(model) for _ in range(workers)]
        for copy, each in zip(copies, seen, strict=True):
            adam = torch.optim.Adam(copy.parameters(), LR)  # a new one in every round
            for _ in range(LOCAL):
                adam.zero_grad()
                loss(copy, next(each)).backward()
                adam.step()
        for parameters in zip(
            model.parameters(), *(copy.parameters() for copy in copies), strict=True
        ):
            parameters[0].data = torch.stack([p.data for p in parameters[1:]]).mean(dim=0)
    gist = make("local-sgd", workers)
    fit(gist, optimizer_state="reset" if workers > 1 else "carry")
    if workers > 1:  # one worker is ordinary training, whose moments go on
        close(gist.model(), model)
    else:
        alone = make("gist", 1)
        fit(alone)
        assert all(
            torch.equal(t, gist.theta.place.tensors[n])
            for n, t in alone.theta.place.tensors.items()
        )


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_data_parallel_steps_by_the_mean_of_all_gradients(workers: int, norm: str) -> None:
    """Running statistics are those of the first worker's batches."""
    model = make("gist", 2, norm=norm).model().train()
    seen = [batches(w) for w in range(workers)]
    adam = torch.optim.Adam(model.parameters(), LR)
    for _ in range(STEPS):
        adam.zero_grad()
        first, *further = (next(each) for each in seen)
        losses = [loss(model, first)]
        statistics = [buffer.clone() for buffer in model.buffers()]
        losses += [loss(model, batch) for batch in further]
        torch.stack(losses).mean().backward()
        for buffer, value in zip(model.buffers(), statistics, strict=True):
            buffer.copy_(value)
        adam.step()
    gist = make("data-parallel", workers, norm=norm)
    assert isinstance(gist, DataParallel)
    fit(gist)
    if norm == "none":
        close(gist.model(), model)
    # A bias before a norm has no gradient but for rounding, of which Adam makes a large step.
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            found = gist.model().get_buffer(name)
            torch.testing.assert_close(found, buffer, rtol=1e-3, atol=1e-6)


def test_data_parallel_learns_many_classes_from_the_nodes_that_have_a_loss() -> None:
    """Of so many classes, a step computes the output of the other nodes no more."""
    classes = 60
    graph = replace(GRAPH, num_classes=classes)
    gist = DataParallel(
        lambda widths: GraphSAGE(F_IN, widths, classes), (8,), 2, seed=3, width_scaling="none"
    )
    model = deepcopy(gist.model()).train()
    adam = torch.optim.Adam(model.parameters(), LR)
    seen = [batches(w) for w in range(2)]
    for _ in range(STEPS):
        adam.zero_grad()
        torch.stack([loss(model, next(each)) for each in seen]).mean().backward()
        adam.step()
    settings = {**PLAIN, "epochs": STEPS // 2, "training": "each", "local_steps": LOCAL, "lr": LR}
    gist.fit(graph, sampler=BATCHES, progress=False, **settings)
    close(gist.model(), model)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_an_ensemble_averages_the_logits_of_members_at_their_best(members: int) -> None:
    best = []
    for i, blocks in enumerate(make("gist", members).blocks(0)):
        sub = narrow(tuple(map(len, blocks)), i).model().train()
        adam = torch.optim.Adam(sub.parameters(), LR)
        each = batches(i)
        found = (-1.0, torch.empty(0))
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
    gist = make("ensemble", members)
    result = fit(gist)
    assert isinstance(result.model, EnsembleModel)
    assert len(result.model.members) == members
    torch.testing.assert_close(forward(result.model, WHOLE), expected, rtol=1e-4, atol=1e-5)
    assert result.test == scores(expected, "test")
    assert evaluate(result.model, GRAPH, ["test"])["test"] == result.test
    for model in (result.model, gist.model()):
        assert not any(module.training for module in model.modules())
        assert torch.equal(forward(model, WHOLE), forward(result.model, WHOLE))


@dataclass(frozen=True)
class Given(ClusterSampling):
    """The batches that the seed of the whole run gives to one of its workers."""

    worker: int = 0

    def sampler(self, batch: Batch, seed: int, layers: int | None = None) -> Sampler:
        return super().sampler(batch, 3, layers).with_independent_batches().for_sub_gcn(self.worker)


def narrow(widths: tuple[int, ...], i: int, **options: Any) -> GIST:
    """An ordinary run of a narrow model, with the seed of member i."""
    seed = 3 if i == 0 else int(generator(3, "part", i).integers(2**31))
    return GIST(lambda w: build(w, **options), widths, 1, seed=seed, width_scaling="none")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["split", "each"])
@pytest.mark.parametrize("kind", ["full", "shared clusters", "own clusters"])
def test_each_member_is_an_ordinary_run_of_a_narrow_model(kind: str, how: str) -> None:
    """Bit for bit, at its own best score, with its own seed; of the clusters each sees others, and
    all see a graph.

    With dropout and batch norm, carried moments, and an odd number of steps of each, so that its
    last round is shorter.
    """
    m = 3
    normed = {"dropout": 0.4, "norm": "batch"}
    steps = 7 if kind == "full" else 3.5  # an epoch of clusters has two
    options: dict[str, Any] = {
        "optimizer_state": "carry",
        "schedule": "cosine",
        "evaluate_every": 1,
    }
    gist = make("ensemble", m, **normed)
    sampler = {
        "full": None,
        "shared clusters": replace(BATCHES, batches="shared"),
        "own clusters": BATCHES,
    }[kind]
    epochs = steps if how == "each" else m * steps
    result = fit(gist, epochs=epochs, training=how, sampler=sampler, **options)
    histories = list[list[dict[str, Any]]]()
    seen = list[dict[str, torch.Tensor]]()
    for i, blocks in enumerate(gist.blocks(0)):
        given = (
            None
            if sampler is None
            else Given(**{f.name: getattr(sampler, f.name) for f in fields(sampler)}, worker=i)
        )
        alone = fit(
            narrow(tuple(map(len, blocks)), i, **normed), epochs=steps, sampler=given, **options
        )
        histories.append(alone.history)
        seen.append(named_tensors(alone.model))
        found = named_tensors(result.model.members[i])
        assert found.keys() == seen[i].keys()
        for name, tensor in seen[i].items():
            assert torch.equal(found[name], tensor), (i, name)
    assert not torch.equal(seen[0]["convs.2.bias"], seen[1]["convs.2.bias"])
    assert [entry["round"] for entry in result.history] == [1, 2, 3, 4]
    for *own, entry in zip(*histories, result.history, strict=True):
        assert entry["loss"] == pytest.approx(sum(each["loss"] for each in own) / m)
        assert entry["step"] == own[0]["step"]
        assert entry["epoch"] == pytest.approx(own[0]["epoch"] * epochs / steps)
        if entry is not result.history[-1]:  # which has the scores of the ensemble
            assert entry["validation"] == pytest.approx(sum(each["validation"] for each in own) / m)
    logits = torch.stack([forward(member, WHOLE).detach() for member in result.model.members]).mean(
        dim=0
    )
    assert (
        result.history[-1]["validation"]
        == result.validation["accuracy"]
        == scores(logits, "validation")["accuracy"]
    )
    assert result.test == scores(logits, "test")


@pytest.mark.parametrize("method", METHODS)
def test_epochs_are_split_over_the_workers(method: str) -> None:
    progress = fit(make(method, 3), epochs=6, training="split").progress
    assert progress.history[-1]["step"] == 4  # of twelve steps, each takes a third
    assert progress.history[-1]["epoch"] == 6
    assert progress.steps == 12
