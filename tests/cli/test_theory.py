"""`gistgnn theory check`, as a user calls it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gistgnn.graphs import load
from gistgnn.theory import Problem, check, complete, karate, predict
from gistgnn.theory.assumptions import nearest_nodes, scale_inputs

from .conftest import Json
from .in_process import refused, run

CHECK = ("theory", "check")
TRIANGLE_WITH_TAIL = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5]]  # a triangle with a tail
TRIANGLE_WITH_TAIL += [[b, a] for a, b in TRIANGLE_WITH_TAIL]


def write(path: Path, edges: list[list[int]], **changes: Any) -> Path:
    """Write a graph file with six nodes."""
    arrays = {"x": np.eye(6, dtype="float32"), "y": np.array([0, 1, 0, 1, 0, 1]), **changes}
    splits = {name: np.arange(6) == node for node, name in enumerate(("train", "val", "test"))}
    np.savez(path, edge_index=np.array(edges).T, **arrays, **splits)
    return path


def test_its_json_is_what_the_library_computes(as_json: Json) -> None:
    record = as_json(
        *CHECK, "complete:6", "--sub-gcns", 3, "--local-steps", 2, "--width", 512, "--gamma", 0.25
    )
    p = complete(6)
    assert record["graph"] == {"name": "complete:6", "nodes": 6, "edges": 30, "features": 6}
    assert record["assumptions"] == [asdict(assumption) for assumption in check(p, 3)]
    assert record["hold"]
    assert record["prediction"] == predict(p, 3, 2, 512, gamma=0.25)


def test_the_text_says_what_holds_and_scaling_makes_all_hold(
    as_json: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("theory", "check", "karate", "--sub-gcns", 4) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "karate: 34 nodes, 156 edges, 34 features"
    assert any(line.startswith("‖x_i‖ ≤ (1 − ε) / 2 no") for line in lines)
    assert {"2 of 7 do not hold", "prediction, as if all assumptions held"} <= set(lines)
    assert run("theory", "check", "karate", "--scale") == 0
    out = capsys.readouterr().out
    assert {"all hold", "prediction"} <= set(out.splitlines())
    assert "a tenth of the error in 318 rounds" in out
    assert "plateau for t well below 4,096 rounds (heuristic)" in out
    plain = as_json(*CHECK, "karate")
    scaled = as_json(*CHECK, "karate", "--scale")
    factor = float(scale_inputs(karate()).x.norm(dim=1).max() / karate().x.norm(dim=1).max())
    assert scaled["prediction"]["lambda_0"] == pytest.approx(
        factor**2 * plain["prediction"]["lambda_0"]
    )


def test_a_real_graph_is_checked_as_a_whole_and_in_its_nearest_nodes(
    as_json: Json, capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    where = ("--data-root", shared_data)
    whole_graph = as_json(*CHECK, "cora", *where)
    assert whole_graph["graph"]["nodes"] == 2708
    # Cora has bipartite components, and nodes with the same neighbours and words.
    assert whole_graph["prediction"] is None
    verdicts = {item["name"]: item["holds"] for item in whole_graph["assumptions"]}
    assert not verdicts["λ_min(Ā) ≠ 0"]
    assert not verdicts["no parallel x̂_i"]
    part = as_json(*CHECK, "cora", "--nodes", 60, "--scale", *where)
    assert part["graph"]["nodes"] == 60
    assert part["hold"]
    refused(
        capsys,
        "13,752 nodes, expected at most 5,000",
        "theory",
        "check",
        "amazon-computers",
        *where,
    )
    refused(
        capsys, "nodes is 2600, expected 1 to 2,485", "theory", "check", "cora",
        "--nodes", 2600, *where,
    )  # fmt: skip
    cora = load("cora", shared_data)
    # The nearest nodes are those around the hub, which has more than 40 neighbours.
    nearest = nearest_nodes(cora, 40)
    degrees = Problem.from_graph(nearest).degrees
    assert float(degrees.max()) == 39
    hub = int(cora.edge_index[1].bincount().argmax())
    assert nearest.x[int(degrees.argmax())].equal(cora.x[hub])


def test_files_of_the_user_are_checked_or_refused(
    as_json: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = as_json(*CHECK, write(tmp_path / "mine.npz", TRIANGLE_WITH_TAIL), "--scale")
    assert record["graph"]["edges"] == 12
    assert record["hold"]
    path = write(tmp_path / "path.npz", TRIANGLE_WITH_TAIL[3:6] + TRIANGLE_WITH_TAIL[9:])
    bipartite = as_json(*CHECK, path, "--nodes", 4)
    values = {item["name"]: item["value"] for item in bipartite["assumptions"]}
    assert values["λ_min(Ā) ≠ 0"] == 0.0
    assert bipartite["prediction"] is None
    # A wrong value is refused where nothing is predicted, too.
    refused(capsys, "--gamma is 7, ", "theory", "check", path, "--gamma", 7)
    several = write(tmp_path / "several.npz", TRIANGLE_WITH_TAIL, y=np.eye(6, 3, dtype="float32"))
    for file, message in {
        write(tmp_path / "one_way.npz", TRIANGLE_WITH_TAIL[:-1]): "has no edge back",
        several: "the labels are not one of several classes",
        write(
            tmp_path / "lonely.npz", TRIANGLE_WITH_TAIL[:5] + TRIANGLE_WITH_TAIL[6:11]
        ): "a node without neighbours",
        write(tmp_path / "zero.npz", TRIANGLE_WITH_TAIL, x=np.zeros((6, 2))): "X is zero",
    }.items():
        refused(capsys, message, "theory", "check", file, "--scale")
