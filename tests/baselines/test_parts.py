"""Parts: narrow models that train by themselves, beside the same models trained one by one, and
joined by hand.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gistgnn import GIST, DivergedError, InputError, Parts, Result, Saving, join
from gistgnn.baselines import Ensemble
from gistgnn.evaluation import evaluate
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling, forward, whole_graph
from gistgnn.theta.registry import Store
from gistgnn.utils.random_streams import generator
from tests.helpers.models import OURS, C, tiny_graph
from tests.helpers.resuming import after

GRAPH = tiny_graph()
SETTINGS: dict[str, Any] = {
    "epochs": 24,
    "local_steps": 2,
    "lr": 0.05,
    "evaluate_every": 2,
    "standardise": False,
}


def build(widths: Any) -> nn.Module:
    return OURS["graphsage"](widths, dropout=0.3, norm="none")


def fit(trainer: GIST, **options: Any) -> Result:
    return trainer.fit(GRAPH, progress=False, **{**SETTINGS, **options})


def output(model: nn.Module) -> torch.Tensor:
    with evaluation_mode(model):
        return forward(model, whole_graph(GRAPH))


def seeds(count: int, seed: int) -> list[int]:
    """The first part has the run's seed; the others have seeds that follow from it."""
    return [seed, *(int(generator(seed, "part", i).integers(2**31)) for i in range(1, count))]


@pytest.mark.parametrize(("training", "epochs"), [("split", 8), ("each", 24)])
def test_parts_are_narrow_models_of_their_own(training: Any, epochs: int) -> None:
    """On the whole graph, which all parts see alike, each is the ordinary training of a narrow
    model.
    """
    result = fit(Parts(build, (12, 9), 3, seed=5), training=training)
    alone = [fit(GIST(build, (4, 3), 1, seed=seed), epochs=epochs) for seed in seeds(3, 5)]
    joined = join(build, [each.model for each in alone], (12, 9))
    torch.testing.assert_close(output(result.model), output(joined))
    mean = sum(output(each.model) for each in alone) / 3
    torch.testing.assert_close(output(result.model), mean)
    assert result.progress.steps == sum(each.progress.steps for each in alone)
    assert result.history[0]["loss"] == pytest.approx(
        sum(each.history[0]["loss"] for each in alone) / 3
    )
    for split in ("validation", "test"):
        assert getattr(result, split) == evaluate(result.model, GRAPH, (split,))[split]


def test_every_part_is_kept_at_its_own_best() -> None:
    options: dict[str, Any] = {"lr": 1.5, "epochs": 90, "evaluate_every": 1, "schedule": "constant"}
    result = fit(Parts(build, (12, 9), 3, seed=2), **options)
    alone = [
        fit(GIST(build, (4, 3), 1, seed=seed), **{**options, "epochs": 30}) for seed in seeds(3, 2)
    ]
    assert len({each.progress.best_round for each in alone}) > 1, "the test can tell"
    assert any(each.progress.best_round < each.progress.rounds for each in alone)
    torch.testing.assert_close(
        output(result.model), output(join(build, [each.model for each in alone], (12, 9)))
    )


def test_parts_have_batches_of_their_own() -> None:
    seen: list[list[int]] = []

    class Watching(GCN):
        def forward(self, x: torch.Tensor, adj: Any) -> torch.Tensor:
            if self.training:
                seen[-1].append(hash(x.numpy().tobytes()))
            return super().forward(x, adj)

    class Watch:
        def on_fit_begin(self, run: Any) -> None:
            seen.append([])

    sampler = ClusterSampling(6, 2, "random")
    trainer = Parts(lambda widths: Watching(GRAPH.num_features, widths, C), (12, 9), 3)
    fit(trainer, sampler=sampler, callbacks=[Watch()])
    assert len(seen) == 3
    assert len({tuple(steps) for steps in seen}) == 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("store", ["memory", "host", "disk", "disk bf16"])
