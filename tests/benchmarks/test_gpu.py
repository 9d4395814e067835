"""`python -m benchmarks.gpu`: all of it runs on the CPU with tiny sizes, and it goes on past what fails."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu_report import as_markdown, judged

ROOT = Path(__file__).parents[2]


def test_everything_runs_on_the_cpu_with_tiny_sizes(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--rehearse", "--minutes", "30"]
    words += ["--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "GPU.json").read_text(encoding="utf-8"))
    assert list(record["stages"]) == [stage.name for stage in gpu.STAGES]
    for stage in record["stages"].values():
        assert (stage["status"], stage["failures"]) == (0, []), stage
    assert record["stages"]["tests"]["tests"] > 0
    (case,) = record["stages"]["steps"]["cases"]
    measured = {name: own for name, own in case["contenders"].items() if "error" not in own}
    assert case["contenders"].keys() - measured.keys() == {f"fused, as a CUDA graph m={m}" for m in (1, 2)}
    assert all({"median", "q1", "q3", "samples"} <= own["step_ms"].keys() for own in measured.values())
    (wide,) = record["stages"]["wide"]["rows"]
    assert wide["planned_bytes"] > 0
    assert [row["sub_gcns"] for row in record["stages"]["shapes"]["rows"]] == [1, 2]
    text = (tmp_path / "GPU.md").read_text(encoding="utf-8")
    assert done.stdout.strip() == text.strip()
    for heading in (
        "## Tests",
        "## The widest models",
        "## The shapes of Tables 2 and 3",
        "### graphsage 16×16 float32",
    ):
        assert heading in text


def options(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(device="cpu", minutes=1.0, rehearse=False, **changes)


def stage(code: str, share: float = 1.0) -> gpu.Stage:
    return gpu.Stage("one", "one stage", share, ("-c", code, "{json}"))


def test_a_stage_is_ended_when_its_time_is_over_and_keeps_what_it_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE", 0)
    code = """import sys, time; open(sys.argv[1], "w").write('{"rows": [1]}'); time.sleep(100)"""
    found = gpu.run(stage(code, share=2 / 60), options())
    assert found["rows"] == [1]
    assert found["status"] == "cut"
    assert found["failures"] == ["it was ended after 2 s"]


def test_results_that_are_cut_short_do_not_end_the_command() -> None:
    found = gpu.run(stage("""import sys; open(sys.argv[1], "w").write('{"rows": [')"""), options())
    assert found["failures"] == ["its results are cut short"]


def test_tests_that_were_cut_are_read_from_what_they_printed() -> None:
    lines = "a.py::one PASSED [ 3%]\na.py::two[x y] FAILED [ 6%]\nb.py::three "
    found = gpu.read_lines(lines)
    assert (found["tests"], len(found["failures"])) == (2, 1)


def test_a_stage_that_fails_is_listed_with_its_last_lines() -> None:
    found = gpu.run(stage("print('before'); raise SystemExit(3)"), options())
    assert found["status"] == 3
    assert found["failures"] == ["it has written nothing"]
    assert found["output"] == ["before"]
    record = {"command": "c", "seconds": 1.0, "stages": {"one": found}, "machine": gpu.facts("cpu")}
    assert "- **failed**, one stage: it has written nothing" in as_markdown(record)


def test_failed_tests_are_named(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.write_text(
        '<testsuites><testsuite><testcase classname="a" name="one"><properties><property name="bit_for_bit" '
        'value="False"/></properties></testcase><testcase classname="a" name="two"><failure message="x is 1&#10;more"/>'
        "</testcase></testsuite></testsuites>"
    )
    assert gpu.read(results, tests=True) == {
        "tests": 2,
        "failures": ["a.two: x is 1"],
        "not_bit_for_bit": ["a.one"],
        "compared_bit_for_bit": 1,
    }


def test_targets_follow_from_medians() -> None:
    def own(median: float, **more: Any) -> dict[str, Any]:
        return {"step_ms": {"median": median}, "over_floor": 1.4, "shares": {"batches": 0.05}, **more}

    contenders = {"m=1": own(30.0), "in turn m=8": own(2.0), "fused m=8": own(1.0)}
    case = {"model": "graphsage", "precision": "float32", "hidden": [4096, 4096], "contenders": contenders}
    row = {"width": 32768, "layers": 4, "peak_bytes": 39 * 10**9, "planned_bytes": 30 * 10**9}
    found = {each["target"]: (round(each["value"], 3), each["met"]) for each in judged(
        {"steps": {"cases": [case, {**case, "precision": "tf32"}]}, "wide": {"rows": [row]}}
    )}  # fmt: skip
    assert found == {
        "d = 4096: m=1 over its floor": (1.4, False),
        "d = 4096: a step fused m=8 over m=1": (30.0, True),
        "d = 4096: fused m=8 over in turn": (2.0, True),
        "d = 4096: the GPU waits for batches, m=1": (0.05, True),
        "d = 4096: the GPU waits for batches, in turn m=8": (0.05, True),
        "d = 4096: the GPU waits for batches, fused m=8": (0.05, True),
        "32,768 x 4: peak device memory, GB": (39.0, True),
        "32,768 x 4: the plan is off by": (0.231, False),
    }


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path)])
    monkeypatch.setattr(gpu, "facts", lambda device: {"gpu": None})
    with pytest.raises(SystemExit, match="torch finds no GPU here"):
        gpu.main()
    assert not list(tmp_path.iterdir())
