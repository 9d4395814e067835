"""Bad input: one line on standard error, exit status 2, no traceback, nothing left behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Cli, arrays

OPTIONS = [
    (("--sub-gcns", 0), "sub_gcns is 0, expected an integer >= 1"),
    (("--sub-gcns", 9, "--hidden", 8), "sub_gcns is 9, more than the 8 features"),
    (("--sub-gcns", "two"), "invalid int value: 'two'"),
    (("--hidden", 0), "'0' is not an integer >= 1"),
    (("--dataset", "corra"), "did you mean cora?"),
    (("--dataset", "absent.npz"), "absent.npz: no such file"),
    (("--model", "gcm"), "invalid choice: 'gcm'"),
    (("--modle", "gcn"), "unrecognized arguments: --modle gcn"),
    (("--epochs", 0), "epochs is 0"),
    (("--local-steps", -1), "local_steps is -1"),
    (("--lr", "nan"), "lr is nan"),
    (("--lr", "1e38"), "lr is 1e+38, expected a number > 0 and < 1e+06"),
    (("--weight-decay", -1), "weight_decay is -1.0"),
    (("--dropout", 1), "dropout 1.0"),
    (("--clip-norm", 0), "clip_norm is 0.0"),
    (("--patience", 0), "patience is 0"),
    (("--seed", -1), "-1"),
    (("--device", "tpu9"), "device is 'tpu9'"),
    (("--device", f"cuda:{10**30}"), "but torch finds"),
    (("--partition-dims", 3), "d_3 cannot be partitioned"),
    (("--out", "file/run"), "cannot write file/run"),
]


def _refused(done: Any, message: str, directory: Path, before: set[str]) -> None:
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("gistgnn")
    assert done.stdout == ""
    assert {path.name for path in directory.iterdir()} == before


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=[" ".join(map(str, o)) for o, _ in OPTIONS])
def test_options(cli: Cli, tmp_path: Path, options: tuple[Any, ...], message: str) -> None:
    (tmp_path / "file").touch()
    _refused(cli("train", *options), message, tmp_path, {"file"})


GRAPHS: dict[str, tuple[dict[str, Any], str]] = {  # what is put in place of an array; None: nothing
    "splits overlap": ({"val": np.arange(13)}, "train and val share 13 nodes"),
    "not a number": ({"x": np.full((40, 3), np.nan)}, "x[0, 0] is nan"),
    "one row less": ({"x": np.ones((39, 3))}, "y has 40 rows and x has 39"),
    "edge out of range": ({"edge_index": np.array([[40, 1], [1, 2]])}, "edge_index[0, 0] is 40"),
    "transposed": ({"edge_index": np.zeros((80, 2), int)}, "transpose it"),
    "float edges": ({"edge_index": np.zeros((2, 80))}, "edge_index has dtype torch.float64"),
    "no edges": ({"edge_index": np.zeros((2, 0), int)}, "no edges"),
    "label out of range": ({"y": np.full(40, -2)}, "y[0] is -2"),
    "unlabelled": ({"y": np.where(np.arange(40) < 26, np.arange(40) % 3, -1)}, "test holds 14 unlabelled nodes"),
    "empty split": ({"val": np.array([], int)}, "val"),
    "no labels": ({"y": None}, "has no y"),
}


@pytest.mark.parametrize(("spoilt", "message"), GRAPHS.values(), ids=GRAPHS)
def test_graphs(cli: Cli, tmp_path: Path, spoilt: dict[str, Any], message: str) -> None:
    graph = {name: array for name, array in {**arrays(), **spoilt}.items() if array is not None}
    np.savez(tmp_path / "own.npz", **graph)
    _refused(cli("train", "--dataset", "own.npz"), message, tmp_path, {"own.npz"})


def test_truncated_file(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    own_graph.write_bytes(own_graph.read_bytes()[:500])
    _refused(cli("train", "--dataset", own_graph), "damaged", tmp_path, {"own.npz"})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give a command"),
        (("tarin",), "invalid choice: 'tarin'"),
        (("evaluate", "nowhere"), "nowhere holds no result.json"),
        (("predict", "nowhere", "--output", "a.csv"), "nowhere holds no result.json"),
        (("predict", "nowhere", "--output", "a.txt"), "expected a name that ends in .csv or .npz"),
        (("datasets", "nope"), "'nope' is neither a data set nor a file"),
        (("reproduce", "table9"), "invalid choice: 'table9'"),
        (("reproduce", "table1", "--datasets", "digits"), "data set is 'digits', expected one of cora"),
        (("reproduce", "table1", "--jobs", "0"), "'0' is not an integer >= 1"),
    ],
)
def test_commands(cli: Cli, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    _refused(cli(*args), message, tmp_path, set())


def test_divergence_keeps_the_last_good_parameters(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["x"] *= 1e30  # finite, but the gradient is not
    np.savez(tmp_path / "huge.npz", **graph)
    size = ("--hidden", 8, "--sub-gcns", 2, "--epochs", 80)
    done = cli(
        "train", "--dataset", "huge.npz", *size, "--no-standardise", "--optimizer", "sgd", "--lr", 1, "--out", "run"
    )
    assert done.returncode == 2
    assert "training diverged in round 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    scored = cli("evaluate", "run")
    assert scored.returncode == 0, scored.stderr
    assert "gistgnn: note: training diverged in round 1: " in scored.stderr
    assert "this model is as it was before training, and worth nothing" in scored.stderr
    assert "The model is as it was before training." in (tmp_path / "run/report.html").read_text()
