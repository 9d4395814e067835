"""`gistgnn export` and `Result.to_pyg`: what they write runs where gistgnn cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

import gistgnn
from gistgnn import GIST, Graph, load_run
from gistgnn.evaluation.scores import predict
from gistgnn.graphs import load_file as load_graph
from gistgnn.nn import MODELS, WITH_HEADS, GraphSAGE
from gistgnn.runs import export as exporting
from gistgnn.runs.forms import FORMS
from gistgnn.sampling import whole_graph
from gistgnn.training.names import find_named

from .conftest import TRAIN, Cli, Json, arrays

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

# Runs models as a user would who has torch, and for model.py PyG, but no gistgnn.
WITHOUT_GISTGNN = """
import runpy, sys
import numpy as np
import torch
form, *paths = sys.argv[1:]
sys.modules["gistgnn"] = None
if form == "torch":
    sys.modules["torch_geometric"] = None
for path in paths:
    arrays = np.load(f"{path}.inputs.npz")
    if form == "torch":
        extra_files = {"about.json": ""}
        model = torch.export.load(f"{path}.pt2", extra_files=extra_files).module()
        assert "temperature" in extra_files["about.json"]
    else:
        code = runpy.run_path(f"{path}_pyg/model.py")
        model = code["load"]()
        assert code["ABOUT"]["inputs"] == list(arrays)
    with torch.no_grad():
        logits = model(*map(torch.from_numpy, arrays.values()))
    np.save(f"{path}.{form}.npy", logits.numpy())
assert not any(name.startswith("gistgnn.") for name in sys.modules)
"""


def outputs_without_gistgnn(form: str, runs: list[str]) -> dict[str, np.ndarray]:
    """What the exported models of some runs return, for the inputs that were saved."""
    program = [sys.executable, "-c", WITHOUT_GISTGNN, form, *runs]
    completed = subprocess.run(program, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return {run: np.load(f"{run}.{form}.npy") for run in runs}


def save_arrays(run: str, graph: Graph, *, weighted: bool = False) -> None:
    """Save a graph's arrays as the inputs of an exported model."""
    values = {"x": graph.x, "edge_index": graph.edge_index}
    if weighted:
        assert graph.edge_weight is not None
        values["edge_weight"] = graph.edge_weight
    np.savez(f"{run}.inputs.npz", **{name: value.numpy() for name, value in values.items()})


def save_inputs(run: str, path: str, *, weighted: bool = False) -> np.ndarray:
    """Save a graph's arrays for an exported model; return the logits of the run's own model."""
    graph = load_graph(path, partial=True)
    save_arrays(run, graph, weighted=weighted)
    return predict(load_run(run).model, whole_graph(graph)).numpy()


def random_arrays(*, nodes: int = 60, weighted: bool = False, labels: int = 0) -> dict[str, Any]:
    """A directed graph whose features need a scale.

    It has self-loops, repeated edges and nodes without edges.
    """
    rng = np.random.default_rng(nodes)
    graph = arrays(nodes)
    graph["edge_index"] = rng.integers(nodes - 3, size=(2, 5 * nodes))
    graph["x"] = (7 * graph["x"] + 50).astype(np.float32)
    if weighted:
        graph["edge_weight"] = rng.random(5 * nodes).astype(np.float32)
    if labels:
        graph["y"] = rng.integers(2, size=(nodes, labels))
    return graph


@pytest.fixture
def graphs(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **random_arrays())
    np.savez(tmp_path / "weighted.npz", **random_arrays(weighted=True))
    np.savez(tmp_path / "labels.npz", **random_arrays(labels=4))
    np.savez(tmp_path / "larger.npz", **random_arrays(nodes=90))


