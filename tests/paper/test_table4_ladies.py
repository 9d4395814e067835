import pytest

from gistgnn.compare.comparison import with_seeds
from gistgnn.paper.table2_large_graphs import Reddit
from gistgnn.paper.table4_ladies import PAPER, SUB_GCNS, Ladies
from gistgnn.sampling import LadiesSampling


def test_the_table_is_the_paper_s() -> None:
    assert {hidden: len(numbers) for hidden, numbers in PAPER.items()} == dict.fromkeys((2, 3, 4), len(SUB_GCNS))
    assert PAPER[2][2].cells == ["88.42", "1158.51 s", "2.90x"]
    assert PAPER[3][1].cells == ["86.52", "2635.18 s", "1.82x"]
    commented = {
        (hidden, m) for hidden, rows in PAPER.items() for m, row in zip(SUB_GCNS, rows, strict=True) if row.commented
    }
    assert commented == {(2, 8), (3, 8), *((4, m) for m in SUB_GCNS)}
    assert PAPER[4][3].cells == ["76.76†", "1307.36 s", "4.81x"]


def test_the_paper_s_speed_ups_are_those_of_its_times() -> None:
    for rows in PAPER.values():
        assert [row.speedup for row in rows] == pytest.approx([rows[0].time / row.time for row in rows], abs=0.01)


def test_runs_on_clusters_are_table_2_s() -> None:
    table4, table2 = Ladies.at("full"), Reddit.at("full")
    assert table4.on_clusters("reddit", 3, 4) == table2._run_of(("reddit", "graphsage", 256, 3), 4)


def test_a_run_is_of_the_paper_s_settings() -> None:
    run = Ladies.at("full").config("synthetic:reddit", 3, 4)
    assert run.model.hidden == (256, 256, 256)
    assert run.model.name == "gcn"
    assert run.sub_gcns == 4
    assert [repeated.seed for repeated in with_seeds([run], 2)] == [0, 1]
    assert run.sampler == LadiesSampling(batch_size=512, nodes_per_layer=512, row_normalise=True)
    assert run.training.local_steps == 500
    assert run.training.epochs == 80
    assert run.training.lr == 0.001
    assert run.inductive
    small = Ladies.at("small").config("digits", 2, 1)
    assert not small.inductive
    assert small.training.lr == 0.01
    assert small.training.local_steps == 50
