"""What the settings of the public sweep do: the features, splits, norm and rows of the benchmark."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.small_graph_settings import (
    Setting,
    WholeNormGCN,
    line,
    make_parser,
    measure,
    projection,
    random_split,
    settings_of,
)
from gistgnn.graphs import Graph, load
from gistgnn.paper.table1 import ROWS

SETTING = Setting("cora", ROWS.index((8, (0, 1))), "split", "none", False, "public", 5e-4)


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load("digits")


@settings(max_examples=20)
@given(train=st.integers(10, 250), seed=st.integers(0, 5))
def test_a_random_split_has_the_sizes_that_were_asked_for(digits: Graph, train: int, seed: int) -> None:
    masks = [(split.train, split.val, split.test) for split in (random_split(digits, train, seed),) * 2]
    assert [int(mask.sum()) for mask in masks[0]] == [train, 500, 1000]
    assert not (masks[0][0] & masks[0][1] | masks[0][1] & masks[0][2] | masks[0][0] & masks[0][2]).any()
    assert not torch.equal(masks[0][0], random_split(digits, train, seed + 1).train)


@given(features=st.integers(20, 60), m=st.sampled_from([1, 2, 4, 8]))
def test_projected_features_are_dense_and_a_multiple_of_m(features: int, m: int) -> None:
    x = torch.zeros(3, features)
    x[torch.arange(3), torch.arange(3)] = 1.0
    projected = projection(x, m, 0)
    assert projected.shape[1] == features // m * m
    assert (projected != 0).all()
    assert ((projected.square().sum(1) > 0.3) & (projected.square().sum(1) < 3)).all()  # lengths are kept on average


def test_the_public_norm_is_of_the_whole_matrix() -> None:
    hidden = WholeNormGCN.activate(torch.nn.Identity(), torch.randn(50, 8) * torch.arange(1, 9))
    assert hidden.mean() == pytest.approx(0, abs=1e-5)
    assert hidden.std() == pytest.approx(1, abs=0.01)
    assert hidden.mean(0).std() > 0.1  # features differ, unlike with one mean for each


@pytest.mark.parametrize(("norm", "projected"), [("none", False), ("layer", True), ("whole", True)])
def test_a_run_of_every_kind_is_measured(norm: str, projected: bool, digits: Graph) -> None:
    setting = replace(SETTING, norm=norm, projected=projected, train_nodes="100", epochs=8)
    found = measure(setting, 0.01, 0, digits)
    assert 0 <= found["test"] <= found["best"] <= 100
    assert found["untrained"] > 10  # there is one round: most of the first layer lies between blocks


def test_one_device_is_scored_after_every_step() -> None:
    assert replace(SETTING, row=0).config(0.01, 0).training.local_steps == 1
    assert SETTING.config(0.01, 0).training.local_steps == 20


def test_every_combination_is_a_setting(tmp_path: Path) -> None:
    words = (
        "--rows 0 8 --norm none whole --projected no yes --train-nodes public 9 --weight-decay 0 1 --local-steps 1 5"
    )
    combinations = settings_of(make_parser().parse_args([*words.split(), "--out", str(tmp_path)]))
    assert len(set(combinations)) == len(combinations) == 2**6
    assert {setting.projected for setting in combinations} == {False, True}


def test_a_line_shows_the_rate_of_the_best_validation_score() -> None:
    def runs(validation: float, test: float, best: float) -> list[dict[str, float]]:
        return [{"validation": validation, "test": test, "best": best, "untrained": 56.4}] * 2

    cells = line(SETTING, {0.01: runs(80, 70, 75), 0.05: runs(70, 78, 79)})
    cells = [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells]
    assert cells[:9] == ["cora", "8", "d_0, d_1", "split", "20", "none", "no", "public", "adam"]
    assert cells[9:] == ["0.01", "0.0005", "70.00 ± 0.00", "75.00 ± 0.00", "79.00", "56", "53.60"]