def train(cli: Cli, run: str, *options: object) -> None:
    length = () if "--budget" in options else ("--epochs", 3)
    short = ("--hidden", 8, 8, "--dataset", "own.npz", *length)
    completed = cli("train", *short, "--out", run, *options)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_pyg_files_compute_what_the_run_s_model_does(cli: Cli, graphs: None, norm: str) -> None:
    options_of_norm = {
        "batch": ["--standardise", "--dataset", "labels.npz"],
        "layer": ["--no-standardise", "--dataset", "weighted.npz"],
        "none": ["--standardise"],
    }
    runs: dict[str, list[object]] = {
        f"{name}-{norm}": ["--model", name, "--norm", norm, *options_of_norm[norm]]
        for name in MODELS
    }
    runs["gist"] = ["--sub-gcns", 4, "--set", "precision=bf16"]
    runs["parts"] = ["--method", "parts", "--sub-gcns", 2, "--model", "gat"]
    runs["budget"] = ["--budget", "2s", "--model", "graphsage"]
    expected = {}
    for run, options in runs.items():
        train(cli, run, *options)
        completed = cli("export", run, "--to", "pyg")
        assert completed.returncode == 0, completed.stderr
        assert sorted(path.name for path in Path(f"{run}_pyg").iterdir()) == [
            "model.py",
            "model.safetensors",
        ]
        path = str(options[-1]) if "--dataset" in options else "own.npz"
        weighted = "weighted.npz" in options and options[1] not in WITH_HEADS
        expected[run] = save_inputs(run, path, weighted=weighted)
    outputs = outputs_without_gistgnn("pyg", [*runs])
    for run, logits in expected.items():
        np.testing.assert_allclose(outputs[run], logits, **TOLERANCE, err_msg=run)
    assert np.ptp(outputs["gist"], axis=0).min() > 0.01  # the model tells nodes apart


@pytest.mark.long
def test_torch_files_compute_what_the_run_s_model_does(cli: Cli, graphs: None) -> None:
    norms = dict(zip(MODELS, ("layer", "batch", "none", "layer", "whole"), strict=True))
    expected = {}
    for name, norm in norms.items():
        weighted = name == "gin"
        dataset = "weighted.npz" if weighted else "own.npz"
        train(cli, name, "--model", name, "--norm", norm, "--dataset", dataset)
        completed = cli("export", name, "--to", "torch")
        assert completed.returncode == 0, completed.stderr
        assert completed.stderr == ""
        assert b"site-packages" not in Path(f"{name}.pt2").read_bytes()  # a path of this machine
        # It is called on another graph than the run's, with other numbers of nodes and edges.
        other = dataset if weighted else "larger.npz"
        expected[name] = save_inputs(name, other, weighted=weighted)
    outputs = outputs_without_gistgnn("torch", [*norms])
    for name, logits in expected.items():
        np.testing.assert_allclose(outputs[name], logits, **TOLERANCE, err_msg=name)
    program = torch.export.load("gatv2.pt2").module()
    model = load_run("gatv2").to_pyg()
    for nodes, edges in ((1, 0), (1, 1), (2, 1), (5, 8), (200, 999)):  # graphs of any size
        x = torch.randn(nodes, 3)
        edge_index = torch.randint(nodes, (2, edges))
        torch.testing.assert_close(program(x, edge_index), model(x, edge_index))


@pytest.mark.long
def test_onnx_files_compute_what_the_run_s_model_does(cli: Cli, graphs: None) -> None:
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    norms = dict(zip(MODELS, ("layer", "batch", "none", "layer", "whole"), strict=True))
    for name, norm in norms.items():
        weighted = name == "graphsage"
        dataset = "weighted.npz" if weighted else "own.npz"
        train(cli, name, "--model", name, "--norm", norm, "--dataset", dataset)
        completed = cli("export", name, "--to", "onnx")
        assert completed.returncode == 0, completed.stderr
        other = dataset if weighted else "larger.npz"
        expected = save_inputs(name, other, weighted=weighted)
        model = onnx.load(f"{name}.onnx")
        about = {entry.key: entry.value for entry in model.metadata_props}["about"]
        assert json.loads(about)["classes"] == 3
        evaluator = reference.ReferenceEvaluator(model)
        (logits,) = evaluator.run(["logits"], dict(np.load(f"{name}.inputs.npz")))
        np.testing.assert_allclose(logits, expected, **TOLERANCE, err_msg=name)


