"""The examples and the notebook run, at small settings, and do what they say."""

import base64
import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import Completed, run_program, run_program_on_ranks

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS = ("--rounds", 3)


def code(name: str) -> str:
    return (EXAMPLES / name).read_text()


def run(folder: Path, name: str, *args: object) -> Completed:
    completed = run_program(folder, code(name), *args)
    assert completed.returncode == 0, completed.stderr
    assert "Warning" not in completed.stderr
    return completed


def numbers(completed: Completed) -> list[float]:
    """The numbers that stand before a % sign, or behind AUC."""
    pairs = re.findall(r"([\d.]+)\s?%|AUC ([\d.]+)", completed.stdout)
    return [float(percentage or auc) for percentage, auc in pairs]


def test_a_graph_of_csv_files_is_learned_and_predicted(tmp_path: Path) -> None:
    (accuracy,) = numbers(run(tmp_path, "own_graph.py", "--epochs", 20))
    assert accuracy > 80
    with open(tmp_path / "csv/predicted.csv", newline="") as file:
        predicted = {row["person"]: row["group"] for row in csv.DictReader(file)}
    assert len(predicted) == 300
    right = [i for i in range(270, 300) if predicted[f"p{i}"] == "abc"[i % 3]]
    assert len(right) > 20
    # The second run reads the files that the first has written.
    assert numbers(run(tmp_path, "own_graph.py", "--epochs", 20)) == [accuracy]


def test_loops_of_one_s_own_learn_and_a_watched_one_goes_on(tmp_path: Path) -> None:
    plain, watched = numbers(run(tmp_path, "own_loop.py", *ROUNDS))
    assert min(plain, watched) > 85
    again = run(tmp_path, "own_loop.py", *ROUNDS)
    assert numbers(again) == [plain, watched], "the second loop was over"


def test_a_run_is_logged_to_weights_and_biases(tmp_path: Path) -> None:
    completed = run(tmp_path, "log_to_wandb.py", "--epochs", 40)
    assert completed.stdout.startswith("10 steps, ")
    assert min(numbers(completed)) > 70
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 1


def test_two_ranks_have_the_result_of_one_process(tmp_path: Path) -> None:
    alone = run(tmp_path, "on_two_ranks.py", "--epochs", 20)
    first, second = run_program_on_ranks(tmp_path, 2, code("on_two_ranks.py"), "--epochs", 20)
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stdout == alone.stdout
    assert second.stdout == ""
    assert numbers(first)[0] > 80


@pytest.mark.parametrize(
    ("name", "args", "holds"),
    [
        ("own_model.py", ("--epochs", 40), lambda *accuracy: accuracy[-1] > 80),
        (
            "large_graph.py",
            ("--dataset", "synthetic:reddit@0.005", "--clusters", 20, "--epochs", 40),
            # By chance one in 41 classes is right.
            lambda accuracy, *_: accuracy > 30,
        ),
        ("weighted_edges.py", ("--epochs", 40), lambda weighted, without: weighted > without + 2),
        (
            "typed_graph.py",
            ("--files", 25, "--epochs", 40),
            lambda learned, constant: learned > constant + 20,
        ),
        ("link_prediction.py", ROUNDS, lambda *auc: min(auc) > 0.8),
        # By chance one in 10 classes is right.
        (
            "graph_classification.py",
            ("--rounds", 8, "--graphs", 500),
            lambda *accuracies: min(accuracies) > 25,
        ),
    ],
)
def test_an_example_learns(
    tmp_path: Path, name: str, args: tuple[object, ...], holds: Callable[..., bool]
) -> None:
    assert holds(*numbers(run(tmp_path, name, *args)))


def test_a_lightning_module_learns_and_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    completed = run_program(tmp_path, code("lightning_module.py"), "--rounds", 4)
    assert completed.returncode == 0, completed.stderr
    assert float(re.findall(r"test\W+([\d.]+)", completed.stdout)[0]) > 0.85
    assert list((tmp_path / "lightning").glob("**/*.ckpt"))


def test_a_pyg_script_learns_with_and_without_gist(tmp_path: Path, shared_data: Path) -> None:
    shutil.copytree(shared_data / "Planetoid/Cora/raw", tmp_path / "Cora/raw")
    (tmp_path / "Cora/raw").chmod(0o755)
    for name in ("pyg_script.py", "pyg_script_with_gist.py"):
        assert numbers(run(tmp_path, name, "--data-root", tmp_path, "--steps", 10))[0] > 50


def test_the_readme_lists_every_example() -> None:
    listed = re.findall(r"\]\(([\w]+\.(?:py|ipynb))\)", code("README.md"))
    assert sorted(set(listed)) == sorted(
        path.name for path in EXAMPLES.iterdir() if path.name != "README.md"
    )


NOTEBOOK = Path(__file__).parents[2] / "examples/gist.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
PROGRAM = "\n".join("".join(cell["source"]) for cell in CELLS)


def test_the_notebook_s_cells_run_in_order(tmp_path: Path) -> None:
    assert PROGRAM.count("epochs = 400") == 1
    program = "import matplotlib; matplotlib.use('Agg')\n" + PROGRAM.replace(
        "epochs = 400", "epochs = 8"
    )
    completed = run_program(tmp_path, program)
    assert completed.returncode == 0, completed.stderr


def test_every_cell_of_the_notebook_was_run_in_order_and_its_pictures_are_kept() -> None:
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pictures = [
        output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == sum(
        "".join(cell["source"]).endswith((".show()", ".plot()")) for cell in CELLS
    )
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert NOTEBOOK.stat().st_size < 300_000
