"""`Evaluation`, the user's choice of how models run on a whole graph; predictions, and scores on
the splits.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import Budget
from gistgnn.evaluation.choosing import note_whole, prepare_layers
from gistgnn.evaluation.inference import (
    ByParts,
    EnsembleAverage,
    Inference,
    Output,
    WholeGraph,
    nodes_at_once,
    put,
)
from gistgnn.graphs import Graph
from gistgnn.graphs.folder import node_ids, original_nodes
from gistgnn.nn.gnn import EnsembleModel, as_gnn, members_of
from gistgnn.nn.scaling import plain_model
from gistgnn.sampling import Batch, whole_graph
from gistgnn.training.metric import (
    NAMED,
    OF_PREDICTIONS,
    Metric,
    has_output,
    label_scores,
    predicted_labels,
)
from gistgnn.utils.checks import AtLeastOne, check_choice, check_settings
from gistgnn.utils.process_memory import available_bytes

METHODS = ("auto", "whole", "layers", "parts")

ScoreTable = dict[str, dict[str, float | None]]
"""The scores on the splits of a graph: split -> name of the score -> value; None: there is no
score.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """How to run models on the whole graph.

    Example:
        >>> Evaluation("parts", parts=5000).prepare(model, batch).logits(model)

    Args:
        method: "whole": all nodes at once. "layers": one layer after the other within ``memory``;
            exact; for models of `gistgnn.nn`, PyG's `BasicGNN`, and models with a method
            ``layers()`` (see `layers_of`). "parts": one part of the graph after the other, without
            the edges between parts; approximate. "auto": "layers" for such a model if it needs more
            than ``memory``, else "whole".
        memory: bytes that auto, layers and parts may use beside the graph and the model, on the
            host and on the model's GPU; None: half of what is available. A single part may exceed
            it, and so may auto for a model that can only run on the whole graph: a note then says
            how much that takes.
        parts: number of parts P, for the method "parts".
        sample: score only the nodes of K parts, drawn with the seed; None: score all nodes.
    """

    method: str = "auto"
    memory: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    parts: AtLeastOne | None = None
    sample: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_choice("evaluation", self.method, METHODS)
        check_settings(self)
        if self.method == "parts" and self.parts is None:
            raise InputError(
                "evaluation is by parts, but parts is not given: set the number of parts, such as "
                "5000"
            )
        if self.method != "parts" and self.parts is not None:
            raise InputError(
                f"parts is {self.parts}, but the evaluation is {self.method}: choose the method "
                "parts"
            )
        if self.method == "whole" and self.memory is not None:
            raise InputError(
                "memory is given, but the evaluation is whole: give it with auto, layers or parts"
            )
        if self.sample is not None and (self.parts is None or self.sample > self.parts):
            at_most = f"expected at most parts, which is {self.parts}: choose the method parts"
            raise InputError(f"sample is {self.sample}, {at_most}")

    @property
    def approximation(self) -> dict[str, Any] | None:
        """The settings that change the result; None: the result is exact."""
        if self.method != "parts":
            return None
        return (
            {"parts": self.parts}
            if self.sample is None
            else {"parts": self.parts, "sample": self.sample}
        )

    @torch.no_grad()
    def prepare(
        self, model: nn.Module, batch: Batch, seed: int = 0, wanted: Tensor | None = None
    ) -> Inference:
        """Choose the method for models of the same shapes on a graph, and prepare it.

        The graph is on the models' device. The seed is of METIS and of the sample. ``wanted`` is a
        mask [N] of the nodes whose output is wanted; None: all. An InputError says that "layers" is
        chosen for a model that does not offer its layers, that memory or disk is too little, that
        METIS failed, or that the sample has no node to be scored.
        """
        if isinstance(plain_model(model), EnsembleModel):
            members = members_of(model)
            return EnsembleAverage(
                members, len(batch.x), lambda member: self.prepare(member, batch, seed, wanted)
            )
        if known := as_gnn(model):
            known.check_input(batch.x)
        devices = [torch.device("cpu")] + [batch.device] * (batch.device.type != "cpu")
        budget = Budget(*(self.memory or available_bytes(place) // 2 for place in devices))
        if self.parts is not None:
            at_once = nodes_at_once(model, batch, budget)
            return ByParts(batch, self.parts, seed, self.sample, at_once)
        limit = self.memory or available_bytes(batch.device)
        if self.method == "whole":
            with evaluation_mode(model):
                note_whole(model, batch, limit, "as that was asked for")
            return WholeGraph(batch)
        with evaluation_mode(model):
            return prepare_layers(
                model, batch, budget, wanted, always=self.method == "layers", limit=limit
            )


# name in results: attribute of a Graph
SPLITS = {"train": "train", "validation": "val", "test": "test"}
# the scores of a classification
OF_LABELS = [NAMED[name] for name in ("accuracy", "f1_micro", "f1_macro")]
OF_NUMBERS = [NAMED[name] for name in ("r2", "mae", "rmse")]  # those of a regression


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for the nodes of a graph."""

    # classes [N] or labels [N, K]; None: the outputs are no scores of the graph's classes
    labels: Tensor | None
    logits: Tensor | None  # [N, C], where a metric reads them; else None
    # logits and targets of the nodes that the temperature is fitted on
    fitting: list[tuple[Tensor, Tensor]]
    # mask [N] of the nodes that have an output, but not a finite one; None: no node
    not_finite: Tensor | None = None

    @classmethod
    def of(
        cls,
        outputs: Iterable[Output],
        graph: Graph,
        metric: Metric | None = None,
        fitting: Tensor | None = None,
    ) -> "Predictions":
        """Collect the output for all nodes: without one, NaN and class 0; ``metric``: a score
        beyond the task's.

        Where an output is not finite, the class is -1, and so are all labels.
        """
        labels = None
        logits = None
        few_nodes = []
        not_finite: Tensor | None = None
        # there is one label for every node
        few = torch.int16 if graph.num_classes <= 2**15 else torch.int32
        for nodes, piece in outputs:
            finite = has_output(piece)
            if not bool(finite.all()):
                not_finite = put(not_finite, nodes, ~finite, graph.num_nodes, False)
            has_labels = piece.shape[1] == graph.num_classes and not graph.regression
            if has_labels:
                guess = predicted_labels(piece, graph.multi_label)
                labels = put(
                    labels,
                    nodes,
                    guess,
                    graph.num_nodes,
                    0,
                    torch.int8 if graph.multi_label else few,
                )
                if fitting is not None:
                    at = fitting[nodes] & finite.to(fitting.device)
                    few_nodes.append((piece[at.to(piece.device)], graph.y[nodes][at]))
            if not has_labels or (metric is not None and metric not in OF_LABELS):
                logits = put(logits, nodes, piece, graph.num_nodes, torch.nan)
        return cls(labels, logits, few_nodes, not_finite)


def mean_f1(predicted: Tensor, y: Tensor, parts: Tensor) -> float:
    """Return the mean micro F1 of the parts of a graph, as the paper scores ultra-wide models
    (appendix A.5).

    `predicted` and `y` are classes [N] or labels [N, K] of 0 and 1, `parts` [N] the number of each
    node's part. All parts weigh the same; one without a node does not count. The F1 of a part
    without any label, true or predicted, is 0.
    """
    truth = y.long()
    guess = predicted.long()
    if truth.dim() == 1:
        right = (truth == guess).long()
        wrong = 2 * (1 - right)  # the class that is given, and the one that is not
    else:
        guess = guess.clamp(min=0)  # -1: no label is predicted
        right = (truth & guess).sum(dim=1)
        wrong = (truth ^ guess).sum(dim=1)
    numbers, place_of_node = parts.to(truth.device).unique(return_inverse=True)
    counts = torch.zeros(2, len(numbers), dtype=torch.double, device=truth.device)
    counts.index_add_(1, place_of_node, torch.stack([2 * right, wrong]).double())
    return float((counts[0] / counts.sum(dim=0).clamp(min=1)).mean())


def predict(
    model: nn.Module, batch: Batch, evaluation: Evaluation | Inference | None = None
) -> Tensor:
    """Return the logits of every node of the batch, [N, C], without dropout.

    Args:
        model: on the batch's device.
        batch: the graph.
        evaluation: how the model runs (None: `Evaluation()`), or the result of `Evaluation.prepare`
            for this batch.

    Raises:
        InputError: as `Evaluation.prepare`, or the evaluation runs only a sample of the parts.
    """
    with evaluation_mode(model):
        inference = evaluation or Evaluation()
        if isinstance(inference, Evaluation):
            inference = inference.prepare(model, batch)
        if inference.nodes is not None:
            raise InputError(
                "sample is set, so most nodes have no output: leave out the sample to predict "
                "every node"
            )
        return inference.logits(model)


def evaluate(
    model: nn.Module,
    graph: Graph,
    splits: Sequence[str] = tuple(SPLITS),
    batch: Batch | None = None,
    evaluation: Evaluation | Inference | None = None,
    metric: Metric | None = None,
) -> dict[str, dict[str, Any]]:
    """Return a model's scores on the splits of a graph, by name: numbers, or None.

    They are accuracy, f1_micro and f1_macro as fractions; those of a regression are r2, mae and
    rmse. "f1_parts" is the mean of the parts' micro F1, where the model ran by parts (appendix
    A.5).

    A node whose output is not finite has no prediction: it counts as wrong. Scores that read the
    outputs themselves, such as ROC AUC and those of a regression, are then None, as is a metric
    that fails or is not a finite number. A note says why.

    Args:
        model, graph: on the same device.
        splits: of "train", "validation" and "test"; one without nodes has no scores.
        batch: the graph as a batch; None: prepare it.
        evaluation: as for `predict`. If it runs a sample of the parts, only nodes in the sample are
            scored.
        metric: a further score.

    Raises:
        InputError: as `Evaluation.prepare`; a split has no node in the sample; or there is nothing
            to score, as the model's outputs are not as many as the graph's classes.
    """
    scored = (
        torch.stack([getattr(graph, SPLITS[split]) for split in splits]).any(dim=0)
        if splits
        else None
    )
    with evaluation_mode(model):
        inference = evaluation or Evaluation()
        if isinstance(inference, Evaluation):
            inference = inference.prepare(model, batch or whole_graph(graph), wanted=scored)
        predictions = Predictions.of(inference.outputs(model), graph, metric)
        if predictions.labels is None and metric is None and not graph.regression:
            outputs = 0 if predictions.logits is None else predictions.logits.shape[1]
            raise InputError(
                f"the model gives {outputs} outputs, and {graph.name} has {graph.num_classes} "
                "classes: give the graph "
                f"num_classes={outputs} where it lacks some of them, or a metric of the outputs"
            )
        if note := note_on_outputs(predictions, graph):
            log.warning(note)
        problems = dict[str, str]()
        table = score_predictions(predictions, graph, splits, inference, metric, problems)
        for problem in problems.values():
            log.warning(problem)
        return table


def note_on_outputs(predictions: Predictions, graph: Graph) -> str | None:
    """Return which nodes have outputs that are not finite, and what that means for scores; None: no
    node has.
    """
    if predictions.not_finite is None:
        return None
    means = (
        "scores that read it are left out"
        if predictions.labels is None
        else "where they are scored, they count as wrong"
    )
    nodes = nodes_in_words(graph, predictions.not_finite)
    return f"the model's output is not finite for {nodes}: {means}"


def nodes_in_words(
    graph: Graph, mask: Tensor, kind: str = "nodes", total: int | None = None
) -> str:
    """Return how many nodes a mask [N] has, the first of them by the user's number or id, and if
    they are isolated.
    """
    numbers = original_nodes(graph)
    ids = node_ids(graph)
    nodes = mask.cpu().nonzero().squeeze(1)
    first = int((nodes if numbers is None else numbers[nodes]).min())
    name = (
        str(first)
        if ids is None
        else bytes(ids[first].tolist()).rstrip(b"\0").decode(errors="replace")
    )
    rowptr = graph.edges.rowptr.cpu()
    isolated = int((rowptr[nodes + 1] == rowptr[nodes]).sum())
    edges = (
        f", {'none' if isolated == len(nodes) else f'{len(nodes) - isolated:,}'} of them has "
        "an edge into it"
    )
    return (
        f"{len(nodes):,} of {total or graph.num_nodes:,} {kind} (the first is node "
        f"{name}{edges if isolated else ''})"
    )


def score_predictions(
    predictions: Predictions,
    graph: Graph,
    splits: Sequence[str],
    inference: Inference | None = None,
    metric: Metric | None = None,
    problems: dict[str, str] | None = None,
) -> ScoreTable:
    """Return the scores on the splits that have nodes; ``inference`` says which have an output, and
    the parts.

    A score that cannot be computed is None, and ``problems`` gets a sentence that says why, by
    split and score.
    """
    labels = predictions.labels
    logits = predictions.logits
    sampled, parts = (inference.nodes, inference.parts) if inference else (None, None)
    numbers = graph.regression and logits is not None and logits.shape[1] == graph.num_classes
    metrics_of_task = OF_LABELS if labels is not None else OF_NUMBERS if numbers else []
    from_logits = [*metrics_of_task] if labels is None else []
    if metric is not None and metric not in metrics_of_task:
        from_logits.append(metric)
    problems = {} if problems is None else problems
    results: ScoreTable = {}
    for split in splits:
        mask: Tensor = getattr(graph, SPLITS[split])
        if not mask.any():
            continue
        if sampled is not None and not (mask := mask & sampled).any():
            raise InputError(
                f"no {split} node is in the sample of the parts: raise the sample, or leave it out"
            )
        targets = graph.y[mask]
        scores = dict[str, float | None]()
        guess = None if labels is None else labels[mask].long()
        if guess is not None:
            scores |= label_scores(targets, guess)
        if from_logits and logits is not None:
            chosen = logits[mask]
            for score in from_logits:
                try:
                    scores[score.name] = score_of_outputs(score, chosen, targets)
                except InputError as error:
                    scores[score.name] = None
                    problems[f"{split} {score.name}"] = (
                        f"no {score.name} of the {split} nodes: {error}"
                    )
        if guess is not None and parts is not None:
            scores["f1_parts"] = mean_f1(guess, targets, parts[mask.to(parts.device)])
        results[split] = scores
    return results


def score_of_outputs(metric: Metric, logits: Tensor, targets: Tensor) -> float:
    """Return the metric of some nodes' outputs, [n, C]; raise InputError, which says why, if it has
    no value.
    """
    missing = int((~has_output(logits)).sum())
    if missing and not any(metric is NAMED[name] for name in OF_PREDICTIONS):
        raise InputError(f"the outputs of {missing:,} of the {len(logits):,} nodes are not finite")
    if metric is NAMED["roc_auc"] and (classes := _undecided(targets, logits.shape[1])):
        which = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise InputError(
            "it needs nodes with and without each class, and all or none of these have class "
            f"{which}"
        )
    if metric is NAMED["r2"] and len(targets) < 2:
        raise InputError(f"it needs two nodes, and there is {len(targets)}")
    return metric(logits.clone(), targets.clone())  # a function of the user's may write into them


def _undecided(targets: Tensor, classes: int) -> list[int]:
    """Return the classes that all nodes have, or none; targets: classes [n] or labels [n, K]."""
    nodes = (
        torch.bincount(targets.long(), minlength=classes)
        if targets.dim() == 1
        else targets.long().sum(dim=0)
    )
    return ((nodes == 0) | (nodes == len(targets))).nonzero().flatten().tolist()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode and record no gradients inside the block."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
