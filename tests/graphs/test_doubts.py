"""What is valid and perhaps not meant: a note for each."""

import logging
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from gistgnn.graphs import Graph
from gistgnn.graphs.graph import note_doubts

ONE_WAY = torch.stack([torch.arange(29), torch.arange(1, 30)])
BOTH = torch.cat([ONE_WAY, ONE_WAY.flip(0)], dim=1)
CLASSES = torch.arange(30) % 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),
        ({"test": []}, "graph has no test nodes: there are no test scores"),
        ({"edge_index": ONE_WAY}, "0% of the edges of graph have a reverse edge"),
        ({"edge_index": torch.tensor([[0, 1], [0, 1]])}, ""),  # self-loops are not looked at
        ({"y": one_hot(CLASSES)}, "y has one 1 in every row"),
        ({"y": torch.cat([one_hot(CLASSES), torch.ones(30, 1)], dim=1)}, ""),
        ({"y": torch.where(CLASSES == 2, 9, CLASSES)}, "no node has class 2, 3, 4, 5, 6, ...: the model"),
    ],
)
def test_a_graph_that_is_perhaps_not_meant(given: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    splits = {"train": torch.arange(10), "val": torch.arange(10, 20), "test": torch.arange(20, 30)}
    graph = Graph.build(**{"x": torch.ones(30, 2), "edge_index": BOTH, "y": CLASSES, **splits, **given})
    with caplog.at_level(logging.INFO, "gistgnn"):
        note_doubts(graph)
    assert len(caplog.messages) == bool(said)
    assert all(said in message for message in caplog.messages)
