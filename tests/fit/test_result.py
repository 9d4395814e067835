"""What a result shows, saves and reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from sklearn.metrics import f1_score
from torch import nn
from torch_geometric.nn import GraphSAGE

from gistgnn import GIST, Result, load_run
from gistgnn.evaluation import evaluate
from tests.cli.in_process import refused as refused_by_command
from tests.helpers.fitting import GRAPH, fit
from tests.helpers.flips import flipped
from tests.helpers.models import C, F
from tests.helpers.refusals import refused


def build(width: int) -> nn.Module:
    return GraphSAGE(F, width, 2, C)


def trained(**options: Any) -> Result:
    return fit(GIST(build, 8, 2), **options)


def test_a_result_shows_itself_and_its_classes() -> None:
    result = trained()
    assert re.fullmatch("Result\\(test accuracy .{,100}", repr(result))
    for text in (result.summary(), result._repr_html_()):
        for part in ("tiny", "GraphSAGE", "m = 2", "macro F1", "peak memory", "3 rounds"):
            assert part in text
    assert len(result.plot().axes) == 2
    evil = trained(metric=type("E", (), {"__call__": lambda *_: 0.5, "name": "<b>"})())
    assert "<b>" not in evil._repr_html_()
    unscored = replace(result, test={}, validation={})
    assert "no score" in repr(unscored)
    test = GRAPH.test
    classes = result.progress.scores.classes
    with torch.no_grad():
        guess = result.model.eval()(GRAPH.x, GRAPH.edge_index)[test].argmax(1)
    f1 = f1_score(GRAPH.y[test], guess, average=None, labels=range(C), zero_division=0)
    assert [scores["f1"] for scores in classes] == pytest.approx(f1.tolist())
    assert [scores["nodes"] for scores in classes] == GRAPH.y[test].bincount(minlength=C).tolist()


def test_a_saved_result_is_read_again(tmp_path: Path) -> None:
    result = trained(max_seconds=1000)
    folder = result.save(tmp_path / "run")
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "report.html",
        "result.json",
    }
    read = load_run(folder, build)
    assert repr(read) == repr(result)
    written = json.loads((folder / "result.json").read_text())
    assert {**read.as_dict(), "checksum": written["checksum"]} == written
    assert written["files"].keys() == {"model.safetensors"}
    from_file = {"files": written["files"], "provenance": written["provenance"]}
    assert read.as_dict() == {**json.loads(json.dumps(result.as_dict())), **from_file}
    assert evaluate(read.model, GRAPH)["test"] == result.test
    with (
        flipped(folder / "model.safetensors", 99),
        refused("model.safetensors ", "train the run again"),
    ):
        load_run(folder, build)
    with refused("already holds a result"):
        result.save(folder)
    result.save(folder, overwrite=True)
    with refused("GraphSAGE of your own", "--model package.module:function"):
        load_run(folder)
    with refused("model.safetensors", error=Exception):  # type: ignore[arg-type]
        load_run(folder, lambda width: GraphSAGE(F, width + 1, 2, C))
    with refused("build(", "failed", "give the function that was given to GIST"):
        load_run(folder, lambda features, hidden, classes: GraphSAGE(features, hidden, 2, classes))


def test_the_command_line_needs_the_graph_of_one_s_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained().save(tmp_path / "own")
    for model, message in (
        ("tests.fit.test_result:build", "'tiny': add --dataset"),
        ("mine", "package.module:function"),
    ):
        refused_by_command(capsys, message, "evaluate", folder, "--model", model)
