"""The claims that the code judges are the paper's: by the paper's own numbers, each of them holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gistgnn.paper.appendix_b import EnsembleTable, LocalSgdTable
from gistgnn.paper.experiment import Verdict
from gistgnn.paper.published import TABLE1, TABLE1_ROWS
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.paper.table1 import Table1
from gistgnn.paper.table2 import Amazon2M, Reddit
from gistgnn.paper.table3 import UltraWide
from gistgnn.paper.table4 import Ladies
from tests.paper.published_rows import appendix_b, changed, table2, table3, table4

REDDIT, AMAZON, LADIES = table2(Reddit, "reddit"), table2(Amazon2M, "amazon2m"), table4()
SCORES = {(name, index, "none"): [score] for name, scores in TABLE1.items() for index, score in enumerate(scores)}
SAGE, GAT = ("reddit", "graphsage", 256, 2), ("reddit", "gat", 256, 4)
NARROW, WIDE = ("amazon2m", "graphsage", 400, 3), ("amazon2m", "graphsage", 4096, 2)


reddit, amazon2m, ladies = (kind.at("full").verdicts for kind in (Reddit, Amazon2M, Ladies))


def ultrawide(layers: int = 2, **changes: dict[tuple[int, int], Any]) -> list[Verdict]:
    """Judge Table 3; `changes` are other values of its rows, by m and d."""
    rows = table3(layers)
    for name, values in changes.items():
        rows |= {size: replace(rows[size], **{name: (value,)}) for size, value in values.items()}  # type: ignore[arg-type]
    return UltraWide.at("full").verdicts("amazon2m", layers, rows)


def table1(**changes: float) -> list[Verdict]:
    changed = {("cora", int(index[1:]), "none"): [x] for index, x in changes.items()}
    return Table1.at("full").verdicts({**SCORES, **changed})


JUDGED: dict[str, tuple[Callable[[], list[Verdict]], int]] = {  # and how many claims there are
    "table1": (table1, 21),
    "reddit": (lambda: reddit(REDDIT), 32),
    "amazon2m": (lambda: amazon2m(AMAZON), 26),
    "ultrawide": (lambda: [verdict for layers in (2, 3, 4) for verdict in ultrawide(layers)], 22),
    "ladies": (lambda: ladies(LADIES), 27),
    "local-sgd": (lambda: LocalSgdTable.at("full").verdicts(appendix_b(LocalSgdTable)), 6),
    "ensemble": (lambda: EnsembleTable.at("full").verdicts(appendix_b(EnsembleTable)), 7),
}
WITHOUT_NUMBERS = {"depth-width", "local-iterations", "theory"}  # the paper has curves, or a theorem


@pytest.mark.parametrize("name", JUDGED)
def test_every_claim_holds_by_the_papers_own_numbers(name: str) -> None:
    judge, count = JUDGED[name]
    verdicts = judge()
    assert [verdict for verdict in verdicts if verdict.holds is not True] == []
    assert len({verdict.claim for verdict in verdicts}) == len(verdicts) == count
    assert set(JUDGED) | WITHOUT_NUMBERS == set(EXPERIMENTS)


def test_what_is_commented_out_in_the_paper_is_labelled() -> None:
    for verdict in ladies(LADIES):
        hidden = "m = 8" in verdict.claim or "L = 4" in verdict.claim
        assert ("commented out" in verdict.claim) == hidden
        assert hidden or "m = 8" not in verdict.measured


@pytest.mark.parametrize(
    ("verdicts", "failing"),
    [
        (reddit(changed(REDDIT, SAGE, 8, speedup=0.9)), ["GIST trains faster", "at least 1.32x"]),
        (reddit(changed(REDDIT, SAGE, 4, score=(96.5,))), ["highest F1 with m = 2", "m = 4 is faster than m = 2"]),
        (reddit(changed(REDDIT, GAT, 8, speedup=6.3)), ["nearly linear", "reaches 7.90x"]),
        (amazon2m(changed(AMAZON, NARROW, 2, score=(90.5,))), ["(narrow): GIST has a lower F1", "loses less F1"]),
        (amazon2m(changed(AMAZON, NARROW, 2, speedup=1.2)), ["reduces training time significantly"]),
        (amazon2m(changed(AMAZON, WIDE, 2, score=(89.6,))), ["of at most 1 point", "loses less F1", "no more"]),
        (amazon2m(changed(AMAZON, WIDE, 4, speedup=1.6)), ["gains more speed"]),
        (ladies(changed(LADIES, ("reddit", 2, "LADIES"), 4, score=(88.2,))), ["than in the paper", "against m = 2"]),
        (
            ladies(changed(LADIES, ("reddit", 3, "LADIES"), 4, speedup=1.4)),
            ["speed-up of 3.00x", "faster than", "gains more"],
        ),
        (ultrawide(score={(2, 8192): 90.5}), ["to a higher F1"]),
        (ultrawide(seconds={(2, 8192): 10_400.0}), ["1.86x faster"]),
        (ultrawide(score={(8, 32768): 88.8}), ["with m = 8, F1 rises"]),
        (ultrawide(score=dict.fromkeys([(2, 8192), (2, 16384), (2, 32768)], 90.5)), ["only GIST can", "higher F1"]),
        (table1(_9=79.4), ["partitioning d_1 and d_2 costs at most 2, 2, 2 points"]),
        (table1(_3=79.4), ["d_1 and d_2 costs at most", "alone is best"]),
        (table1(_8=75.0), ["partitioning d_0, d_1 costs more"]),
        (table1(_4=80.6), ["partitioning d_0, d_1, d_2 costs more"]),
    ],
)
def test_a_claim_can_fail(verdicts: list[Verdict], failing: list[str]) -> None:
    wrong = [verdict.claim for verdict in verdicts if verdict.holds is False]
    assert len(wrong) == len(failing)
    assert all(any(claim in other for other in wrong) for claim in failing), wrong
    assert [TABLE1_ROWS[index] for index in (9, 3, 8, 4)] == [(8, (1, 2)), (2, (1, 2)), (8, (0, 1)), (4, (0, 1, 2))]


def test_one_device_has_to_take_long_to_the_same_score() -> None:
    early = table2(Amazon2M, "amazon2m")
    history = early[WIDE].lines[0].shown.records[0]["history"]
    history[0]["train_seconds"] = 9_000
    assert [verdict.claim for verdict in amazon2m(early) if not verdict.holds] == [
        "amazon2m, graphsage 4096, L = 2: one device takes 2.5 times as long to the F1 that m = 8 reaches"
    ]
    history[:] = [{"train_seconds": 9_000, "test": 0.5}]
    assert all(verdict.holds for verdict in amazon2m(early))


def test_a_width_that_does_not_fit_where_the_papers_did() -> None:
    rows = {cell: row for cell, row in table3(2).items() if cell[1] <= 4096}
    verdicts = UltraWide.at("full").verdicts("amazon2m", 2, rows)
    assert [verdict.holds for verdict in verdicts] == [False, False, False, None, False, True, True, True]
    first, *_ = UltraWide.at("full", widths=(4096, 8192), sub_gcns=(1, 2)).verdicts("amazon2m", 2, {}, {(2, 8192)})
    assert first.measured == "d = 4096, m = 1 does not fit; d = 4096, m = 2 does not fit"


def test_what_was_not_run_is_not_shown_and_says_why() -> None:
    only = {key: group for key, group in REDDIT.items() if key[1] == "graphsage"}
    narrow = {key: group for key, group in AMAZON.items() if key[2] == 400}
    gat = {key: group for key, group in REDDIT.items() if key[1] == "gat"}
    no_clusters = {key: group for key, group in LADIES.items() if key[2] == "LADIES"}
    for verdicts, count in ((reddit(only), 1), (amazon2m(narrow), 1), (reddit(gat), 3), (ladies(no_clusters), 3)):
        open_ = [verdict for verdict in verdicts if verdict.holds is not True]
        assert len(open_) == count
        assert all(verdict.holds is None and "not run" in verdict.measured for verdict in open_)
    cora = Table1.at("full").verdicts({cell: score for cell, score in SCORES.items() if cell[0] == "cora"})
    assert [verdict.holds for verdict in cora].count(None) == 1


def test_times_of_runs_that_diverged_show_nothing() -> None:
    diverged = reddit(changed(REDDIT, SAGE, 8, speedup=None, score=(0.0,)))
    assert [verdict.holds for verdict in diverged].count(None) == 4
    assert all(verdict.holds is not False for verdict in diverged)
