"""The choice of an evaluation, its errors, and its use in runs and scores."""

from typing import Any

import pytest
import torch
from torch_geometric.nn import GCNConv, PairNorm, models

from gistgnn import GIST
from gistgnn.evaluation import Evaluation, evaluate
from gistgnn.evaluation.budget import whole_graph_bytes
from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import GCN
from gistgnn.nn.gnn import EnsembleModel, as_gnn
from gistgnn.nn.scaling import scaled_model
from gistgnn.sampling import whole_graph
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import C, F, Stack
from tests.helpers.refusals import refused

from .cases import random_batch, random_model, whole_graph_output

BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "fast"}, "evaluation is 'fast', expected one of auto, whole, layers, parts"),
    ({"method": "parts"}, "by parts, but parts is not given"),
    ({"parts": 5}, "parts is 5, but the evaluation is auto: choose the method parts"),
    ({"method": "parts", "parts": 0}, "parts is 0, expected an integer >= 1"),
    ({"memory": -1}, "memory is -1, expected an integer >= 1"),
    ({"method": "whole", "memory": 10}, "memory is given, but the evaluation is whole"),
    ({"sample": 3}, "sample is 3, expected at most parts, which is None: choose the method parts"),
    (
        {"method": "parts", "parts": 3, "sample": 4},
        "sample is 4, expected at most parts, which is 3",
    ),
]


def test_bad_values_are_refused() -> None:
    for options, message in BAD:
        with refused(message):
            Evaluation(**options)


def test_auto_takes_what_fits() -> None:
    batch = random_batch(300)
    model = random_model("gcn", [32, 32])
    # This computes the operators, so both methods need no memory for them.
    whole_graph_output(model, batch)
    needed = whole_graph_bytes(model, batch)
    with_enough, with_less = (
        Evaluation(memory=memory).prepare(model, batch).describe()
        for memory in (needed, needed - 1)
    )
    assert with_enough == {"method": "whole", "exact": True}
    assert with_less["method"] == "layers"
    assert with_less["exact"] is True


def test_too_little_memory_says_how_much_is_needed() -> None:
    batch = random_batch(40_000, 40_000)
    model = random_model("gcn", [32])
    for method in ("auto", "layers"):
        with refused("512 KiB", "needs", "MiB on this graph", "or evaluate by parts"):
            Evaluation(method, 2**19).prepare(model, batch)


class Changed(GCN):
    def forward(self, x: Any, adj: Any) -> torch.Tensor:
        return super().forward(x, adj) * 2


class Wrong(Stack):
    def layers(self) -> list[Any]:
        return list(self.convs)  # without relu


def with_norm(norm: torch.nn.Module) -> GCN:
    """A model of ours in which a user has put another norm."""
    model = GCN(GRAPH.num_features, (4,), C)
    model.norms[0] = norm
    return model


def test_models_that_do_not_run_by_layers_are_refused_or_run_whole() -> None:
    batch = whole_graph(GRAPH)
    differ = "which has layers() that do not give, row by row, what forward gives"
    for model, why in (
        (Stack((4,), GCNConv), "Stack, which offers no layers()"),
        (Changed(F, (4,), C), "Changed, which offers no layers()"),
        (Wrong((4,), GCNConv), f"Wrong, {differ}"),
        (models.GCN(F, 4, 2, C, norm="graph_norm"), f"GCN, {differ}"),
        (GCN(GRAPH.num_features, (4,), C, norm="whole"), "GCN, which offers no layers()"),
        (with_norm(PairNorm()), "GCN, which has layers that do not give, row by row"),
    ):
        with refused(why, "models of gistgnn.nn", "a method layers(): add it", "parts, or whole"):
            Evaluation("layers").prepare(model, batch)
        assert Evaluation(memory=1).prepare(model, batch).describe()["method"] == "whole"
    assert Evaluation("layers").prepare(with_norm(torch.nn.RMSNorm(4)), batch)
    ours = GCN(GRAPH.num_features, (4,), C)
    assert as_gnn(torch.compile(ours)) is ours


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_every_module_stays_in_its_mode(members: int, is_scaled: bool) -> None:
    """A user may train with a batch norm that does not learn."""
    parts = [GCN(GRAPH.num_features, (4, 4), C, norm="batch") for _ in range(members)]
    model = EnsembleModel(parts) if members > 1 else parts[0]
    if is_scaled:
        model = scaled_model(model, Standardisation.of(GRAPH))
    model.train()
    for part in parts:
        part.norms[1].eval()
    modes = [module.training for module in model.modules()]
    assert not all(modes)
    for method in ("whole", "layers"):
        evaluate(model, GRAPH, evaluation=Evaluation(method))
        assert [module.training for module in model.modules()] == modes


def test_the_method_of_evaluation_does_not_change_training() -> None:
    results = {}
    thetas = []
    for evaluation in (
        None,
        Evaluation("whole"),
        Evaluation("layers"),
        Evaluation("parts", parts=4),
    ):
        gist = GIST(gcn(), (8,), 2)
        results[evaluation] = fit(gist, evaluation=evaluation)
        thetas.append(theta(gist))
    assert [result.evaluation["method"] for result in results.values()] == [
        "whole",
        "whole",
        "layers",
        "parts",
    ]
    assert all(same(one, thetas[0]) for one in thetas)
    assert results[Evaluation("layers")].test == results[None].test
    written = results[Evaluation("parts", parts=4)].as_dict()["evaluation"]
    assert written == {"method": "parts", "exact": False, "parts": 4}