def test_the_wide_model_is_the_same_wherever_it_is_put_together(store: str, tmp_path: Path) -> None:
    kind, _, precision = store.partition(" ")
    place = Store.in_run(kind, tmp_path / "theta", precision or "float32")
    expected = fit(Parts(build, (12, 9), 3)).model
    found = fit(Parts(build, (12, 9), 3, store=place)).model
    for name, tensor in named_tensors(expected).items():
        if precision:
            tensor = tensor.bfloat16().to(tensor.dtype)
        assert torch.equal(named_tensors(found)[name], tensor), name


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", [Parts, Ensemble])
@pytest.mark.parametrize("asked", [1, 7, 9])
def test_an_interrupted_run_resumes_as_if_nothing_had_happened(
    method: Any, asked: int, tmp_path: Path
) -> None:
    """In the first part, and in the last one; the model so far has copies of what is trained."""
    whole = fit(method(build, (12, 9), 3))
    saving = Saving(tmp_path / "c", every=1)
    cut = fit(method(build, (12, 9), 3), saving=saving, callbacks=after(asked))
    assert cut.interrupted
    assert bool(cut.history) == (asked > 1)
    if cut.history:
        assert cut.test == evaluate(cut.model, GRAPH, ("test",))["test"]
    rest = fit(method(build, (12, 9), 3), saving=Saving(tmp_path / "c", every=1, resume=True))
    assert not rest.interrupted
    for name, tensor in named_tensors(whole.model).items():
        assert torch.equal(named_tensors(rest.model)[name], tensor), name
    assert [entry["validation"] for entry in rest.history] == [
        entry["validation"] for entry in whole.history
    ]


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    fit(Parts(build, (12, 9), 3), saving=Saving(tmp_path / "c"))
    with pytest.raises(InputError, match="sub_gcns was 3, now 2"):
        fit(Parts(build, (12, 9), 2), saving=Saving(tmp_path / "c", resume=True))


def test_an_ensemble_averages_what_parts_join() -> None:
    parts = fit(Parts(build, (12, 9), 3))
    ensemble = fit(Ensemble(build, (12, 9), 3))
    torch.testing.assert_close(output(parts.model), output(ensemble.model))
    alone = [fit(GIST(build, (4, 3), 1, seed=seed), epochs=8) for seed in seeds(3, 0)]
    for i, each in enumerate(alone):
        for name, tensor in named_tensors(each.model).items():
            assert torch.equal(ensemble.model.get_parameter(f"members.{i}.{name}"), tensor)


def test_widths_need_not_be_multiples() -> None:
    result = fit(Parts(build, (13, 10), 3))
    assert [axis.blocks for axis in result.partition] == [[5, 4, 4], [4, 3, 3]]
    assert result.test == evaluate(result.model, GRAPH, ("test",))["test"]


def test_numbers_are_predicted_by_the_mean() -> None:
    graph = tiny_graph()
    y = torch.stack([graph.x[:, 0], graph.x[:, 1]], dim=1)
    from dataclasses import replace

    numbers = replace(graph, y=y, num_classes=2, class_names=(), regression=True)
    trainer = Parts(lambda w: GCN(graph.num_features, w, 2, dropout=0.0), (12, 9), 3)
    result = trainer.fit(numbers, progress=False, **{**SETTINGS, "epochs": 300})
    assert (
        result.validation["r2"]
        == evaluate(result.model, numbers, ("validation",))["validation"]["r2"]
    )


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Parts(lambda w: GCN(w[0], w[1:], C), (8, 12, 9), 3, input_axis=0),
        lambda: Parts(build, (12, 9), 3, whole=[1]),
        lambda: fit(
            Parts(build, (12, 9), 3), budget=1.0, epochs=None, local_steps=None, evaluate_every=None
        ),
        lambda: fit(Parts(build, (12, 9), 3), init=GIST(build, (12, 9), 1).model()),
        lambda: Parts(build, (12, 9), 13),
    ],
)
def test_what_parts_cannot_do_is_refused(refused: Any) -> None:
    with pytest.raises(InputError):
        refused()


def test_a_limit_of_time_is_shared_by_the_parts() -> None:
    result = fit(Parts(build, (12, 9), 3), epochs=10**6, max_seconds=3.0, evaluate_every=None)
    assert result.progress.stopped_by == "max_seconds"
    assert result.test == evaluate(result.model, GRAPH, ("test",))["test"]


def test_a_part_that_diverges_ends_the_run_with_what_there_is() -> None:
    class Bad(GCN):
        """The second part that is built for training has an output that is not finite after a few
        steps.
        """

        def forward(self, x: torch.Tensor, adj: Any) -> torch.Tensor:
            if self.training and counted["parts"] == 2:
                counted["steps"] += 1
                if counted["steps"] > 5:
                    return super().forward(x, adj) * torch.nan
            return super().forward(x, adj)

    class Count:
        def on_fit_begin(self, run: Any) -> None:
            counted["parts"] += 1

    counted = {"parts": 0, "steps": 0}
    trainer = Parts(lambda w: Bad(GRAPH.num_features, w, C), (12, 9), 3)
    with pytest.raises(DivergedError) as raised:
        fit(trainer, callbacks=[Count()])
    result = raised.value.result
    assert result.diverged == str(raised.value)
    assert (
        named_tensors(result.model)["convs.0.weight"].shape
        == named_tensors(trainer.model())["convs.0.weight"].shape
    )
    assert result.test == evaluate(result.model, GRAPH, ("test",))["test"]
    assert counted["parts"] == 2
