import argparse

from benchmarks.pyg_speed import LOCAL_STEPS, RUNNERS, Contender, rows, take_turns
from tests.helpers.models import tiny_graph


def test_ratios_and_targets() -> None:
    seconds = {"ours": (0.8, 0.4, 0.41), "PyG": (1.2, 0.4, 0.44)}
    contenders = [
        Contender("gcn", whose, runner, 8, [9.0, LOCAL_STEPS * each], "fused")
        for whose, times in seconds.items()
        for runner, each in zip(RUNNERS, times, strict=True)
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows(contenders).splitlines()[2:]]
    assert [line[2:] for line in lines] == [
        ["800", "", "", "yes"],
        ["400", "", "", "yes"],
        ["410", "", "1.02", "yes"],
        ["1,200", "1.50", "", "no"],
        ["400", "1.00", "", "yes"],
        ["440", "1.07", "1.10", "no"],
    ]
    assert lines[5][1] == "auto (fused)"


def test_runs_take_turns_to_their_end() -> None:
    contenders = [Contender("gcn", whose, runner, 8) for whose in ("ours", "PyG") for runner in RUNNERS]
    take_turns(contenders, tiny_graph(60), argparse.Namespace(clusters=20, sub_gcns=2, rounds=2))
    assert [len(contender.rounds) for contender in contenders] == [2] * 6
    assert all(contender.chosen in RUNNERS for contender in contenders)
