"""What the settings of the public sweep do: the features, splits, norm and rows of the benchmark."""

from dataclasses import replace

import pytest
import torch

from benchmarks.small_graph_settings import Setting, WholeNormGCN, measure, projection, random_split
from gistgnn.graphs import load
from gistgnn.paper.published import TABLE1_ROWS as ROWS

SETTING = Setting("cora", ROWS.index((8, (0, 1))), "split", "whole", True, "100", 5e-4, epochs=8)


def test_a_setting_is_measured_on_a_random_split_with_projected_features_and_the_public_norm() -> None:
    digits = load("digits")
    split = random_split(digits, 100, 0)
    assert [int(mask.sum()) for mask in (split.train, split.val, split.test)] == [100, 500, 1000]
    assert not (split.train & split.val | split.val & split.test | split.train & split.test).any()
    projected = projection(torch.eye(30), 8, 0)
    assert projected.shape == (30, 24)
    assert (projected != 0).all()
    hidden = WholeNormGCN.activate(torch.nn.Identity(), torch.randn(50, 8) * torch.arange(1, 9))
    assert hidden.mean() == pytest.approx(0, abs=1e-5)
    assert hidden.mean(0).std() > 0.1  # features differ, unlike with one mean for each
    found = measure(SETTING, 0.01, 0, digits)
    assert 0 <= found["test"] <= found["best"] <= 100
    assert found["untrained"] > 10  # there is one round: most of the first layer lies between blocks
    assert replace(SETTING, row=0).config(0.01, 0).training.local_steps == 1  # one device is scored after every step
