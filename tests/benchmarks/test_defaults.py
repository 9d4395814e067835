"""The benchmark of the defaults: its commands are understood, and its rows hold what was measured."""

import pytest

from benchmarks.defaults import DATASETS, RUNS, row
from gistgnn.cli.main import make_parser


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("name", RUNS)
def test_the_commands_are_understood(dataset: str, name: str) -> None:
    args = make_parser().parse_args(["train", "--dataset", dataset, *DATASETS[dataset], *RUNS[name]])
    assert args.local_steps == (20 if name == "earlier defaults" else None)


def test_a_row_has_means_over_the_seeds() -> None:
    records = [
        {
            "test": {"accuracy": best},
            "last": {"test": {"accuracy": best - 0.1}},
            "rounds": 5,
            "coverage": {"counts": {"0": share}},
        }
        for best, share in ((0.8, 0.1), (0.9, 0.3))
    ]
    text = row("cora", "defaults", records).replace("\u00a0", " ")
    assert text == "| cora | defaults | 85.00 ± 7.07 | 75.00 ± 7.07 | 5 | 20.0 |"
