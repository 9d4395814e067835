"""Calls from Python: `GIST`, `fit`, `Loop`, `rounds`, settings and samplers, with odd values for their arguments."""

import inspect
import math
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.attack.case import Outcome, Place, Report, run
from benchmarks.attack.valid import arrays

_NUMBERS: list[Any] = [0, -1, 1, 2, 3, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 10**5000, 0.5, 1.0, -0.0, 1e-320]
_NUMBERS += [1e300, math.nan, math.inf, -math.inf, True, False]
_OTHERS: list[Any] = [
    None, "", "x", "a" * 3000, "\udcff\n", b"x", [], (), {}, [1], (2, 2), [[1]], [None], [math.nan], {"a": 1},
]  # fmt: skip
_OTHERS += [lambda *_: None, Ellipsis, 1j, range(3), {1, 2}]
_NAMES = [
    "auto", "whole", "layers", "parts", "memory", "host", "disk", "sharded", "clusters", "ladies", "saint-rw",
    "fused",
]  # fmt: skip
_NAMES += [
    "adam", "sgd", "cosine", "step", "carry", "reset", "bf16", "split", "each", "zero", "balanced", "mse", "r2",
    "random",
]  # fmt: skip
_LARGE = 2**63


def python(rng: Random, place: Place) -> Report:
    """Call something of the public API with one to three odd arguments."""
    name = rng.choice(["GIST", "fit", "fit", "fit", "fit", "Loop", "rounds", "settings", "settings", "build"])
    target, valid, call = _TARGETS[name](rng)
    known = [
        p.name for p in inspect.signature(target).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    odd = {
        key: _odd(rng)
        for key in rng.sample([k for k in known if k != "self"], min(rng.choice([1, 1, 2, 3]), len(known) - 1))
    }
    title = f"{target.__qualname__}({', '.join(f'{key}={_shown(value)}' for key, value in odd.items())})"
    impossible = any(_impossible(value) for value in odd.values())

    def work() -> int:
        from gistgnn.errors import GistError
        from gistgnn.utils.console import show_log

        show_log()  # with the beginning that the command line gives to notes
        try:
            call({**valid, **odd})
        except GistError as error:
            print(f"gistgnn: error: {error}", file=sys.stderr)
            return 2
        return 0

    def judge(outcome: Outcome) -> str:
        return "accepts a number that nothing can have" if impossible and outcome.status == 0 else ""

    return run(place, title, work, judge)


def _odd(rng: Random) -> Any:
    import numpy as np
    import torch

    arrays_: list[Any] = [
        np.float32(0.5),
        np.int64(2),
        np.zeros(3),
        torch.tensor(2),
        torch.zeros(2, 2),
    ]
    pool = rng.choices([_NUMBERS, _OTHERS, _NAMES, arrays_], [6, 2, 2, 1])[0]
    value = rng.choice(pool)
    return rng.choice([value] * 7 + [[value], (value, value)])


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:
        return "10**5000"


def _impossible(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_impossible(each) for each in value)
    return isinstance(value, (int, float)) and (value != value or abs(value) >= _LARGE)


def _model() -> Any:
    from gistgnn.nn import GCN

    return lambda widths: GCN(3, widths, 3)


def _gist(**options: Any) -> Any:
    from gistgnn import GIST

    return GIST(**{"build": _model(), "widths": (8, 8), "sub_gcns": 2, **options})


def _graph() -> Any:
    from gistgnn.graphs import Graph

    return Graph.build(**arrays())


Target = tuple[Callable[..., Any], dict[str, Any], Callable[[dict[str, Any]], Any]]
"""The callable, valid arguments, and a function that calls it with others."""


def _gist_target(rng: Random) -> Target:
    from gistgnn import GIST

    def call(options: dict[str, Any]) -> None:
        gist = GIST(**options)
        for _ in gist.rounds(1):
            pass
        gist.model()

    valid: dict[str, Any] = {"build": _model(), "widths": (8, 8), "sub_gcns": 2}
    return GIST.__init__, valid, lambda options: call({**valid, **options})


def _fit_target(rng: Random) -> Target:
    from gistgnn import GIST

    valid = rng.choice([{"epochs": 2}, {"epochs": 2}, {"budget": 0.2}, {"epochs": 2, "sampler": "neighbor"}])

    def call(options: dict[str, Any]) -> None:
        _gist().fit(**{"graph": _graph(), "progress": False, **options})

    return GIST.fit, valid, call


def _loop_target(rng: Random) -> Target:
    from gistgnn import Loop

    def call(options: dict[str, Any]) -> None:
        for count, _ in enumerate(Loop(**{"gist": _gist(), "rounds": 2, "validate": lambda _: 0.5, **options})):
            if count > 3:
                break

    return Loop.__init__, {}, call


def _rounds_target(rng: Random) -> Target:
    from gistgnn import GIST

    def call(options: dict[str, Any]) -> None:
        for count, _ in enumerate(_gist().rounds(**options)):
            if count > 3:
                break

    return GIST.rounds, {"count": 2}, call


def _settings_target(rng: Random) -> Target:
    from gistgnn.evaluation import Evaluation
    from gistgnn.fit.saving import Saving
    from gistgnn.sampling import SAMPLERS
    from gistgnn.settings import Phase, Training
    from gistgnn.theta.registry import Store

    sampler = rng.choice(list(SAMPLERS))
    kind, valid, argument = rng.choice(
        [
            (Training, {"epochs": 2}, "training"),
            (Training, {"epochs": 2}, "training"),
            (Phase, {"sub_gcns": 2, "epochs": 1}, "phases"),
            (Evaluation, {}, "evaluation"),
            (Store, {}, "store"),
            (Saving, {"path": "saved"}, "saving"),
            (SAMPLERS[sampler], {"clusters": 4, "clusters_per_batch": 2} if sampler == "clusters" else {}, "sampler"),
        ]
    )

    def call(options: dict[str, Any]) -> None:
        made = kind(**options)
        if argument == "store":
            _gist(store=made).fit(_graph(), epochs=1, progress=False)
            return
        given = {argument: [made] if argument == "phases" else made}
        epochs = {} if argument in ("training", "phases") else {"epochs": 1}
        _gist().fit(_graph(), progress=False, **given, **epochs)

    return kind, valid, call


def _build_target(rng: Random) -> Target:
    from gistgnn.graphs import Graph

    return Graph.build, arrays(), lambda options: Graph.build(**options)


_TARGETS: dict[str, Callable[[Random], Target]] = {
    "GIST": _gist_target,
    "fit": _fit_target,
    "Loop": _loop_target,
    "rounds": _rounds_target,
    "settings": _settings_target,
    "build": _build_target,
}
