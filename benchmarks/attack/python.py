"""Calls from Python with odd arguments: `GIST`, `fit`, `Loop`, `rounds`, settings and samplers."""

import inspect
import math
import sys
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import torch

from benchmarks.attack.case import Outcome, Report, Workspace, run
from benchmarks.attack.valid import arrays
from gistgnn import GIST, Loop, Parts
from gistgnn.errors import GistError
from gistgnn.evaluation import Evaluation
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph
from gistgnn.nn import GCN
from gistgnn.sampling import SAMPLERS
from gistgnn.settings import Training
from gistgnn.theta.registry import Store
from gistgnn.utils.console import show_log

_NUMBERS: list[Any] = [0, -1, 1, 2, 3, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 10**5000]
_NUMBERS += [0.5, 1.0, -0.0, 1e-320, 1e300, math.nan, math.inf, -math.inf, True, False]
_NO_NUMBERS: list[Any] = [None, "", "x", "a" * 3000, "\udcff\n", b"x", [], (), {}]
_NO_NUMBERS += [[1], (2, 2), [[1]], [None], [math.nan]]
_NO_NUMBERS += [{"a": 1}, lambda *_: None, Ellipsis, 1j, range(3), {1, 2}]
_NAMES = ["auto", "whole", "layers", "parts", "memory", "host", "disk", "sharded"]
_NAMES += ["clusters", "ladies", "saint-rw", "fused", "adam", "sgd", "cosine", "step"]
_NAMES += ["carry", "reset", "bf16", "split", "each", "zero", "balanced", "mse", "r2", "random"]
_ARRAYS = [np.float32(0.5), np.int64(2), np.zeros(3), torch.tensor(2), torch.zeros(2, 2)]

Target = tuple[Callable[..., Any], dict[str, Any], Callable[..., Any]]
"""The callable, valid arguments, and a function that calls it with others."""


def python(rng: Random, workspace: Workspace) -> Report:
    """Call something of the public API with one to three odd arguments."""
    name = rng.choice(
        ["GIST", "Parts", "fit", "fit", "fit", "Loop", "rounds", "settings", "settings", "build"]
    )
    target, valid, call = _settings(rng) if name == "settings" else _TARGETS[name]
    if name == "fit":
        epochs = {"epochs": 2}
        valid = rng.choice([epochs, epochs, {"budget": 0.2}, {**epochs, "sampler": "neighbor"}])
    names = []
    for parameter in inspect.signature(target).parameters.values():
        collects = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not collects and parameter.name != "self":
            names.append(parameter.name)
    odd = {key: _odd(rng) for key in rng.sample(names, min(rng.choice([1, 1, 2, 3]), len(names)))}
    arguments = ", ".join(f"{key}={_shown(value)}" for key, value in odd.items())
    title = f"{target.__qualname__}({arguments})"
    impossible = any(_impossible(value) for value in odd.values())

    def work() -> int:
        show_log()  # Notes get the beginning that they have on the command line.
        try:
            call(**{**valid, **odd})
        except GistError as error:
            print(f"gistgnn: error: {error}", file=sys.stderr)
            return 2
        return 0

    def judge(outcome: Outcome) -> str:
        accepted = impossible and outcome.status == 0
        return "accepts a number that nothing can have" if accepted else ""

    return run(workspace, title, work, judge)


def _odd(rng: Random) -> Any:
    (pool,) = rng.choices([_NUMBERS, _NO_NUMBERS, _NAMES, _ARRAYS], [6, 2, 2, 1])
    value = rng.choice(pool)
    return rng.choice([value] * 7 + [[value], (value, value)])


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:
        return "10**5000"


def _impossible(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_impossible(item) for item in value)
    return isinstance(value, (int, float)) and (value != value or abs(value) >= 2**63)


def _valid_arguments() -> dict[str, Any]:
    return {"build": lambda widths: GCN(3, widths, 3), "widths": (8, 8), "sub_gcns": 2}


def _gist(**options: Any) -> GIST:
    return GIST(**{**_valid_arguments(), **options})


def _make(**options: Any) -> None:
    gist = _gist(**options)
    for _ in gist.rounds(1):
        pass
    gist.model()


def _fit(**options: Any) -> None:
    _gist().fit(**{"graph": Graph.build(**arrays()), "progress": False, **options})


def _parts(**options: Any) -> None:
    parts = Parts(**{**_valid_arguments(), **options})
    parts.fit(Graph.build(**arrays()), epochs=2, progress=False)


def _loop(**options: Any) -> None:
    valid = {"gist": _gist(), "rounds": 2, "validate": lambda _: 0.5}
    for _ in islice(Loop(**{**valid, **options}), 5):
        pass


def _rounds(**options: Any) -> None:
    for _ in islice(_gist().rounds(**options), 5):
        pass


def _settings(rng: Random) -> Target:
    sampler = rng.choice(list(SAMPLERS))
    of_clusters = {"clusters": 4, "clusters_per_batch": 2} if sampler == "clusters" else {}
    kinds: list[tuple[Any, dict[str, Any], str]] = [
        (Training, {"epochs": 2}, "training"),
        (Training, {"epochs": 2}, "training"),
        (Evaluation, {}, "evaluation"),
        (Store, {}, "store"),
        (Saving, {"path": "saved"}, "saving"),
        (SAMPLERS[sampler], of_clusters, "sampler"),
    ]
    kind, valid, argument = rng.choice(kinds)

    def call(**options: Any) -> None:
        made = kind(**options)
        graph = Graph.build(**arrays())
        if argument == "store":
            _gist(store=made).fit(graph, epochs=1, progress=False)
        else:
            epochs = {} if argument == "training" else {"epochs": 1}
            _gist().fit(graph, progress=False, **{argument: made}, **epochs)

    return kind, valid, call


_TARGETS: dict[str, Target] = {
    "GIST": (GIST.__init__, {}, _make),
    "fit": (GIST.fit, {}, _fit),
    "Parts": (GIST.__init__, {}, _parts),
    "Loop": (Loop.__init__, {}, _loop),
    "rounds": (GIST.rounds, {"count": 2}, _rounds),
    "build": (Graph.build, arrays(), Graph.build),
}
