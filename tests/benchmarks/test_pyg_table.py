"""The page of PyG's layers and models: it names them all, and its reasons are those that a user
sees.
"""

import re

import pytest

from benchmarks.pyg_modules import LAYERS, MODELS
from benchmarks.pyg_table import LEFT_OUT, PAGE, attempt, exported, row

ROWS = {
    line.split("|")[1].strip(): line
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ")
}
CASES = {**LAYERS, **MODELS}
REASONS = {
    "NNConv": "not a matrix, as NNConv's edge network makes",
    "NNConv with two widths": "a product of widths, as in NNConv",
    "GENConv with two sizes": "exists at some widths only",
    "HeteroConv": "dictionaries of types of nodes and edges",
    "SGFormer": "takes 'batch', which gistgnn does not give",
    "LINKX": "on a graph of 7 nodes",
    "FeaStConv": "trains",
    "RGCNConv": "trains",
    "GINEConv": "trains",
}


def test_the_page_names_every_module() -> None:
    assert ROWS.keys() - {"module", "---"} == CASES.keys()
    tried = {re.split(r"\s", name)[0] for name in CASES}
    assert not tried & LEFT_OUT.keys()
    assert set(exported()) <= tried | LEFT_OUT.keys()


def test_most_train_and_none_fails_without_a_reason() -> None:
    outcomes = [ROWS[name].split("|")[3].strip() for name in CASES]
    assert sum(text.startswith("trains") for text in outcomes) >= 60
    assert all(text.startswith(("trains", "refused: ")) for text in outcomes)


@pytest.mark.parametrize("name", REASONS)
def test_the_page_says_what_a_user_sees(name: str) -> None:
    assert REASONS[name] in attempt(CASES[name]).text
    assert row(name, CASES[name]) == ROWS[name]
