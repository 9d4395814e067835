"""What the runner "auto" chooses in tests: nothing is measured, unless a test asks for it."""

from collections.abc import Callable

import pytest

from gistgnn.session import runner_choice

_CHOOSE = runner_choice.choose_runners


def never_fused(patch: pytest.MonkeyPatch | None = None) -> None:
    """Let sub-GCNs train in turn, without a trial; without a patch, until the process ends."""
    (patch or pytest.MonkeyPatch()).setattr(runner_choice, "choose_runners", lambda *_: [])


def choosing(patch: pytest.MonkeyPatch, faster: str | None = None) -> list[int]:
    """Let "auto" choose the faster runner of a trial, or a given one; the number of members of every trial made."""
    from gistgnn.runners import auto

    patch.setattr(runner_choice, "choose_runners", _CHOOSE)
    measure: Callable[..., dict[str, float]] = auto._measure
    trials: list[int] = []

    def measured(trial: auto.TrialRound, *args: object) -> dict[str, float]:
        trials.append(len(trial.members))
        found = measure(trial, *args)
        return found if faster is None else {name: 2.0 - (name == faster) for name in found}

    patch.setattr(auto, "_measure", measured)
    return trials
