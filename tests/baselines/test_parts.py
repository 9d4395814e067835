"""Parts are narrow models that train by themselves.

They are compared with the same models trained one by one and joined by hand.
"""

import time
from dataclasses import replace
from functools import partial
from itertools import count
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


def seeds(parts: int, seed: int) -> list[int]:
    """The first part has the run's seed; the others have seeds that follow from it."""
    return [seed, *(int(generator(seed, "part", i).integers(2**31)) for i in range(1, parts))]


@pytest.mark.parametrize(("training", "epochs"), [("split", 8), ("each", 24)])
def test_parts_are_narrow_models_of_their_own(training: Any, epochs: int) -> None:
    """On the whole graph, each part is the ordinary training of a narrow model."""
    result = fit(Parts(build, (12, 9), 3, seed=5), training=training)
    alone = [fit(GIST(build, (4, 3), 1, seed=seed), epochs=epochs) for seed in seeds(3, 5)]
    joined = join(build, [run.model for run in alone], (12, 9))
    torch.testing.assert_close(output(result.model), output(joined))
    mean = sum(output(run.model) for run in alone) / 3
    torch.testing.assert_close(output(result.model), mean)
    assert result.progress.steps == sum(run.progress.steps for run in alone)
    mean_loss = sum(run.history[0]["loss"] for run in alone) / 3
    assert result.history[0]["loss"] == pytest.approx(mean_loss)
    for split in ("validation", "test"):
        assert getattr(result, split) == evaluate(result.model, GRAPH, (split,))[split]


def test_every_part_is_kept_at_its_own_best() -> None:
    options: dict[str, Any] = {"lr": 1.5, "epochs": 90, "evaluate_every": 1, "schedule": "constant"}
    result = fit(Parts(build, (12, 9), 3, seed=2), **options)
    options["epochs"] = 30
    alone = [fit(GIST(build, (4, 3), 1, seed=seed), **options) for seed in seeds(3, 2)]
    assert len({run.progress.best_round for run in alone}) > 1, "the test can tell"
    assert any(run.progress.best_round < run.progress.rounds for run in alone)
    joined = join(build, [run.model for run in alone], (12, 9))
    torch.testing.assert_close(output(result.model), output(joined))


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
    theta_store = Store.in_run(kind, tmp_path / "theta", precision or "float32")
    expected = fit(Parts(build, (12, 9), 3)).model
    model = fit(Parts(build, (12, 9), 3, store=theta_store)).model
    for name, tensor in named_tensors(expected).items():
        if precision:
            tensor = tensor.bfloat16().to(tensor.dtype)
        assert torch.equal(named_tensors(model)[name], tensor), name


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", [Parts, Ensemble])
@pytest.mark.parametrize("rounds", [1, 7, 9])
def test_an_interrupted_run_resumes_as_if_nothing_had_happened(
    method: Any, rounds: int, tmp_path: Path
) -> None:
    """In the first part, and in the last one; the model so far has copies of what is trained."""
    unbroken = fit(method(build, (12, 9), 3))
    saving = Saving(tmp_path / "c", every=1)
    cut = fit(method(build, (12, 9), 3), saving=saving, callbacks=after(rounds))
    assert cut.interrupted
    assert bool(cut.history) == (rounds > 1)
    if cut.history:
        assert cut.test == evaluate(cut.model, GRAPH, ("test",))["test"]
    resumed = fit(method(build, (12, 9), 3), saving=Saving(tmp_path / "c", every=1, resume=True))
    assert not resumed.interrupted
    for name, tensor in named_tensors(unbroken.model).items():
        assert torch.equal(named_tensors(resumed.model)[name], tensor), name
    assert [entry["validation"] for entry in resumed.history] == [
        entry["validation"] for entry in unbroken.history
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
    for i, run in enumerate(alone):
        for name, tensor in named_tensors(run.model).items():
            assert torch.equal(ensemble.model.get_parameter(f"members.{i}.{name}"), tensor)


def test_widths_need_not_be_multiples_of_the_number_of_parts() -> None:
    result = fit(Parts(build, (13, 10), 3))
    assert [axis.blocks for axis in result.partition] == [[5, 4, 4], [4, 3, 3]]
    assert result.test == evaluate(result.model, GRAPH, ("test",))["test"]


def test_numbers_are_predicted_by_the_mean() -> None:
    numbers = replace(
        GRAPH, y=GRAPH.x[:, :2].clone(), num_classes=2, class_names=(), regression=True
    )

    def build(widths: Any) -> nn.Module:
        return GCN(GRAPH.num_features, widths, 2, dropout=0.0)

    def trained(trainer: GIST, epochs: int) -> Result:
        return trainer.fit(numbers, progress=False, **{**SETTINGS, "epochs": epochs})

    result = trained(Parts(build, (12, 9), 3), 300)
    scores = evaluate(result.model, numbers, ("validation",))["validation"]
    assert result.validation["r2"] == scores["r2"]
    alone = [trained(GIST(build, (4, 3), 1, seed=seed), 100) for seed in seeds(3, 0)]
    mean = sum(output(run.model) for run in alone) / 3
    torch.testing.assert_close(output(result.model), mean, rtol=1e-4, atol=1e-5)


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


def test_a_limit_of_time_is_shared_by_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes 2 ms, so the parts have about as many rounds each."""
    monkeypatch.setattr(time, "perf_counter", partial(next, count(step=0.002)))
    rounds_of_parts: dict[str, int] = {}

    class Watch:
        def on_round_end(self, run: Any, loss: float) -> None:
            rounds_of_parts[run.part] = run.round

    options: dict[str, Any] = {"epochs": 10**6, "max_seconds": 3.0, "evaluate_every": None}
    result = fit(Parts(build, (12, 9), 3), callbacks=[Watch()], **options)
    assert result.progress.stopped_by == "max_seconds"
    assert result.test == evaluate(result.model, GRAPH, ("test",))["test"]
    assert [*rounds_of_parts] == [f"part {i} of 3" for i in (1, 2, 3)]
    assert max(rounds_of_parts.values()) < 1.5 * min(rounds_of_parts.values())


def test_a_part_that_diverges_ends_the_run_with_what_there_is() -> None:
    class Bad(GCN):
        """The output of the second part is not finite after a few steps."""

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
