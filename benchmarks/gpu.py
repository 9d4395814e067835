"""Everything that needs a GPU, in about 8 minutes: tests and benchmarks. It writes GPU.md and GPU.json.

    python -m benchmarks.gpu                                          # on a machine with an NVIDIA GPU
    python -m benchmarks.gpu --device cpu --rehearse --out /tmp/gpu   # tiny sizes on the CPU, to try the code

Each stage is a process with its own share of the time, and is ended when that is over. What fails is listed, and the
other stages go on. Nothing is downloaded.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu_machine import facts, nvidia_smi
from benchmarks.gpu_report import as_markdown
from gistgnn.storage.whole_files import replacing

ROOT = Path(__file__).parents[1]
GRACE = 20  # seconds that a stage may go on after its share, to end what it has begun
LAST_LINES = 15  # of a failed stage's output that are kept


@dataclass(frozen=True)
class Stage:
    """A part of the command.

    Args:
        name: of the stage.
        title: what it shows.
        share: of the time.
        words: what Python runs; {json} is its file of results, {seconds} its time.
    """

    name: str
    title: str
    share: float
    words: tuple[str, ...]

    @property
    def tests(self) -> bool:
        """Whether it runs tests; its results are then JUnit's XML."""
        return "pytest" in self.words


_PYTEST = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "--junitxml", "{json}")
_TESTS, _RANKS = ("tests/cuda", "tests/sampling/test_clusters.py"), "tests/cuda/test_ranks.py"
_MEASURE = ("--device", "{device}", "--seconds", "{seconds}", "--json", "{json}")
STAGES = (
    Stage("tests", "tests on the GPU", 0.27, (*_PYTEST, "-m", "cuda", *_TESTS, "--ignore", _RANKS)),
    Stage("ranks", "two ranks on one GPU", 0.08, (*_PYTEST, "-m", "cuda", _RANKS)),
    Stage("steps", "steps", 0.31, ("-m", "benchmarks.gpu_steps", *_MEASURE)),
    Stage("wide", "the widest models", 0.21, ("-m", "benchmarks.gpu_wide", *_MEASURE)),
    Stage("shapes", "the shapes of Tables 2 and 3", 0.13, ("-m", "benchmarks.gpu_shapes", *_MEASURE)),
)
_REHEARSED_TESTS = {
    "tests": ("-k", "test_every_runner and pretended and gcn and auto", "tests/cuda/test_same_as_cpu.py"),
    "ranks": ("-k", "test_nccl_is_for", _RANKS),
}


def main() -> None:
    """Run the stages, and write what they have found after each."""
    options = parse()
    record: dict[str, Any] = {"command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]), "stages": {}}
    record["machine"] = facts(options.device)
    if record["machine"]["gpu"] is None and not options.rehearse:
        raise SystemExit("torch finds no GPU here: run this where there is one, or try the code by --rehearse")
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for stage in STAGES:
        if options.only is None or stage.name in options.only:
            print(f"{stage.title} ...", file=sys.stderr, flush=True)
            record["stages"][stage.name] = run(stage, options)
            record["seconds"] = time.monotonic() - begun
            write(record, options.out)
    print((options.out / "GPU.md").read_text(encoding="utf-8"))


def run(stage: Stage, options: argparse.Namespace) -> dict[str, Any]:
    """Run a stage in a process of its own, and return what it has found, and what has failed."""
    seconds = 60 * options.minutes * stage.share
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        values = {"{json}": str(results), "{seconds}": f"{seconds:.0f}", "{device}": options.device}
        words = [values.get(word, word) for word in stage.words]
        if options.rehearse:
            words = rehearsal(stage, words)
        begun = time.monotonic()
        status, output = ended([sys.executable, *words], seconds + GRACE)
        try:
            found = read(results, tests=stage.tests)
        except (ValueError, ElementTree.ParseError):  # it was ended while it wrote
            found = {"failures": ["its results are cut short"]}
        if stage.tests and not results.exists():
            found = read_lines(output)
    found |= {
        "title": stage.title,
        "nvidia_smi": nvidia_smi(),
        "seconds": time.monotonic() - begun,
        "share_seconds": seconds,
        "status": status,
    }
    if status == "cut":
        found["failures"] = [*found.get("failures", []), f"it was ended after {seconds + GRACE:.0f} s"]
    elif status and not found.get("failures"):
        found["failures"] = [f"it ended with status {status}"]
    if found.get("failures"):
        found["output"] = output.splitlines()[-LAST_LINES:]
    return found


def rehearsal(stage: Stage, words: list[str]) -> list[str]:
    """Return the words of a stage that tries its code in seconds."""
    if not stage.tests:
        return [*words, "--rehearse"]
    return [*words[: words.index("cuda") - 1], *_REHEARSED_TESTS[stage.name]]


def ended(words: list[str], seconds: float) -> tuple[int | str, str]:
    """Run a program to its end or for some seconds; return its exit status or "cut", and its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        status: int | str
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = "cut"
        finally:
            end(process)
        log.seek(0)
        return status, log.read()


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and those that it has started, if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def read(results: Path, *, tests: bool) -> dict[str, Any]:
    """Return what a stage has written, as far as it has come."""
    if not results.exists():
        return {"failures": ["it has written nothing"]}
    if not tests:
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        return found
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    named = {f"{case.get('classname')}.{case.get('name')}": case for case in cases}
    bits = {
        name: value.get("value") == "True"
        for name, case in named.items()
        for value in case.iter("property")
        if value.get("name") == "bit_for_bit"
    }
    return {
        "tests": len(cases),
        "failures": [f"{case.get('classname')}.{case.get('name')}: {why(case)}" for case in failed],
        "not_bit_for_bit": [name for name, same in bits.items() if not same],
        "compared_bit_for_bit": len(bits),
    }


def read_lines(output: str) -> dict[str, Any]:
    """Return how many tests have run, and which have failed, from the output of pytest that was cut."""
    found = re.findall(r"^(\S+::.*) (PASSED|FAILED|ERROR)", output, flags=re.MULTILINE)
    return {"tests": len(found), "failures": [name for name, outcome in found if outcome != "PASSED"]}


def why(case: ElementTree.Element) -> str:
    """Return the first line of a failed test's message."""
    found = next(each for kind in ("failure", "error") if (each := case.find(kind)) is not None)
    return (found.get("message") or "").splitlines()[0][:200] if found.get("message") else ""


def write(record: dict[str, Any], out: Path) -> None:
    """Write the record as JSON and as Markdown."""
    for name, text in (("GPU.json", json.dumps(record, indent=1)), ("GPU.md", as_markdown(record))):
        with replacing(out / name) as file:
            file.write_text(text + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0, help="of all stages (default: 8)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks", help="where the files go (default: here)")
    parser.add_argument("--only", nargs="+", choices=[stage.name for stage in STAGES])
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes and few tests, to try the code")
    options = parser.parse_args()
    if options.rehearse and options.out == ROOT / "benchmarks":
        parser.error("--rehearse measures nothing: give --out another folder")
    return options


if __name__ == "__main__":
    main()
