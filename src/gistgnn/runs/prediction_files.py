"""The files that `gistgnn predict` writes. Predictions are written as they come: they need not fit
in memory.
"""

import csv
import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.evaluation.inference import Output
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
    *,
    multi_label: bool,
    temperature: float = 1.0,
    rows: int | None = None,
    numbers: Tensor | None = None,
    names: Sequence[str] = (),
    ids: Tensor | None = None,
) -> None:
    """Write the predictions of a model for N nodes, which come in pieces that have every node once.

    Where an output is not finite there is no prediction: the class and the probabilities are empty
    in a `.csv`, -1 and nan in a `.npz`, and a note says how many nodes these are, and the first.

    Raises:
        InputError: no node has a finite output, or the file cannot be written.
    """
    # A `.csv` has a node's number, class and the class's probability; with several labels a node,
    # every label's. A `.npz` has `classes` [N] or [N, K], and `probabilities` [N, C]. `numbers` [N]
    # are the nodes' in the file; None: their own. A `.csv` has the `names` of classes, if there are
    # any, in place of their numbers; and the nodes' `ids`: [N, L] bytes, in the file's order. Only
    # the first `rows` nodes are written; None: all.
    with replacing(path) as temporary:
        classes = probabilities = torch.empty(0)
        for first, (which, logits) in enumerate(outputs):
            labels = predicted_labels(logits, multi_label)
            logits = logits / temperature
            scores = logits.sigmoid() if multi_label else logits.softmax(dim=1)
            if not multi_label and path.suffix == ".csv":  # it has one of each node's probabilities
                scores = scores.gather(1, labels.clamp(min=0).unsqueeze(1))
            scores[_is_empty(labels)] = torch.nan
            if not first:
                each = {"classes": labels, "probabilities": scores}
                specs = {
                    name: (torch.Size([nodes, *own.shape[1:]]), own.dtype)
                    for name, own in each.items()
                }
                classes, probabilities = map(
                    temporary_tensors(specs, path.parent).__getitem__, each
                )
            which = which if isinstance(which, slice) else which.cpu()
            where: Any = which if numbers is None else numbers[which]
            classes[where] = labels.cpu()
            probabilities[where] = scores.cpu()
        classes = classes[:rows]
        probabilities = probabilities[:rows]
        _note_empty(_is_empty(classes), ids)
        if path.suffix == ".npz":
            # `savez` adds a suffix to a name; it writes large arrays in pieces
            with temporary.open("wb") as file:
                np.savez(file, classes=classes.numpy(), probabilities=probabilities.numpy())
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                _write_csv(text, classes.numpy(), probabilities.numpy(), names, ids)


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


def _write_csv(
    file: TextIO, classes: Array, probabilities: Array, names: Sequence[str], ids: Tensor | None
) -> None:
    several = classes.ndim == 2  # one column of probabilities for each label
    columns = (
        [f"label_{k}" for k in range(classes.shape[1])] if several else ["class", "probability"]
    )
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["node", *columns])
    for start in range(0, len(classes), _ROWS):
        labels = classes[start : start + _ROWS].tolist()
        scores = probabilities[start : start + _ROWS]
        shown = [] if several else [["" if k < 0 else names[k] if names else k for k in labels]]
        nodes: Iterable[Any] = range(start, start + len(labels))
        if ids is not None:
            nodes = _texts(ids[start : start + _ROWS])
        columns_of_scores = [
            ["" if math.isnan(score) else f"{score:.6f}" for score in column]
            for column in scores.T.tolist()
        ]
        writer.writerows(zip(nodes, *shown, *columns_of_scores, strict=True))
