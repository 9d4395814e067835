"""Score Θ between rounds: run the full model on the whole graph."""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from gistgnn.errors import InputError
from gistgnn.evaluation import Inference
from gistgnn.evaluation.scores import (
    OF_LABELS,
    SPLITS,
    Predictions,
    ScoreTable,
    evaluation_mode,
    nodes_in_words,
    note_on_outputs,
    score_of_outputs,
    score_predictions,
)
from gistgnn.evaluation.temperature import fitted_temperature, fitting_nodes
from gistgnn.fit.prepare import Setup
from gistgnn.sampling import Batch, check_fits, forward, whole_graph
from gistgnn.training.metric import has_output, scores_of_classes

Scored = tuple[ScoreTable, list[dict[str, Any]], float | None]
"""The scores of the splits, those of the classes, and the temperature."""

SCORED = ("validation", "test")
MOST_CLASSES = 100  # Of graphs with more, the classes are not scored one by one.

log = logging.getLogger(__name__)


class Scorer:
    """Scores Θ: rank 0 runs the full model on the whole graph.

    Args:
        setup: of the run. The metric, the loss and the model are tried on the graph, and refused if
            they do not go together.
        first: a batch, on which the model is tried.

    Attributes:
        description: how the model is evaluated, the entry "evaluation" of result.json.
        passes: the seconds of each pass over the whole graph.
        classes: the scores of the classes in the last evaluation.
        temperature: of the last evaluation; see `fitted_temperature`.
    """

    def __init__(self, setup: Setup, first: Batch) -> None:
        self._gist = setup.gist
        self._graph = setup.graph
        self._metric = setup.metric
        self._has_any_outputs = setup.any_outputs
        self._prepare: Callable[..., Inference] = partial(
            setup.arguments.evaluation.prepare,
            seed=setup.gist.seed,
            batch=whole_graph(setup.graph),
            wanted=setup.graph.val | setup.graph.test,
        )
        # Rank 0 has the full model, with the values of the last evaluation, and how it is run.
        self._model: Any = None
        self._inference: Inference
        self.passes: list[float] = []
        self.classes: list[dict[str, Any]] = []
        self.temperature: float | None = None
        self._fitting = fitting_nodes(setup.graph.val)
        self._noted: set[str] = set()  # The kinds of notes that have been logged.
        self._refresh_model()
        self.description = self._gist.ranks.lead(lambda: self._try_model(first))

    def _refresh_model(self) -> None:
        """Give the model the values that Θ has now; all ranks call this."""
        model = self._gist.theta.running_model(self._gist.trained_spec, self._model)
        self._model = model if self._gist.ranks.leads else None

    def _try_model(self, first: Batch) -> dict[str, Any]:
        """Refuse a model or a metric that does not fit the graph; describe the evaluation."""
        graph = self._graph
        classes = None if self._has_any_outputs else graph.num_classes
        check_fits(self._model, first, classes, graph.edge_data, self._gist.layout.unused)
        self._inference = self._prepare(self._model)
        self._try_metric(first)
        return self._inference.describe()

    def _try_metric(self, first: Batch) -> None:
        """Refuse a metric that cannot score random outputs for the validation nodes.

        One that cannot score the test nodes is noted. A split may lack a class, for example,
        without which ROC AUC is not defined.
        """
        graph = self._graph
        rng = torch.Generator().manual_seed(0)
        if any(self._metric is metric for metric in OF_LABELS):  # These are always defined.
            return
        samples: torch.Tensor | None = None
        if self._has_any_outputs:  # The user's own metric may expect outputs of any range.
            with evaluation_mode(self._model):
                samples = forward(self._model, first)
            samples = samples[has_output(samples)].float()
            if not len(samples):
                return
        for split in SCORED:
            mask = getattr(graph, SPLITS[split])
            mask = mask if self._inference.nodes is None else mask & self._inference.nodes
            if not mask.any():
                continue
            if samples is None:
                logits = torch.randn(int(mask.sum()), graph.num_classes, generator=rng).to(
                    graph.y.device
                )
            else:
                chosen = torch.randint(len(samples), (int(mask.sum()),), generator=rng)
                logits = samples[chosen.to(samples.device)]
            try:
                score_of_outputs(self._metric, logits, graph.y[mask])
            except InputError as error:
                text = f"the metric {self._metric.name} cannot score the {split} nodes: {error}"
                if split == "validation":
                    raise InputError(
                        f"{text}; choose another metric or other {split} nodes"
                    ) from error
                self._note(
                    f"{split} {self._metric.name}", f"{text}; there will be no {split} score"
                )

    def nodes_without_output(self, model: nn.Module, batches: Iterable[Batch]) -> str | None:
        """Return in words for which training nodes a model has no finite output.

        They are looked for in the graph, and then in batches, where a node may lack the edges that
        it has in the graph. Returns None if all outputs are finite.
        """
        graph = self._graph
        with evaluation_mode(model):
            outputs = self._prepare(model, wanted=graph.train).outputs(model)
            not_finite = Predictions.of(outputs, graph).not_finite
            if not_finite is not None and bool((not_finite & graph.train).any()):
                return nodes_in_words(
                    graph, not_finite & graph.train, "training nodes", int(graph.train.sum())
                )
            for batch in batches:
                finite = has_output(forward(model, batch)[batch.loss_nodes])
                if count := int((~finite).sum()):
                    return f"{count:,} of the {len(finite):,} training nodes of a batch"
        return None

    def _note(self, kind: str, text: str) -> None:
        """Log a note, once a run for each kind."""
        if kind not in self._noted:
            self._noted.add(kind)
            log.warning(text)

    def __call__(self) -> ScoreTable:
        """Return the scores of the validation nodes and of the test nodes, on every rank.

        A graph without test nodes has no test scores.
        """
        self._refresh_model()
        table, self.classes, self.temperature = self._gist.ranks.lead(self._score)
        return table

    def _score(self) -> Scored:
        model = self._model
        begun = time.perf_counter()
        with evaluation_mode(model):
            predictions = Predictions.of(
                self._inference.outputs(model), self._graph, self._metric, self._fitting
            )
        if self._graph.y.is_cuda:
            torch.cuda.synchronize(self._graph.y.device)
        self.passes.append(time.perf_counter() - begun)
        return self._score_predictions(predictions)

    def _score_predictions(self, predictions: Predictions) -> Scored:
        graph = self._graph
        classes = list[dict[str, Any]]()
        temperature = None
        labels = predictions.labels
        if note := note_on_outputs(predictions, graph):
            self._note("outputs", note)
        if labels is not None and not graph.multi_label and graph.num_classes <= MOST_CLASSES:
            mask = graph.test if graph.test.any() else graph.val
            mask = mask if self._inference.nodes is None else mask & self._inference.nodes
            classes = scores_of_classes(
                graph.y[mask].long(), labels[mask].long(), graph.num_classes
            )
        if any(len(targets) for _, targets in predictions.fitting):
            logits_and_targets = zip(*predictions.fitting, strict=True)
            temperature = fitted_temperature(*map(torch.cat, logits_and_targets))
        problems = dict[str, str]()
        table = score_predictions(
            predictions, graph, SCORED, self._inference, self._metric, problems
        )
        for kind, text in problems.items():
            self._note(kind, text)
        return table, classes, temperature
