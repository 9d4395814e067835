"""Which nodes have an output: those whose numbers are all finite, also where their sum is not."""

import pytest
import torch

from gistgnn.training.metric import has_output, predicted_labels

LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.0, 1.0, -1.0], True),
        ([LARGEST, LARGEST, LARGEST], True),
        ([LARGEST, -LARGEST, 0.0], True),
        ([torch.nan, 1.0, 1.0], False),
        ([torch.inf, 1.0, 1.0], False),
        ([torch.inf, -torch.inf, 1.0], False),
        ([LARGEST, LARGEST, -torch.inf], False),
    ],
)
def test_a_node_has_an_output_if_all_numbers_are_finite(row: list[float], expected: bool) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], row])
    assert has_output(logits).tolist() == [True, expected]
    assert predicted_labels(logits, multi_label=False)[1] == (
        row.index(max(row)) if expected else -1
    )
    assert bool((predicted_labels(logits, multi_label=True)[1] >= 0).all()) == expected
