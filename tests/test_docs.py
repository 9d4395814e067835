"""What the README and docs say is run, and their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gistgnn.evaluation.scores import predict
from gistgnn.io.models import write_model
from gistgnn.sampling import whole_graph
from tests.helpers.commands import run_program
from tests.helpers.models import OURS, tiny_graph

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
README_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", README_BLOCKS, ids=[f"block{i}" for i in range(len(README_BLOCKS))])
def test_the_readme_s_python_runs(block: str, tmp_path: Path) -> None:
    done = run_program(tmp_path, block)
    assert done.returncode == 0, done.stderr


def blocks(page: str, containing: str) -> list[str]:
    """The Python of a page that holds some text."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    return [block for block in found if containing in block]


@pytest.mark.parametrize("limit", [50, 10**6])
def test_a_run_s_model_loads_as_the_docs_say(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved, model = nn.Linear(4, 3), nn.Linear(4, 3)
    write_model(tmp_path / "runs/mine", saved.state_dict(), limit)
    (block,) = blocks("training.md", "weight_map")
    exec(block, {"model": model})
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), saved.parameters(), strict=True))


def test_a_model_wider_than_the_memory_is_run_as_the_docs_say(tmp_path: Path) -> None:
    graph, widths = tiny_graph(60), (8, 8)
    build = OURS["graphsage"]
    model = build(widths).eval()
    write_model(tmp_path, model.state_dict(), 500)
    (block,) = blocks("large-graphs.md", "stored_model")
    block, count = re.subn("parts=5000, sample=500", "parts=6, sample=5", block)
    assert count == 1
    names = {"build": build, "widths": widths, "graph": graph, "folder": tmp_path}
    exec(block, names)
    torch.testing.assert_close(predict(names["model"], whole_graph(graph)), predict(model, whole_graph(graph)))


def test_training_is_predicted_as_the_docs_say(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("theory.md", "predicted_error")
    names: dict[str, Any] = {}
    exec(block, names)
    assert capsys.readouterr().out.startswith("[]\n")  # no assumption fails
    ratios = names["errors"][1:] / names["predicted_error"](names["problem"], 4096, 2, 2, names["eta"], rounds=20)[1:]
    assert float(ratios.log().abs().max()) < 0.5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def test_every_option_of_the_docs_exists() -> None:
    help_text = subprocess.run(
        [Path(sys.executable).with_name("gistgnn"), "train", "--help"], capture_output=True, text=True, check=True
    ).stdout
    said = re.findall(r"`(--[a-z-]+)", (ROOT / "docs/training.md").read_text())
    assert said
    assert [option for option in said if option not in help_text] == []
