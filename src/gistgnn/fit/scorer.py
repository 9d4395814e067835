"""Score Θ between rounds: the full model on its device, and its scores on the whole graph."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.evaluation import Evaluation, Inference
from gistgnn.evaluation.scores import Predictions, evaluation_mode, score_predictions
from gistgnn.graphs import Graph
from gistgnn.sampling import Batch, check_fits, whole_graph
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.theta import Theta
from gistgnn.training.metric import Metric

ScoreTable = dict[str, dict[str, float]]  # split -> score -> value

SCORED = ("validation", "test")


class Running:
    """The full model on rank 0 with the parameters that Θ has at the time, kept from one evaluation to the next."""

    def __init__(self, theta: Theta, spec: ModelSpec) -> None:
        self.theta, self._spec = theta, spec
        self.ranks = theta.exchange.ranks
        self._module: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        """The model as it was when it was last refreshed; for rank 0."""
        assert self._module is not None
        return self._module

    def refresh(self) -> None:
        """Give the model the parameters that Θ has now; all ranks call this."""
        model = self.theta.running_model(self._spec, self._module)
        self._module = model if self.ranks.leads else None

    def best(self) -> nn.Module:
        """The model with the parameters of the best Θ; all ranks call this."""
        return self.theta.full_model(self._spec, best=True, module=self._module)


class Scorer:
    """Runs the full model on the whole graph, on rank 0, and scores its output.

    Args:
        running: the full model with the parameters of Θ.
        graph: the graph with its labels and splits.
        metric: the score that chooses the best Θ.

    Attributes:
        description: the "evaluation" field of result.json.
        latest_counts: the result is the model at the end of the run, not at its best validation score.
    """

    latest_counts = False

    def __init__(self, running: Running, graph: Graph, metric: Metric) -> None:
        self._running, self._graph, self.metric = running, graph, metric
        self._prepare: Callable[[nn.Module], Inference] | None = None
        self._inference: Inference | None = None
        self._narrow: tuple[list[torch.Size], Inference] | None = None  # of a stand-in of these shapes
        self.description: dict[str, Any] = {}
        self._passes: list[float] = []  # seconds of each

    @property
    def seconds(self) -> float | None:
        """The median seconds of a pass over the whole graph; None before the first."""
        return statistics.median(self._passes) if self._passes else None

    def prepare(self, evaluation: Evaluation, first: Batch, classes: int | None, seed: int) -> None:
        """Try the model on a batch, and prepare everything that stays the same in all evaluations.

        Args:
            evaluation: how the model is run on the whole graph.
            first: a batch.
            classes: how many outputs the model must have; None: any number.
            seed: of the run.
        """

        def work() -> dict[str, Any]:
            check_fits(self._running.module, first, classes, self._graph.edge_data)
            batch, wanted = whole_graph(self._graph), self._graph.val | self._graph.test
            self._prepare = partial(evaluation.prepare, batch=batch, seed=seed, wanted=wanted)
            self._inference = self._prepare(self._running.module)
            return self._inference.describe()

        self._running.refresh()
        self.description = self._running.ranks.lead(work)

    def __call__(self, stand_in: nn.Module | None = None) -> ScoreTable:
        """Return the scores on validation and test nodes, on every rank.

        Args:
            stand_in: a narrow model that has the output of the full model; None: there is none.
        """
        ranks = self._running.ranks
        if ranks.lead(lambda: stand_in is None):  # the other ranks have no stand-in
            self._running.refresh()
        return ranks.lead(lambda: self._score(stand_in))

    def _score(self, stand_in: nn.Module | None) -> ScoreTable:
        if stand_in is not None:
            return self._table(self._predicted(stand_in, self._inference_of(stand_in)))
        begun = time.perf_counter()
        found = self._predicted(self._running.module)
        self._passes.append(time.perf_counter() - begun)
        return self._table(found)

    def _inference_of(self, stand_in: nn.Module) -> Inference:
        shapes = [parameter.shape for parameter in stand_in.parameters()]
        if self._narrow is None or self._narrow[0] != shapes:
            assert self._prepare is not None
            self._narrow = shapes, self._prepare(stand_in)
        return self._narrow[1]

    def _predicted(self, model: nn.Module, inference: Inference | None = None) -> Predictions:
        """What the model predicts for every node; waits for the GPU."""
        assert self._inference is not None
        with evaluation_mode(model):
            found = Predictions.of((inference or self._inference).outputs(model), self._graph, self.metric)
        self._wait()
        return found

    def _logits(self, model: nn.Module) -> Tensor:
        """The model's output for every node, [N, C]; waits for the GPU."""
        assert self._inference is not None
        with evaluation_mode(model):
            logits = self._inference.logits(model)
        self._wait()
        return logits

    def _wait(self) -> None:
        device = self._graph.y.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def _table(self, found: Predictions) -> ScoreTable:
        assert self._inference is not None
        return score_predictions(found, self._graph, SCORED, self._inference, self.metric)
