"""The files that `gistgnn predict` writes.

Predictions are written as they come: they need not fit in memory.
"""

import csv
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.evaluation.inference import Output
from gistgnn.storage.record import GraphFacts
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.storage.whole_files import replacing
from gistgnn.training.metric import predicted_labels
from gistgnn.utils.tensors import Array

SUFFIXES = (".csv", ".npz")

log = logging.getLogger(__name__)

_ROWS = 2**16  # nodes that are written at once


def write_predictions(
    path: Path,
    outputs: Iterable[Output],
    nodes: int,
    graph: GraphFacts,
    *,
    temperature: float = 1.0,
    ids: Tensor | None = None,
) -> None:
    """Write the predictions of a model for the nodes of a graph, piece by piece.

    A `.csv` has a line for each node: its number or id, its class, and the class's probability.
    Where nodes have several labels, it has the probability of every label instead. A `.npz` has
    ``classes``, [N] or [N, K], and ``probabilities``, [N, C].

    Where an output is not finite there is no prediction: the class and the probabilities are empty
    in a `.csv`, -1 and nan in a `.npz`, and a note says how many nodes these are, and the first.

    Args:
        path: ends in one of `SUFFIXES`.
        outputs: numbers of nodes and their logits, [n, C]. Together the pieces have every node
            once.
        nodes: N, how many nodes the file has.
        graph: on which the model was trained. It says whether nodes have several labels, and may
            name the classes.
        temperature: by which logits are divided before they become probabilities.
        ids: [N, L] bytes, in the order of the nodes. Defaults to their numbers.

    Raises:
        InputError: no node has a finite output, or the file cannot be written.
    """
    multi_label = graph.multi_label
    with replacing(path) as temporary:
        classes = probabilities = torch.empty(0)
        for piece, (numbers, logits) in enumerate(outputs):
            labels = predicted_labels(logits, multi_label)
            logits = logits / temperature
            scores = logits.sigmoid() if multi_label else logits.softmax(dim=1)
            if not multi_label and path.suffix == ".csv":  # it has one of each node's probabilities
                scores = scores.gather(1, labels.clamp(min=0).unsqueeze(1))
            scores[_is_empty(labels)] = torch.nan
            if piece == 0:
                specs = {
                    name: (torch.Size([nodes, *values.shape[1:]]), values.dtype)
                    for name, values in (("classes", labels), ("probabilities", scores))
                }
                tensors = temporary_tensors(specs, path.parent)
                classes = tensors["classes"]
                probabilities = tensors["probabilities"]
            rows = numbers if isinstance(numbers, slice) else numbers.cpu()
            classes[rows] = labels.cpu()
            probabilities[rows] = scores.cpu()
        _note_empty(_is_empty(classes), ids)
        if path.suffix == ".npz":
            # `savez` adds a suffix to a name; it writes large arrays in pieces
            with temporary.open("wb") as file:
                np.savez(file, classes=classes.numpy(), probabilities=probabilities.numpy())
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                _write_csv(text, classes.numpy(), probabilities.numpy(), graph.class_names, ids)


def first_outputs(outputs: Iterable[Output], nodes: int) -> Iterator[Output]:
    """Yield the outputs of the first nodes of a graph alone, by number."""
    for numbers, logits in outputs:
        if isinstance(numbers, slice):
            numbers = torch.arange(numbers.start, numbers.stop)
        is_first = numbers < nodes
        if bool(is_first.any()):
            yield numbers[is_first], logits[is_first.to(logits.device)]


def renumbered_outputs(outputs: Iterable[Output], new_numbers: Tensor) -> Iterator[Output]:
    """Yield outputs by other numbers of their nodes: ``new_numbers[k]`` in place of k."""
    for numbers, logits in outputs:
        yield new_numbers[numbers if isinstance(numbers, slice) else numbers.cpu()], logits


def _is_empty(classes: Tensor) -> Tensor:
    """Return the mask [n] of nodes without a prediction."""
    return classes < 0 if classes.dim() == 1 else (classes < 0).any(dim=1)


def _note_empty(empty: Tensor, ids: Tensor | None) -> None:
    """Say which nodes have no prediction; refuse a model that has none at all."""
    if not bool(empty.any()):
        return
    nodes = empty.nonzero().squeeze(1)
    if len(nodes) == len(empty):
        raise InputError(
            "the model's output is not finite for any node: there is nothing to write; see its "
            "parameters"
        )
    first = int(nodes[0]) if ids is None else _texts(ids[int(nodes[0]) : int(nodes[0]) + 1])[0]
    log.warning(
        "the model's output is not finite for %s of %s nodes (the first is node %s): their "
        "predictions are left empty",
        f"{len(nodes):,}", f"{len(empty):,}", first,
    )  # fmt: skip


def _texts(ids: Tensor) -> list[str]:
    texts = ids.numpy().view(f"S{ids.shape[1]}").reshape(-1).tolist()
    return [text.decode(errors="replace") for text in texts]


def _title_of_class(number: int, names: Sequence[str]) -> str | int:
    """Return what a file calls a class; a node without a prediction has none."""
    if number < 0:
        return ""
    return names[number] if names else number


def _write_csv(
    file: TextIO, classes: Array, probabilities: Array, names: Sequence[str], ids: Tensor | None
) -> None:
    has_labels = classes.ndim == 2  # then there is a column of probabilities for each label
    titles = ["class", "probability"]
    if has_labels:
        titles = [f"label_{k}" for k in range(classes.shape[1])]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["node", *titles])
    for start in range(0, len(classes), _ROWS):
        labels = classes[start : start + _ROWS].tolist()
        scores = probabilities[start : start + _ROWS]
        columns: list[Iterable[Any]] = [range(start, start + len(labels))]
        if ids is not None:
            columns = [_texts(ids[start : start + _ROWS])]
        if not has_labels:
            columns.append([_title_of_class(label, names) for label in labels])
        columns += [
            ["" if math.isnan(score) else f"{score:.6f}" for score in column]
            for column in scores.T.tolist()
        ]
        writer.writerows(zip(*columns, strict=True))
