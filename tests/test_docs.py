"""The README and the docs: their Python runs, their commands exist, their links lead somewhere, the
site builds.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gistgnn.cli.main import make_parser
from gistgnn.cli.options import Parser
from gistgnn.storage.record import Record
from tests.helpers.commands import run_program

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "examples", "tests", ".github")
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.rglob("*.md"),
    *(page for name in FOLDERS for page in ROOT.glob(f"{name}/*.md")),
]
LONGEST = {"README.md": 120, "CHANGELOG.md": 60}  # lines of a page
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nnot_in_nav:")[0]
COPIED = {"examples/index.md": ROOT / "examples/README.md"}  # pages of the navigation outside docs/


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code(page: Path, language: str) -> list[str]:
    """The page's code blocks in a language, without the indentation that they have in a list."""
    blocks = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    return [
        "\n".join(line.removeprefix(indent) for line in text.splitlines())
        for indent, text in blocks
    ]


README_BLOCKS = code(ROOT / "README.md", "python")
LESSONS = [
    DOCS / "index.md",
    *(page for folder in ("tutorial", "how-to") for page in sorted((DOCS / folder).glob("*.md"))),
]


SLOW = ("index.md", "coming-from.md")  # pages whose Python trains for seconds


@pytest.mark.parametrize(
    "block", README_BLOCKS, ids=[f"block{i}" for i in range(len(README_BLOCKS))]
)
def test_the_readme_s_python_runs(block: str, tmp_path: Path) -> None:
    done = run_program(tmp_path, block)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long) if page.name in SLOW else page
        for page in LESSONS
        if code(page, "python")
    ],
    ids=name_of,
)
def test_a_page_s_python_runs_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in code(page, "python"):
        exec(compile(block, name_of(page), "exec"), names)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "examples/README.md", *LESSONS], ids=name_of
)
def test_the_new_lines_of_a_diff_are_lines_of_a_program_that_runs(page: Path) -> None:
    program = (
        "\n".join(code(page, "python")) + (ROOT / "examples/pyg_script_with_gist.py").read_text()
    )
    new = [
        line[1:]
        for block in code(page, "diff")
        for line in block.splitlines()
        if line.startswith("+")
    ]
    assert [line for line in new if line not in program.splitlines()] == []


def test_training_is_predicted_as_the_docs_say() -> None:
    (block,) = (
        block for block in code(DOCS / "paper/theory.md", "python") if "predicted_error" in block
    )
    names: dict[str, Any] = {}
    exec(block, names)
    ratios = (
        names["errors"][1:]
        / names["predicted_error"](names["problem"], names["numbers"], rounds=20)[1:]
    )
    assert float(ratios.log().abs().max()) < 0.5


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `$ gistgnn` command of a page, also of those that torchrun starts."""
    for block in [*code(page, "console"), *code(page, "bash")]:
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            starts = [
                i
                for i, word in enumerate(words)
                if word == "gistgnn" and (i == 0 or words[i - 1] == "-m")
            ]
            if starts:
                yield words[starts[0] + 1 :]


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=name_of)
def test_every_command_of_the_docs_is_accepted(page: Path) -> None:
    for words in commands(page):
        placeholders = {"NAME": "table1"} if words[0] == "reproduce" else {}
        given = [placeholders.get(word, word) for word in words]
        if "--help" not in given:
            make_parser().parse_args(given)  # exits where a command or an option is not known


def test_every_option_that_the_docs_name_exists() -> None:
    def options(parser: Parser) -> set[str]:
        own = {name for option in parser.options for name in option.option_strings}
        below = parser.commands.choices.values() if parser.commands else ()
        return own.union(*map(options, below))

    torchrun = {"--max-restarts", "--nnodes", "--nproc-per-node", "--rdzv-endpoint", "--version"}
    known = options(make_parser()) | torchrun
    named = {
        (name_of(page), option)
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for option in re.findall(r"`(--[a-z][a-z-]*)", page.read_text())
    }
    assert named
    assert sorted(pair for pair in named if pair[1] not in known) == []


def test_every_entry_of_a_record_is_explained() -> None:
    page = (DOCS / "reference/run-folder.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page.partition("## result.json")[2], re.MULTILINE)
    explained = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert sorted(explained) == sorted(("version", *Record.__struct_fields__))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [
        target for target in targets if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def test_pages_that_the_code_names_exist() -> None:
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    named = {
        path for source in sources for path in re.findall(r"docs/[\w/-]+\.md", source.read_text())
    }
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


# What is written by others, or is one long table, wraps elsewhere.
WRAPPED = [
    page for page in PAGES if name_of(page) not in ("benchmarks/RESULTS.md", "benchmarks/README.md")
]


@pytest.mark.parametrize("page", WRAPPED, ids=name_of)
def test_lines_wrap(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|")] == []
    assert len(lines) <= LONGEST.get(page.name if page.parent == ROOT else "", len(lines))


def test_the_list_of_terms_is_short() -> None:
    page = (DOCS / "explanation/method.md").read_text()
    terms = re.findall(r"^\| \*\*", page, flags=re.MULTILINE)
    assert 0 < len(terms) <= 25


def test_every_page_is_in_the_navigation_or_linked_from_a_page_that_leads_to_it() -> None:
    linked = {
        DOCS / "paper": (DOCS / "paper/README.md").read_text(),
        DOCS: NAVIGATION + (ROOT / "CONTRIBUTING.md").read_text(),
    }
    lost = [
        name
        for page in DOCS.rglob("*.md")
        for folder in (DOCS / "paper" if page.is_relative_to(DOCS / "paper") else DOCS,)
        if (name := str(page.relative_to(folder))) not in linked[folder]
    ]
    assert lost == ["README.md"]  # of the paper, which the navigation has
    assert "paper/README.md" in NAVIGATION


def test_the_documentation_can_be_read_once() -> None:
    names = re.findall(r": ([\w/.-]+\.md)$", NAVIGATION, flags=re.MULTILINE)
    pages = [COPIED.get(name, DOCS / name) for name in names]
    assert 0 < len(pages) <= 25
    assert sum(len(page.read_text().split()) for page in pages) <= 20_000
    assert len((DOCS / "design.md").read_text().split()) <= 1_500


def test_the_site_builds_and_lists_every_command(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    mkdocs = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(mkdocs, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference/cli/index.html").read_text()
    assert all(
        f"gistgnn {name}" in page for name in ("train", "plan", "reproduce table1", "theory check")
    )
    assert "--local-steps" in page


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "tests/README.md").read_text()
    named = re.findall(r"`(\w+/\w+\.py)::(\w+)`", page)
    assert len(named) >= page.count("\n| ") - 2 * page.count("| promise | test |")
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {test}"
