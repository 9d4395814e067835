"""`Evaluation`: how a model runs on a whole graph; its predictions, and scores on the splits."""

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
    write_rows,
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
"""The scores on the splits of a graph: split -> name of the score -> value.

The value is None where the score cannot be computed.
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
            host and on the model's GPU. Defaults to half of what is available. A single part may
            exceed it, and so may auto for a model that can only run on the whole graph: a note then
            says how much that takes.
        parts: number of parts P, for the method "parts".
        sample: score only the nodes of K parts, drawn with the seed. Defaults to all nodes.
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
        """The settings that change the result, or None where the result is exact."""
        if self.method != "parts":
            return None
        if self.sample is None:
            return {"parts": self.parts}
        return {"parts": self.parts, "sample": self.sample}

    @torch.no_grad()
    def prepare(
        self, model: nn.Module, batch: Batch, seed: int = 0, wanted: Tensor | None = None
    ) -> Inference:
        """Choose the method for models of the same shapes on a graph, and prepare it.

        Args:
            model: one of these models.
            batch: the graph, on the models' device.
            seed: of METIS and of the sample.
            wanted: the mask [N] of the nodes whose output is wanted. Defaults to all nodes.

        Raises:
            InputError: "layers" is chosen for a model that does not offer its layers; memory or
                disk is too little; METIS failed; or the sample has no node to be scored.
        """
        if isinstance(plain_model(model), EnsembleModel):
            members = members_of(model)
            return EnsembleAverage(
                members, len(batch.x), lambda member: self.prepare(member, batch, seed, wanted)
            )
        gnn = as_gnn(model)
        if gnn is not None:
            gnn.check_input(batch.x)
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


SPLITS = {"train": "train", "validation": "val", "test": "test"}
"""The attribute of a `Graph` that is the mask of a split, by the split's name in results."""
OF_LABELS = [NAMED[name] for name in ("accuracy", "f1_micro", "f1_macro")]
"""The scores of a classification."""
OF_NUMBERS = [NAMED[name] for name in ("r2", "mae", "rmse")]
"""The scores of a regression."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for the nodes of a graph.

    Attributes:
        labels: classes [N] or labels [N, K], or None where the outputs are no scores of the graph's
            classes.
        logits: [N, C], or None where no metric reads them.
        fitting: logits and targets of the nodes that the temperature is fitted on.
        not_finite: the mask [N] of the nodes whose output is not finite, or None if there are none.
    """

    labels: Tensor | None
    logits: Tensor | None
    fitting: list[tuple[Tensor, Tensor]]
    not_finite: Tensor | None = None

    @classmethod
    def of(
        cls,
        outputs: Iterable[Output],
        graph: Graph,
        metric: Metric | None = None,
        fitting: Tensor | None = None,
    ) -> "Predictions":
        """Collect the output for all nodes.

        A node without an output has NaN and class 0. Where an output is not finite, the class is
        -1, and so are all labels.

        Args:
            outputs: pieces of the output, see `Inference.outputs`.
            graph: the graph.
            metric: a score beyond the task's.
            fitting: the mask [N] of the nodes that the temperature is fitted on.
        """
        labels = None
        logits = None
        fitting_pieces = []
        not_finite: Tensor | None = None
        # The smallest type that holds the labels, as there is one for every node.
        label_type = torch.int16 if graph.num_classes <= 2**15 else torch.int32
        if graph.multi_label:
            label_type = torch.int8
        for nodes, piece in outputs:
            finite = has_output(piece)
            if not bool(finite.all()):
                not_finite = write_rows(not_finite, nodes, ~finite, graph.num_nodes, False)
            has_labels = piece.shape[1] == graph.num_classes and not graph.regression
            if has_labels:
                predicted = predicted_labels(piece, graph.multi_label)
                labels = write_rows(labels, nodes, predicted, graph.num_nodes, 0, label_type)
                if fitting is not None:
                    rows = fitting[nodes] & finite.to(fitting.device)
                    fitting_pieces.append((piece[rows.to(piece.device)], graph.y[nodes][rows]))
            if not has_labels or (metric is not None and metric not in OF_LABELS):
                logits = write_rows(logits, nodes, piece, graph.num_nodes, torch.nan)
        return cls(labels, logits, fitting_pieces, not_finite)