def refused(cli: Cli, message: str, *args: object) -> None:
    """Expect status 2, one line, and no file that was not there."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    completed = cli("export", *args)
    assert (completed.returncode, completed.stdout, completed.stderr.count("\n")) == (2, "", 1), (
        completed.stderr
    )
    assert message in completed.stderr
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_files_are_replaced_only_where_a_user_says_so(cli: Cli, graphs: None) -> None:
    model = ("--model", "graphsage", "--norm")
    paths = {"pyg": "run_pyg/model.py", "torch": "run.pt2"}
    train(cli, "run", *model, "batch", "--overwrite")
    before = {}
    for form, path in paths.items():
        assert cli("export", "run", "--to", form).returncode == 0
        before[form] = Path(path).read_bytes()
        refused(cli, f"{path} exists", "run", "--to", form)
    train(cli, "run", *model, "layer", "--overwrite")
    for form, path in paths.items():
        assert cli("export", "run", "--to", form, "--overwrite").returncode == 0
        assert Path(path).read_bytes() != before[form]
    tensors = load_file("run_pyg/model.safetensors")
    assert not any("running_mean" in name for name in tensors)
    Path("run_pyg/model.py").unlink()
    refused(cli, "run_pyg/model.safetensors exists", "run", "--to", "pyg")
    # A run's own model is not replaced, either.
    refused(cli, "is the folder of a run", "run", "--to", "pyg", "--out", "run", "--overwrite")
    assert not [path for path in Path().rglob(".gistgnn-*") if path.name != ".gistgnn.lock"]


def test_the_files_are_beside_the_folder_also_from_within_it(
    cli: Cli, graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(cli, "run")
    here = Path.cwd()
    monkeypatch.chdir("run")
    before = sorted(Path().iterdir())
    assert cli("export", ".", "--to", "pyg").returncode == 0
    assert sorted(Path().iterdir()) == before
    assert (here / "run_pyg/model.py").is_file()


def test_what_cannot_be_exported_is_refused(
    cli: Cli, graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(cli, "run")
    train(cli, "ensemble", "--method", "ensemble", "--sub-gcns", 2)
    Path("file").touch()
    for form in FORMS:
        refused(cli, "holds no result.json", "nowhere", "--to", form)
        if form != "onnx":
            refused(cli, "ensemble of 2 models", "ensemble", "--to", form)
    refused(cli, "ends in .pt2", "run", "--to", "torch", "--out", "model.pt")
    refused(cli, "ends in .onnx", "run", "--to", "onnx", "--out", "model.pt2")
    refused(cli, "cannot write", "run", "--to", "torch", "--out", "file/model.pt2")
    refused(cli, "cannot write", "run", "--to", "pyg", "--out", "file")
    refused(cli, "--model is", "run", "--to", "pyg", "--model", "net.py:build")
    refused(cli, "--to is 'tensorflow'", "run", "--to", "tensorflow")
    refused(cli, "--to", "run")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    refused(cli, "pip install", "run", "--to", "onnx")
    monkeypatch.setattr(exporting, "find_spec", lambda name: name)
    monkeypatch.setattr(exporting, "_LARGEST_ONNX", 100)
    refused(cli, "use --to torch", "run", "--to", "onnx")


def test_a_damaged_run_is_not_exported(cli: Cli, graphs: None) -> None:
    train(cli, "run")
    tensors = load_file("run/model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, "run/model.safetensors")
    refused(cli, "is damaged", "run", "--to", "pyg")


NET = """
from torch_geometric.nn import GraphSAGE as OfPyG
from gistgnn.nn import GraphSAGE

def ours(widths):
    return GraphSAGE(3, widths, 3, norm="layer")

def theirs(features, widths, classes):
    return OfPyG(features, widths[0], len(widths) + 1, classes)

def talking(features, widths, classes):
    model = theirs(features, widths, classes)
    model.register_forward_pre_hook(lambda module, arguments: print(float(arguments[0].sum())))
    return model
