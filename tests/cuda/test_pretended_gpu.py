"""Runs on a pretended GPU: no operation has tensors of two devices, and Θ is the CPU's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST
from gistgnn.evaluation import Evaluation
from gistgnn.nn import SparseMatrix
from gistgnn.sampling.registry import SAMPLERS
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import every_model
from tests.helpers.pretended_gpu import OnGPU, pretended_gpu

from .runs import GRAPH, SAMPLING, SETTINGS, close, left, trained
from .test_same_as_cpu import RUNS as RUNS_ON_GPU

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("graphsage batch 2", {"sampler": SAMPLERS["clusters"](**SAMPLING["clusters"]), "epochs": 12}),
    (
        "pyg gat layer_norm cat",
        {"kind": "host", "runner": "fused", "clip_norm": 0.5, "class_weights": "balanced"},
    ),
    *RUNS_ON_GPU,
]


@pytest.mark.one_in(len(RUNS))
@pytest.mark.parametrize(("model", "options"), RUNS, ids=str)
def test_a_run_stays_on_the_gpu_and_trains_the_theta_of_the_cpu(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    expected = trained(model, "cpu", tmp_path / "cpu", **options)
    with pretended_gpu():
        actual = trained(model, "cuda", tmp_path / "cuda", **options)
    close(actual, expected)


def trained_on_words(model: str, device: str, method: Any) -> dict[str, torch.Tensor]:
    """Train inductively on sparse features, by clusters; return Θ."""
    build, widths = every_model()[model]
    widths = 12 if isinstance(widths, int) else (12, 12)
    words = (GRAPH.x * (GRAPH.x > 2)).to_sparse_csr()
    gist = GIST(build, widths, 2, device=device)
    sampler = SAMPLERS["clusters"](**SAMPLING["clusters"])
    gist.fit(
        replace(GRAPH, x=words),
        sampler=sampler,
        inductive=True,
        evaluation=Evaluation(method, parts=4 if method == "parts" else None),
        standardise=False,
        **{**SETTINGS, "epochs": 6},
    )
    return left(gist)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("model", ["gcn layer 2", "pyg graphsage None cat"])
@pytest.mark.parametrize("method", ["layers", "whole", "parts"])
def test_sparse_features_stay_on_the_gpu(model: str, method: str) -> None:
    expected = trained_on_words(model, "cpu", method)
    with pretended_gpu():
        actual = trained_on_words(model, "cuda", method)
    close(actual, expected)


def test_tensors_of_two_devices_are_refused() -> None:
    with pretended_gpu():
        on_host = torch.eye(2)
        on_gpu = on_host.to("cuda:0")
        assert isinstance(on_gpu, OnGPU)
        assert (on_gpu + on_gpu).cpu().numpy().tolist() == [[2, 0], [0, 2]]
        for operation in (
            lambda: on_host + on_gpu,
            lambda: SparseMatrix.from_dense(on_host) @ on_gpu,
        ):
            with pytest.raises(RuntimeError, match="same device"):
                operation()
        indices = torch.tensor([1, 0], device="cuda:0")
        assert on_gpu[indices.cpu()].cpu().tolist() == [[0, 1], [1, 0]]
        with pytest.raises(RuntimeError, match="indices"):
            on_host[indices]
        with pytest.raises(TypeError):
            on_gpu.numpy()


def test_the_peak_of_a_run_is_not_that_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reset before anything of the run is on the GPU."""
    calls: list[tuple[str, int]] = []
    with pretended_gpu():

        def reset(device: torch.device) -> None:
            calls.append(("reset", 0))

        def peak(device: torch.device) -> int:
            calls.append(("asked", 0))
            return 7

        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", peak)
        gist = GIST(gcn(), (8, 6), 2, device="cuda:0")
        assert [fit(gist).peak_memory_bytes for _ in range(2)] == [7, 7]
    assert calls == [("reset", 0), ("asked", 0)] * 2