def mean_f1(predicted: Tensor, y: Tensor, parts: Tensor) -> float:
    """Return the mean of the micro F1 of a graph's parts.

    The paper scores its ultra-wide models in this way (appendix A.5). All parts weigh the same; one
    without a node does not count. The F1 of a part without any label, true or predicted, is 0.

    Args:
        predicted, y: classes [N], or labels [N, K] of 0 and 1.
        parts: the number of each node's part, [N].
    """
    truth = y.long()
    guess = predicted.long()
    if truth.dim() == 1:
        right = (truth == guess).long()
        wrong = 2 * (1 - right)  # The predicted class is wrong, and the true one is missing.
    else:
        guess = guess.clamp(min=0)  # Of -1 no label is predicted.
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
        evaluation: how the model runs, or the result of `Evaluation.prepare` for this batch.
            Defaults to `Evaluation()`.

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
        batch: the graph as a batch. Defaults to a new one.
        evaluation: as for `predict`. If it runs a sample of the parts, only nodes in the sample are
            scored.
        metric: a further score.

    Raises:
        InputError: as `Evaluation.prepare`; a split has no node in the sample; or there is nothing
            to score, as the model's outputs are not as many as the graph's classes.
    """
    scored = None
    if splits:
        scored = torch.stack([getattr(graph, SPLITS[split]) for split in splits]).any(dim=0)
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
    """Return a note on the nodes whose output is not finite, or None if there are none."""
    if predictions.not_finite is None:
        return None
    consequence = "where they are scored, they count as wrong"
    if predictions.labels is None:
        consequence = "scores that read it are left out"
    nodes = nodes_in_words(graph, predictions.not_finite)
    return f"the model's output is not finite for {nodes}: {consequence}"


def nodes_in_words(
    graph: Graph, mask: Tensor, kind: str = "nodes", total: int | None = None
) -> str:
    """Describe the nodes of a mask for a message.

    It says how many there are, which one is the first by the user's number or id, and if some are
    isolated.

    Args:
        graph: the graph.
        mask: of the nodes, [N].
        kind: what the nodes are called.
        total: how many nodes of that kind there are. Defaults to all nodes of the graph.
    """
    numbers = original_nodes(graph)
    ids = node_ids(graph)
    nodes = mask.cpu().nonzero().squeeze(1)
    first = int((nodes if numbers is None else numbers[nodes]).min())
    name = str(first)
    if ids is not None:
        name = bytes(ids[first].tolist()).rstrip(b"\0").decode(errors="replace")
    rowptr = graph.edges.rowptr.cpu()
    isolated = int((rowptr[nodes + 1] == rowptr[nodes]).sum())
    edges = ""
    if isolated:
        connected = "none" if isolated == len(nodes) else f"{len(nodes) - isolated:,}"
        edges = f", {connected} of them has an edge into it"
    return (
        f"{len(nodes):,} of {total or graph.num_nodes:,} {kind} (the first is node {name}{edges})"
    )


def score_predictions(
    predictions: Predictions,
    graph: Graph,
    splits: Sequence[str],
    inference: Inference | None = None,
    metric: Metric | None = None,
    problems: dict[str, str] | None = None,
) -> ScoreTable:
    """Return the scores on the splits that have nodes.

    A score that cannot be computed is None.

    Args:
        predictions: of the graph's nodes.
        graph: the graph.
        splits: of "train", "validation" and "test".
        inference: how the model ran: which nodes have an output, and the parts. Defaults to all
            nodes in one piece.
        metric: a further score.
        problems: gets a sentence for every score that cannot be computed, by split and score.

    Raises:
        InputError: a split has no node with an output.
    """
    labels = predictions.labels
    logits = predictions.logits
    sampled = inference.nodes if inference else None
    parts = inference.parts if inference else None
    metrics_of_task: list[Metric] = []
    from_logits: list[Metric] = []
    if labels is not None:
        metrics_of_task = OF_LABELS
    elif graph.regression and logits is not None and logits.shape[1] == graph.num_classes:
        metrics_of_task = OF_NUMBERS
        from_logits = [*OF_NUMBERS]
    if metric is not None and metric not in metrics_of_task:
        from_logits.append(metric)
    problems = {} if problems is None else problems
    results: ScoreTable = {}
    for split in splits:
        mask: Tensor = getattr(graph, SPLITS[split])
        if not mask.any():
            continue
        if sampled is not None:
            mask = mask & sampled
            if not mask.any():
                raise InputError(
                    f"no {split} node is in the sample of the parts: raise the sample, or leave it "
                    "out"
                )
        targets = graph.y[mask]
        scores = dict[str, float | None]()
        predicted = None if labels is None else labels[mask].long()
        if predicted is not None:
            scores |= label_scores(targets, predicted)
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
        if predicted is not None and parts is not None:
            scores["f1_parts"] = mean_f1(predicted, targets, parts[mask.to(parts.device)])
        results[split] = scores
    return results


def score_of_outputs(metric: Metric, logits: Tensor, targets: Tensor) -> float:
    """Return the metric of some nodes' outputs, [n, C].

    Raises:
        InputError: it has no value; the message says why.
    """
    missing = int((~has_output(logits)).sum())
    if missing and not any(metric is NAMED[name] for name in OF_PREDICTIONS):
        raise InputError(f"the outputs of {missing:,} of the {len(logits):,} nodes are not finite")
    if metric is NAMED["roc_auc"]:
        counts = _nodes_of_classes(targets, logits.shape[1])
        undefined = (counts == 0) | (counts == len(targets))
        if bool(undefined.any()):
            raise InputError(
                "it needs nodes with and without each class, and all or none of these have class "
                f"{_list_classes(undefined)}"
            )
    if metric is NAMED["average_precision"]:
        undefined = _nodes_of_classes(targets, logits.shape[1]) == 0
        if targets.dim() == 1 and len(undefined) == 2:
            undefined[0] = False  # Of two classes it is the precision of the second.
        if bool(undefined.any()):
            raise InputError(
                "it needs nodes of each class, and none of these have class "
                f"{_list_classes(undefined)}"
            )
    if metric is NAMED["r2"] and len(targets) < 2:
        raise InputError(f"it needs two nodes, and there is {len(targets)}")
    return metric(logits.clone(), targets.clone())  # A user's function may write into them.


def _nodes_of_classes(targets: Tensor, classes: int) -> Tensor:
    """Return how many nodes have each class: [C]. The targets are classes [n] or labels [n, K]."""
    if targets.dim() == 1:
        return torch.bincount(targets.long(), minlength=classes)
    return targets.long().sum(dim=0)


def _list_classes(mask: Tensor) -> str:
    """Return the numbers of the classes in a mask, [C], in words: the first five."""
    classes = mask.nonzero().flatten().tolist()
    return ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode and record no gradients inside the block.

    Afterwards every module of the model is in the mode that it had.
    """
    training = model.training
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)  # A user's model may do more than to set the mode.
        for module, mode in modes.items():  # Some may be in evaluation mode while others train.
            module.training = mode
