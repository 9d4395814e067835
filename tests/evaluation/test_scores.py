import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor, nn

from gistgnn.evaluation.scores import evaluate
from gistgnn.graphs import Graph
from gistgnn.training.metric import NAMED


def constant(logits: Tensor) -> nn.Module:
    """A model that returns the same scores for every input."""
    return type("Constant", (nn.Module,), {"forward": lambda self, x: logits})()


@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), st.integers(0, 2**16))
def test_scores_are_those_of_scikit_learn(
    nodes: int, classes: int, several: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape, most = ((nodes, classes), 2) if several else ((nodes,), classes)
    truth, guess = (torch.randint(most, shape, generator=generator) for _ in range(2))
    logits = guess.float() - 0.5 if several else nn.functional.one_hot(guess, classes).float()
    assert NAMED["accuracy"](logits, truth) == pytest.approx(accuracy_score(truth, guess))
    for kind in ("micro", "macro"):
        if several and classes == 1:  # scikit-learn takes one column for two classes
            continue
        expected = f1_score(truth, guess, average=kind, zero_division=0)
        assert NAMED[f"f1_{kind}"](logits, truth) == pytest.approx(expected)


def test_each_split_is_scored_on_its_own_nodes() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    y = torch.tensor([0, 1, 2, 0, 1, -1])
    graph = Graph.build(torch.zeros(6, 2), edges, y, train=[0], val=[1, 2], test=[3, 4])
    model = constant(nn.functional.one_hot(torch.tensor([0, 1, 1, 1, 1, 0]), 3).float())
    result = evaluate(model, graph)
    accuracies = {split: scores["accuracy"] for split, scores in result.items()}
    assert accuracies == {"train": 1.0, "validation": 0.5, "test": 0.5}
    assert list(evaluate(model, graph, ["test"])) == ["test"]
    assert result["validation"]["f1_macro"] == pytest.approx((2 / 3 + 0) / 2)
