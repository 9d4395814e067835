import argparse

import pytest

from benchmarks.pyg_speed import RUNNERS, Contender, row, take_turns
from tests.helpers.models import tiny_graph


def test_ratios_and_targets() -> None:
    seconds = {"ours": (8.0, 4.0, 4.1), "PyG": (12.0, 4.0, 6.0)}
    contenders = [
        Contender("gcn", whose, runner, 8, 2, 10, [99.0, each, each, 2 * each])
        for whose, times in seconds.items()
        for runner, each in zip(RUNNERS, times, strict=True)
    ]
    assert row(contenders, 10)[4:] == [
        "800, 400, 410",
        "1,200, 400, 600",
        "1.02 (1.02–1.02)",
        "1.50 (1.50–1.50) !",
        "1.46 (1.46–1.46) !",
    ]
    assert contenders[0].over(contenders[1]) == pytest.approx([2.0] * 3)


def test_runs_take_turns_to_their_end() -> None:
    contenders = [Contender("gcn", whose, runner, 8, 2, 75) for whose in ("ours", "PyG") for runner in RUNNERS]
    take_turns(contenders, tiny_graph(200), argparse.Namespace(local_steps=3, rounds=2))
    assert [len(contender.rounds) for contender in contenders] == [2] * 6
