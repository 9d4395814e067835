"""Score Θ between rounds: the full model on its device, and its scores on the whole graph."""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from gistgnn.distributed import World
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
from gistgnn.graphs import Graph
from gistgnn.sampling import Batch, check_fits, forward, whole_graph
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.theta import Theta
from gistgnn.training.metric import Metric, has_output, scores_of_classes

Prepare = Callable[..., Inference]
# of the splits, of the classes; T
Scored = tuple[ScoreTable, list[dict[str, Any]], float | None]

SCORED = ("validation", "test")
MOST_CLASSES = 100  # that are scored one by one

log = logging.getLogger(__name__)


class Running:
    """The full model on rank 0 with the parameters that Θ has at the time, kept from one evaluation
    to the next.
    """

    def __init__(self, theta: Theta, spec: ModelSpec) -> None:
        self.theta = theta
        self.spec = spec
        self.ranks = theta.exchange.ranks
        self.module: Any = None  # on rank 0, as it was when it was last refreshed

    def refresh(self) -> None:
        """Give the model the parameters that Θ has now; all ranks call this."""
        model = self.theta.running_model(self.spec, self.module)
        self.module = model if self.ranks.leads else None

    def best(self) -> nn.Module:
        """A new model with the parameters of the best Θ; all ranks call this."""
        return self.theta.full_model(self.spec, best=True)


class Fixed:
    """A model on rank 0 that does not train any more, in place of `Running`."""

    def __init__(self, module: nn.Module, spec: ModelSpec, ranks: World) -> None:
        self.module = module
        self.spec = spec
        self.ranks = ranks

    def refresh(self) -> None:
        """Do nothing: the model stays as it is."""


class Scorer:
    """Runs the full model on the whole graph, on rank 0, and scores its output; `metric` chooses
    the best Θ.

    `prepare` is `Evaluation.prepare`. The model is tried on the batch `first`, and has so many
    outputs as `classes`; None: any number.
    """

    def __init__(
        self,
        running: Running | Fixed,
        graph: Graph,
        metric: Metric,
        prepare: Prepare,
        first: Batch,
        classes: int | None,
    ) -> None:
        self._running = running
        self._graph = graph
        self.metric = metric
        self._inference: Inference  # on rank 0
        self.passes: list[float] = []  # the seconds of each pass over the whole graph
        # the scores of the classes, at the last call
        self.classes: list[dict[str, Any]] = []
        self.temperature: float | None = None  # at the last call (see `fitted_temperature`)
        self._fitting = fitting_nodes(graph.val)
        # what has been logged, by kind: one note says it for all rounds
        self._noted: set[str] = set()

        def work() -> dict[str, Any]:
            check_fits(running.module, first, classes, graph.edge_data, running.spec.layout.unused)
            self._prepare = partial(
                prepare, batch=whole_graph(graph), wanted=graph.val | graph.test
            )
            self._inference = self._prepare(running.module)
            self._try_metric(first, classes)
            return self._inference.describe()

        running.refresh()
        self.description = running.ranks.lead(work)  # the entry "evaluation" of result.json

    def _try_metric(self, first: Batch, classes: int | None) -> None:
        """Refuse a metric that cannot score random outputs for the validation nodes; note one that
        cannot for the test.

        A split may lack a class, for example, without which ROC AUC is not defined.
        """
        graph = self._graph
        rng = torch.Generator().manual_seed(0)
        if any(self.metric is metric for metric in OF_LABELS):  # they are always defined
            return
        samples: torch.Tensor | None = None
        if classes is None:  # a loss and a metric of the user's own: outputs may have any range
            with evaluation_mode(self._running.module):
                samples = forward(self._running.module, first)
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
                score_of_outputs(self.metric, logits, graph.y[mask])
            except InputError as error:
                text = f"the metric {self.metric.name} cannot score the {split} nodes: {error}"
                if split == "validation":
                    raise InputError(
                        f"{text}; choose another metric or other {split} nodes"
                    ) from error
                self._note(f"{split} {self.metric.name}", f"{text}; there will be no {split} score")

    def nodes_without_output(self, model: nn.Module, batches: Iterable[Batch]) -> str | None:
        """Return in words for which training nodes a model has no finite output; None: all have
        one.

        They are looked for in the graph, and then in batches, where a node may lack the edges that
        it has in the graph.
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
        """Return the scores on validation nodes and, if there are any, on test nodes; on every
        rank.
        """
        self._running.refresh()
        table, self.classes, self.temperature = self._running.ranks.lead(self._score)
        return table

    def _score(self) -> Scored:
        model = self._running.module
        begun = time.perf_counter()
        with evaluation_mode(model):
            found = Predictions.of(
                self._inference.outputs(model), self._graph, self.metric, self._fitting
            )
        if self._graph.y.is_cuda:
            torch.cuda.synchronize(self._graph.y.device)
        self.passes.append(time.perf_counter() - begun)
        return self._table(found)

    def _table(self, found: Predictions) -> Scored:
        graph = self._graph
        classes = list[dict[str, Any]]()
        temperature = None
        if note := note_on_outputs(found, graph):
            self._note("outputs", note)
        if found.labels is not None and not graph.multi_label and graph.num_classes <= MOST_CLASSES:
            mask = graph.test if graph.test.any() else graph.val
            mask = mask if self._inference.nodes is None else mask & self._inference.nodes
            classes = scores_of_classes(
                graph.y[mask].long(), found.labels[mask].long(), graph.num_classes
            )
        if any(len(targets) for _, targets in found.fitting):
            temperature = fitted_temperature(*map(torch.cat, zip(*found.fitting, strict=True)))
        problems = dict[str, str]()
        table = score_predictions(found, graph, SCORED, self._inference, self.metric, problems)
        for kind, text in problems.items():
            self._note(kind, text)
        return table, classes, temperature