"""


@pytest.mark.long
def test_a_model_that_a_function_builds(cli: Cli, graphs: None) -> None:
    Path("net.py").write_text(NET)
    graph = load_graph("own.npz")
    gist = GIST(lambda widths: GraphSAGE(3, widths, 3, norm="layer"), (8, 8), sub_gcns=2)
    result = gist.fit(graph, epochs=3, progress=False, standardise=True)
    result.save("from-python")
    refused(cli, "of your own: give the function", "from-python", "--to", "pyg")
    ours = ("--model", "net.py:ours")
    assert cli("export", "from-python", "--to", "pyg", *ours).returncode == 0
    save_arrays("from-python", graph)
    (logits,) = outputs_without_gistgnn("pyg", ["from-python"]).values()
    expected = predict(result.model, whole_graph(graph))
    np.testing.assert_allclose(logits, expected, **TOLERANCE)
    torch.testing.assert_close(result.to_pyg()(graph.x, graph.edge_index), expected)

    # A class that is not gistgnn's has no Python to write, but a program.
    theirs = ("--model", "net.py:theirs")
    train(cli, "theirs", *theirs, "--standardise", "--hidden", 8)
    refused(cli, "GraphSAGE of your own", "theirs", "--to", "pyg", *theirs)
    assert cli("export", "theirs", "--to", "torch", *theirs).returncode == 0
    save_arrays("theirs", graph)
    (logits,) = outputs_without_gistgnn("torch", ["theirs"]).values()
    build = find_named("model", "net.py:theirs")
    model = load_run("theirs", build).model
    np.testing.assert_allclose(logits, predict(model, whole_graph(graph)), **TOLERANCE)
    # It reads a number of its input, which a program for any input cannot have.
    refused(cli, "torch cannot export", "theirs", "--to", "torch", "--model", "net.py:talking",
            "--out", "talking.pt2")  # fmt: skip


REGRESSION = """
from gistgnn.nn import GraphSAGE

def build(widths):
    return GraphSAGE(3, widths, 1)
"""


def test_a_regression_is_exported(cli: Cli, graphs: None) -> None:
    Path("net.py").write_text(REGRESSION)
    graph = load_graph("own.npz")
    masks = {"train_mask": graph.train, "val_mask": graph.val, "test_mask": graph.test}
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.x[:, :1] / 50, **masks)
    gist = GIST(lambda widths: GraphSAGE(3, widths, 1), (8,), sub_gcns=2)
    result = gist.fit(data, loss="mse", epochs=3, progress=False)
    result.save("numbers")
    assert cli("export", "numbers", "--to", "pyg", "--model", "net.py:build").returncode == 0
    assert "probabilities" not in Path("numbers_pyg/model.py").read_text()
    save_arrays("numbers", graph)
    (predictions,) = outputs_without_gistgnn("pyg", ["numbers"]).values()
    expected = predict(result.model, whole_graph(graph))
    np.testing.assert_allclose(predictions, expected, **TOLERANCE)


def test_json_says_what_was_written(as_json: Json, cli: Cli, own_graph: Path) -> None:
    as_json(*TRAIN)
    written = as_json("export", "run", "--to", "pyg", "--out", "deep/er")
    assert written["files"] == ["deep/er/model.py", "deep/er/model.safetensors"]
    assert all(Path(file).exists() for file in written["files"])
    record = json.loads(Path("run/result.json").read_text())
    assert written["run"] == record["run"]
    assert written["temperature"] == record.get("temperature", 1.0)
    assert written["gistgnn"] == gistgnn.__version__


def test_names_of_the_user_s_own_are_text_in_the_python(cli: Cli, tmp_path: Path) -> None:
    """A name may hold quotes, line breaks, and bytes that are no UTF-8."""
    name = "a\"\"\"\nraise SystemExit\n'''\\ \udcff\u2028ü.npz"
    np.savez(tmp_path / "plain.npz", **arrays())
    Path(tmp_path / "plain.npz").rename(tmp_path / name)
    train(cli, "run", "--dataset", name)
    assert cli("export", "run", "--to", "pyg").returncode == 0
    names: dict[str, Any] = {"__file__": "run_pyg/model.py"}
    code = Path("run_pyg/model.py").read_text(encoding="utf-8")
    exec(compile(code, "model.py", "exec"), names)
    record = json.loads(Path("run/result.json").read_text())
    assert names["ABOUT"]["graph"] == record["graph"]["name"]
    assert names["load"]()(torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.long)).shape == (2, 3)


def test_the_help_fits_a_screen(cli: Cli) -> None:
    completed = cli("export", "--help")
    assert completed.returncode == 0
    assert len(completed.stdout.splitlines()) <= 30
    assert "export" in cli("--help").stdout
