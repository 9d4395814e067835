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

# The rates of widths are shown in tests/fit/test_width_scaling.py.
make = partial(make_scaled, width_scaling="none")
WHOLE = whole_graph(GRAPH)


def initial() -> nn.Module:
    """The full model as every method begins with it."""
    return make("gist", 2).model().train()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(forward(model, batch)[batch.loss_nodes], batch.y[batch.loss_nodes])


def scores(logits: torch.Tensor, split: str) -> dict[str, float]:
    predictions = Predictions.of([(slice(0, len(logits)), logits)], GRAPH)
    return score_predictions(predictions, GRAPH, [split])[split]


def close(model: nn.Module, expected: nn.Module) -> None:
    for name, tensor in named_tensors(expected).items():
        torch.testing.assert_close(named_tensors(model)[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_local_sgd_averages_full_models_after_every_zeta_steps(workers: int) -> None:
    model = initial()
    streams = [batches(w) for w in range(workers)]
    for _ in range(STEPS // LOCAL):
        copies = [deepcopy(model) for _ in range(workers)]
        for copy, stream in zip(copies, streams, strict=True):
            adam = torch.optim.Adam(copy.parameters(), LR)  # Every round has a new one.
            for _ in range(LOCAL):
                adam.zero_grad()
                loss(copy, next(stream)).backward()
                adam.step()
        for parameters in zip(
            model.parameters(), *(copy.parameters() for copy in copies), strict=True
        ):
            parameters[0].data = torch.stack([p.data for p in parameters[1:]]).mean(dim=0)
    gist = make("local-sgd", workers)
    fit(gist, optimizer_state="reset" if workers > 1 else "carry")
    if workers > 1:
        close(gist.model(), model)
    else:
        # One worker is ordinary training, whose moments go on.
        alone = make("gist", 1)
        fit(alone)
        for name, tensor in alone.theta.place.tensors.items():
            assert torch.equal(gist.theta.place.tensors[name], tensor), name


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_data_parallel_steps_by_the_mean_of_all_gradients(workers: int, norm: str) -> None:
    """Running statistics are those of the first worker's batches."""
    model = make("gist", 2, norm=norm).model().train()
    streams = [batches(w) for w in range(workers)]
    adam = torch.optim.Adam(model.parameters(), LR)
    for _ in range(STEPS):
        adam.zero_grad()
        first, *further = (next(stream) for stream in streams)
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
            actual = gist.model().get_buffer(name)
            torch.testing.assert_close(actual, buffer, rtol=1e-3, atol=1e-6)


def test_data_parallel_learns_many_classes_from_the_nodes_that_have_a_loss() -> None:
    """Of so many classes, a step computes the output of the other nodes no more."""
    classes = 60
    graph = replace(GRAPH, num_classes=classes)
    gist = DataParallel(
        lambda widths: GraphSAGE(F_IN, widths, classes), (8,), 2, seed=3, width_scaling="none"
    )
    model = deepcopy(gist.model()).train()
    adam = torch.optim.Adam(model.parameters(), LR)
    streams = [batches(w) for w in range(2)]
    for _ in range(STEPS):
        adam.zero_grad()
        torch.stack([loss(model, next(stream)) for stream in streams]).mean().backward()
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
        stream = batches(i)
        best_score = -1.0
        for step in range(STEPS):
            adam.zero_grad()
            loss(sub, next(stream)).backward()
            adam.step()
            if step % LOCAL == LOCAL - 1:
                logits = forward(sub, WHOLE).detach()
                score = scores(logits, "validation")["accuracy"]
                if score > best_score:
                    best_score = score
                    best_logits = logits
        best.append(best_logits)
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
class BatchesOfWorker(ClusterSampling):
    """The batches that the seed of the whole run gives to one of its workers."""

    worker: int = 0

    def sampler(self, batch: Batch, seed: int, layers: int | None = None) -> Sampler:
        return super().sampler(batch, 3, layers).with_independent_batches().for_sub_gcn(self.worker)


def narrow(widths: tuple[int, ...], i: int, **options: Any) -> GIST:
    """An ordinary run of a narrow model, with the seed of member i."""
    seed = 3 if i == 0 else int(generator(3, "part", i).integers(2**31))
    return GIST(lambda w: build(w, **options), widths, 1, seed=seed, width_scaling="none")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("training", ["split", "each"])
@pytest.mark.parametrize("kind", ["full", "shared clusters", "own clusters"])
def test_each_member_is_an_ordinary_run_of_a_narrow_model(kind: str, training: str) -> None:
    """Bit for bit, at its own best score, with its own seed.

    Of the clusters each member sees others, and a whole graph is seen by all. There are dropout,
    batch norm and carried moments, and the number of steps is odd, so the last round is shorter.
    """
    m = 3
    normed = {"dropout": 0.4, "norm": "batch"}
    epochs_of_member = 7 if kind == "full" else 3.5  # An epoch of clusters has two steps.
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
    epochs = epochs_of_member if training == "each" else m * epochs_of_member
    result = fit(gist, epochs=epochs, training=training, sampler=sampler, **options)
    histories = list[list[dict[str, Any]]]()
    seen = list[dict[str, torch.Tensor]]()
    for i, blocks in enumerate(gist.blocks(0)):
        sampler_of_member = None
        if sampler is not None:
            settings = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
            sampler_of_member = BatchesOfWorker(**settings, worker=i)
        member = narrow(tuple(map(len, blocks)), i, **normed)
        alone = fit(member, epochs=epochs_of_member, sampler=sampler_of_member, **options)
        histories.append(alone.history)
        seen.append(named_tensors(alone.model))
        tensors = named_tensors(result.model.members[i])
        assert tensors.keys() == seen[i].keys()
        for name, tensor in seen[i].items():
            assert torch.equal(tensors[name], tensor), (i, name)
    assert not torch.equal(seen[0]["convs.2.bias"], seen[1]["convs.2.bias"])
    assert [entry["round"] for entry in result.history] == [1, 2, 3, 4]
    for *entries, entry in zip(*histories, result.history, strict=True):
        assert entry["loss"] == pytest.approx(sum(of_member["loss"] for of_member in entries) / m)
        assert entry["step"] == entries[0]["step"]
        assert entry["epoch"] == pytest.approx(entries[0]["epoch"] * epochs / epochs_of_member)
        if entry is not result.history[-1]:  # The last one has the scores of the ensemble.
            assert entry["validation"] == pytest.approx(
                sum(of_member["validation"] for of_member in entries) / m
            )
    outputs = [forward(member, WHOLE).detach() for member in result.model.members]
    logits = torch.stack(outputs).mean(dim=0)
    accuracy = scores(logits, "validation")["accuracy"]
    assert result.validation["accuracy"] == accuracy
    assert result.history[-1]["validation"] == accuracy
    assert result.test == scores(logits, "test")


@pytest.mark.parametrize("method", METHODS)
def test_epochs_are_split_over_the_workers(method: str) -> None:
    progress = fit(make(method, 3), epochs=6, training="split").progress
    assert progress.history[-1]["step"] == 4, "each takes a third of twelve steps"
    assert progress.history[-1]["epoch"] == 6
    assert progress.steps == 12
