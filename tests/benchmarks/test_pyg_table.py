"""The page of PyG's layers and models: it names them all, and says of each what a user sees."""

import re

import pytest

from benchmarks.pyg_modules import LAYERS, MODELS
from benchmarks.pyg_table import (
    IN_TURN,
    LEFT_OUT,
    PAGE,
    REFUSED,
    attempt,
    check_reasons,
    exported,
    kind_of,
    page,
)

CASES = {**LAYERS, **MODELS}
KINDS = {
    name: "refused" if name in REFUSED else "in turn" if name in IN_TURN else "fused"
    for name in CASES
}
MESSAGES = {
    "NNConv": "not a matrix, as NNConv's edge network makes",
    "NNConv with two widths": "a product of widths, as in NNConv",
    "GENConv with two sizes": "exists at some widths only",
    "HeteroConv": "dictionaries of types of nodes and edges",
    "SGFormer": "takes 'batch', which gistgnn does not give",
    "LINKX": "on a graph of 7 nodes",
    "MFConv": "trains, not fused",
    "FeaStConv": "trains, fused",
    "RGCNConv": "trains, fused",
    "GINEConv": "trains, fused",
}


def test_every_module_of_pyg_is_tried_or_left_out() -> None:
    tried = {re.split(r"\s", name)[0] for name in CASES}
    assert not tried & LEFT_OUT.keys()
    assert set(exported()) <= tried | LEFT_OUT.keys()


def test_the_page_is_what_the_script_writes_and_has_no_exception() -> None:
    assert PAGE.read_text() == page(KINDS)
    assert "Error" not in PAGE.read_text()


def test_most_modules_train() -> None:
    assert sum(kind != "refused" for kind in KINDS.values()) >= 60


@pytest.mark.parametrize("changed", ["GCNConv", "NNConv", "MFConv"])
def test_a_module_without_a_right_reason_is_an_error(changed: str) -> None:
    check_reasons(KINDS)
    with pytest.raises(SystemExit, match=changed):
        check_reasons({**KINDS, changed: "fused" if KINDS[changed] != "fused" else "refused"})


@pytest.mark.parametrize("name", MESSAGES)
def test_the_page_says_of_a_module_what_a_user_sees(name: str) -> None:
    outcome = attempt(CASES[name])
    assert MESSAGES[name] in outcome.text
    assert kind_of(outcome) == KINDS[name]
