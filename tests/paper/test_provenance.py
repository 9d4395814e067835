"""What docs/paper/provenance.md says of our settings is what the code does, at full scale."""

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from gistgnn.distributed import Alone
from gistgnn.graphs.named import DATASETS
from gistgnn.paper.experiment import Experiment
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import LadiesSampling
from tests.paper.finished_runs import Finished

PAGE = Path(__file__).parents[2] / "docs/paper/provenance.md"
NAMES = sorted(set(EXPERIMENTS) - {"theory"})  # appendix A has no settings of the theory's


def section_rows() -> Iterator[tuple[list[str], list[str]]]:
    """The experiments that the heading above a row names, and the row's cells."""
    experiments: list[str] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            experiments = re.findall(r"`([\w-]+)`", line)
        elif line.startswith("| ") and not line.startswith("| ---"):
            yield experiments, [cell.strip() for cell in line.strip("| ").split(" | ")]


def values_in(cell: str) -> list[str]:
    """The values in code type with which a cell begins."""
    begin = re.match(r"`[^`]+`(?:[,;] `[^`]+`)*", cell)
    return re.findall(r"`([^`]+)`", begin.group()) if begin else []


def experiment_of(name: str) -> Experiment:
    kind: type[Experiment] = resolve_name(f"gistgnn.paper.{EXPERIMENTS[name].location}")
    return kind.at(name, "full")


def runs_of(experiment: Experiment, folder: Path) -> list[RunConfig]:
    """The runs of an experiment; of `ladies` without those on clusters, which are Table 2's."""
    if EXPERIMENTS[experiment.name].ranks and experiment.name != "ultrawide":
        runs = experiment.runs_on_ranks(Alone(), Finished(folder, "data"))
        return [
            run
            for run in runs
            if experiment.name != "ladies" or isinstance(run.sampler, LadiesSampling)
        ]
    store = Finished(folder, "data")
    experiment.run(store)
    return store.asked


def of_model(name: str, value: Callable[[RunConfig], Any]) -> Callable[[RunConfig], Any]:
    return lambda run: value(run) if run.model.name == name else None


# The rows whose value is an attribute of a run.
ATTRIBUTES = {
    "data sets": "dataset",
    "m": "sub_gcns",
    "inductive": "inductive",
    "features standardised": "standardise",
    "epochs": "training.epochs",
    "training": "training.training",
    "ζ": "training.local_steps",
    "optimiser": "training.optimizer",
    "optimiser's state": "training.optimizer_state",
    "schedule": "training.schedule",
    "learning rate": "training.lr",
    "weight decay": "training.weight_decay",
    "model": "model.name",
    "dropout": "model.dropout",
    "norm": "model.norm",
    "parts": "evaluation.parts",
    "clusters": "sampler.clusters",
    "clusters in a batch": "sampler.clusters_per_batch",
    "clustering": "sampler.method",
    "precompute": "sampler.precompute",
    "rows normalised": "sampler.row_normalise",
    "output nodes of a batch": "sampler.batch_size",
    "nodes of a layer": "sampler.nodes_per_layer",
}
# All rows that are checked, and their value for a run; it is None where a row does not apply.
SETTINGS: dict[str, Callable[[RunConfig], Any]] = {
    **{row: attrgetter(path) for row, path in ATTRIBUTES.items()},
    "ζ of GIST": lambda run: run.training.local_steps if run.method == "gist" else None,
    "hidden layers": lambda run: len(run.model.hidden),
    "widths": lambda run: run.model.hidden[0] * (run.model.heads if run.model.name == "gat" else 1),
    "norm of GraphSAGE": of_model("graphsage", lambda run: run.model.norm),
    "norm of GAT": of_model("gat", lambda run: run.model.norm),
    "heads of GAT": of_model("gat", lambda run: run.model.heads),
    "activation of GAT": of_model("gat", lambda run: run.model.activation),
}
# What every experiment has to say.
NEEDED = {
    "data sets",
    "epochs",
    "training",
    "learning rate",
    "weight decay",
    "hidden layers",
    "widths",
    "m",
    "seeds",
}


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if value >= 1000 else f"{value:g}"
    return str(value)


@pytest.mark.usefixtures("large_machine")
@pytest.mark.parametrize("name", NAMES)
def test_our_settings_are_those_of_the_code(name: str, tmp_path: Path) -> None:
    experiment = experiment_of(name)
    runs = runs_of(experiment, tmp_path)
    documented = {
        cells[0]: set(values_in(cells[-1])) for names, cells in section_rows() if name in names
    }
    actual = {"seeds": {as_text(experiment.seeds)}}
    for setting in documented.keys() & SETTINGS.keys():
        values = [SETTINGS[setting](run) for run in runs]
        actual[setting] = {as_text(value) for value in values if value is not None}
    assert {setting: documented.get(setting) for setting in actual} == actual
    assert set(actual) >= NEEDED


def test_every_value_in_code_type_that_is_read_is_checked() -> None:
    ours = {
        cells[0] for names, cells in section_rows() if names and re.match(r"`[\w.,]+`", cells[-1])
    }
    assert ours - set(SETTINGS) == {"seeds"}


def test_the_data_sets_are_ours() -> None:
    names = {"PubMed": "pubmed", "Cora": "cora", "CiteSeer": "citeseer", "ogbn-arxiv": "ogbn-arxiv"}
    names |= {"Reddit": "reddit", "Amazon2M": "amazon2m"}
    documented = {
        names[cells[0]]: values_in(cells[2]) for _, cells in section_rows() if cells[0] in names
    }
    infos = {name: DATASETS[name] for name in names.values()}
    assert documented == {
        name: [f"{number:,}" for number in (info.nodes, info.edges, info.classes, info.features)]
        for name, info in infos.items()
    }
