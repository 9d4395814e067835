from gistgnn.compare.comparison import with_seeds
from gistgnn.paper.table4_ladies import PAPER, SUB_GCNS, Ladies
from gistgnn.sampling import LadiesSampling


def test_the_table_is_the_paper_s() -> None:
    assert {hidden: len(numbers) for hidden, numbers in PAPER.items()} == dict.fromkeys((2, 3), len(SUB_GCNS))
    assert PAPER[2][-1] == (88.42, 2.90)
    assert PAPER[3][1] == (86.52, 1.82)


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
