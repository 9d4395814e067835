"""Parts, ensembles and budgets on several ranks: the parts of one process, dealt out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST, InputError, Parts
from gistgnn.baselines import Ensemble
from gistgnn.distributed import Ranks
from gistgnn.fit import trials
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.fit.saving import Saving
from gistgnn.layout.axes import named_tensors
from gistgnn.nn.scaling import plain_model
from gistgnn.sampling import ClusterSampling
from gistgnn.theta.registry import Store
from tests.helpers.fitting import quiet
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.resuming import after

from .launch import on_ranks

GRAPH = tiny_graph()
METHODS = {"parts": Parts, "ensemble": Ensemble}


def build(widths: Any) -> Any:
    return OURS["gcn"](widths, dropout=0.3, norm="batch")


def trained(
    method: str, ranks: Ranks | None = None, store: Store | str = "memory", **options: Any
) -> dict[str, Any]:
    """The model of a run, which rank 0 has, and what all ranks know of the run."""
    trainer = METHODS[method](build, (8, 12), 4, ranks=ranks, store=store, seed=3)
    settings: dict[str, Any] = {
        "epochs": 24,
        "local_steps": 2,
        "lr": 0.05,
        "evaluate_every": 1,
        **options,
    }
    result = trainer.fit(GRAPH, sampler=ClusterSampling(6, 2, "random"), progress=False, **settings)
    tensors: dict[str, Tensor] = {}
    if ranks is None or ranks.leads:
        tensors = {name: tensor.clone() for name, tensor in named_tensors(result.model).items()}
    return {
        "model": tensors,
        "history": quiet(result.history),
        "test": result.test,
        "interrupted": result.interrupted,
        "stopped_by": result.stopped_by,
        "steps": result.progress.steps,
    }


def train_on_rank(ranks: Ranks, folder: Path) -> dict[str, dict[str, Any]]:
    runs = {method: trained(method, ranks) for method in METHODS}
    runs["rows"] = trained("parts", ranks, Store.in_run("disk", folder / "theta", share="rows"))
    runs["stopped"] = trained("parts", ranks, callbacks=[StopSecondPart()])
    return runs


class StopSecondPart(Callback):
    def on_round_end(self, run: Run, loss: float) -> None:
        if run.part == "part 2 of 4":
            run.stop()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("count", [2, 4])
def test_parts_on_ranks_are_those_of_one_process(count: int, tmp_path: Path) -> None:
    runs_of_ranks = on_ranks(count, train_on_rank, tmp_path)
    expected = {method: trained(method) for method in METHODS}
    expected["rows"] = expected["parts"]
    expected["stopped"] = trained("parts", callbacks=[StopSecondPart()])
    assert expected["stopped"]["stopped_by"] == "callback"
    for kind in expected:
        for runs in runs_of_ranks:
            for key in ("history", "test", "interrupted", "stopped_by", "steps"):
                assert runs[kind][key] == expected[kind][key], (kind, key)
        for name, tensor in expected[kind]["model"].items():
            assert torch.equal(runs_of_ranks[0][kind]["model"][name], tensor), (kind, name)


def train_and_stop(ranks: Ranks, folder: Path) -> list[dict[str, Any]]:
    """Rank 1 is interrupted in its second part; then all go on."""
    callbacks = after(7) if ranks.rank == 1 else []
    cut = trained("parts", ranks, saving=Saving(folder / "c", every=1), callbacks=callbacks)
    resumed = trained("parts", ranks, saving=Saving(folder / "c", every=1, resume=True))
    return [cut, resumed]


def test_an_interruption_of_one_rank_is_one_of_all(tmp_path: Path) -> None:
    expected = trained("parts")
    runs_of_ranks = on_ranks(2, train_and_stop, tmp_path)
    for cut, resumed in runs_of_ranks:
        assert cut["interrupted"]
        assert not resumed["interrupted"]
        assert resumed["history"] == expected["history"]
    for name, tensor in expected["model"].items():
        assert torch.equal(runs_of_ranks[0][1]["model"][name], tensor), name


def within_a_budget(ranks: Ranks, folder: Path) -> dict[str, Any]:
    trials.NARROWEST = 8
    gist = GIST(build, (32, 32), 4, ranks=ranks)
    saving = Saving(folder / "c", every=1)
    result = gist.fit(GRAPH, budget=3.0, progress=False, saving=saving)
    partition = gist.partition.split_into(len(result.partition[0].blocks))
    weight = (
        named_tensors(plain_model(result.model))["convs.0.weight"]
        if ranks.leads
        else torch.zeros(0)
    )
    blocks = partition.blocks(0) if ranks.leads else []
    parts = [weight.index_select(0, of_part[0]).sum().item() for of_part in blocks]
    return {
        "budget": result.budget,
        "parts": parts,
        "test": result.test,
        "history": len(result.history),
    }


def test_every_rank_trains_a_part_of_its_own_within_a_budget(tmp_path: Path) -> None:
    first, second = on_ranks(2, within_a_budget, tmp_path)
    assert first["budget"] == second["budget"]
    assert first["budget"].parts == min(2, first["budget"].sub_gcns)
    assert first["test"] == second["test"]
    assert first["history"] == second["history"]
    if first["budget"].sub_gcns > 1:
        assert len({round(total, 4) for total in first["parts"]}) == 2, (
            "two different parts, and their copies"
        )


def resume_with_another_number(ranks: Ranks, folder: Path) -> str:
    trials.NARROWEST = 8
    gist = GIST(build, (32, 32), 4, ranks=ranks)
    try:
        gist.fit(
            GRAPH, budget=3.0, progress=False, saving=Saving(folder / "c", every=1, resume=True)
        )
    except InputError as error:
        return str(error)
    return ""


def test_a_budget_of_two_ranks_is_not_resumed_by_three(tmp_path: Path) -> None:
    on_ranks(2, within_a_budget, tmp_path)
    for message in on_ranks(3, resume_with_another_number, tmp_path):
        assert "3 ranks" in message
        assert "had 2" in message
