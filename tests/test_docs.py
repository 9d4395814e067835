"""The README and the docs: Python that runs, commands that exist, links, and a site that builds."""

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
LONGEST = {"README.md": 120, "CHANGELOG.md": 60}
"""The lines that a page has at most."""
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nnot_in_nav:")[0]
COPIED = {"examples/index.md": ROOT / "examples/README.md"}
"""Pages of the navigation that are outside docs/."""


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


SLOW = ("index.md", "coming-from.md")
"""Pages whose Python trains for seconds."""


@pytest.mark.parametrize(
    "block", README_BLOCKS, ids=[f"block{i}" for i in range(len(README_BLOCKS))]
)
def test_the_readme_s_python_runs(block: str, tmp_path: Path) -> None:
    completed = run_program(tmp_path, block)
    assert completed.returncode == 0, completed.stderr


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
    script = (ROOT / "examples/pyg_script_with_gist.py").read_text()
    programs = "\n".join([*code(page, "python"), script]).splitlines()
    diffs = "\n".join(code(page, "diff")).splitlines()
    new = [line.removeprefix("+") for line in diffs if line.startswith("+")]
    assert [line for line in new if line not in programs] == []


def test_training_is_predicted_as_the_docs_say() -> None:
    (block,) = (
        block for block in code(DOCS / "paper/theory.md", "python") if "predicted_error" in block
    )
    names: dict[str, Any] = {}
    exec(block, names)
    predicted = names["predicted_error"](names["problem"], names["numbers"], rounds=20)
    ratios = names["errors"][1:] / predicted[1:]
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
        arguments = [placeholders.get(word, word) for word in words]
        if "--help" not in arguments:
            # This exits where a command or an option is not known.
            make_parser().parse_args(arguments)


def test_every_option_that_the_docs_name_exists() -> None:
    def options(parser: Parser) -> set[str]:
        of_parser = {name for option in parser.options for name in option.option_strings}
        below = parser.commands.choices.values() if parser.commands else ()
        return of_parser.union(*map(options, below))

    torchrun = {"--max-restarts", "--nnodes", "--nproc-per-node", "--rdzv-endpoint", "--version"}
    existing = options(make_parser()) | torchrun
    mentioned = {
        (name_of(page), option)
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for option in re.findall(r"`(--[a-z][a-z-]*)", page.read_text())
    }
    assert mentioned
    assert sorted(pair for pair in mentioned if pair[1] not in existing) == []


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
    mentioned = {
        path for source in sources for path in re.findall(r"docs/[\w/-]+\.md", source.read_text())
    }
    assert mentioned
    assert [path for path in sorted(mentioned) if not (ROOT / path).exists()] == []


# What is written by others, or is one long table, wraps elsewhere.
WRAPPED = [
    page for page in PAGES if name_of(page) not in ("benchmarks/RESULTS.md", "benchmarks/README.md")
]


@pytest.mark.parametrize("page", WRAPPED, ids=name_of)
def test_lines_wrap(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("name", LONGEST)
def test_pages_that_are_to_be_short_are_short(name: str) -> None:
    assert 0 < len((ROOT / name).read_text().splitlines()) <= LONGEST[name]


def test_the_list_of_terms_is_short() -> None:
    page = (DOCS / "explanation/method.md").read_text()
    terms = re.findall(r"^\| \*\*", page, flags=re.MULTILINE)
    assert 0 < len(terms) <= 25


def test_every_page_is_in_the_navigation_or_linked_from_a_page_that_leads_to_it() -> None:
    linked = {
        DOCS / "paper": (DOCS / "paper/README.md").read_text(),
        DOCS: NAVIGATION + (ROOT / "CONTRIBUTING.md").read_text(),
    }
    lost = []
    for page in DOCS.rglob("*.md"):
        folder = DOCS / "paper" if page.is_relative_to(DOCS / "paper") else DOCS
        if str(page.relative_to(folder)) not in linked[folder]:
            lost.append(page)
    assert lost == [DOCS / "paper/README.md"]
    assert "paper/README.md" in NAVIGATION


def test_the_documentation_can_be_read_once() -> None:
    names = re.findall(r": ([\w/.-]+\.md)$", NAVIGATION, flags=re.MULTILINE)
    pages = [COPIED.get(name, DOCS / name) for name in names]
    assert 0 < len(pages) <= 25
    assert sum(len(page.read_text().split()) for page in pages) <= 20_000
    assert len((DOCS / "design.md").read_text().split()) <= 1_500


def test_the_site_builds_and_lists_every_command(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    options = ["--strict", "--quiet", "--site-dir", str(tmp_path)]
    mkdocs = [sys.executable, "-m", "mkdocs", "build", *options]
    completed = subprocess.run(mkdocs, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    page = (tmp_path / "reference/cli/index.html").read_text()
    for command in ("train", "plan", "reproduce table1", "theory check"):
        assert f"gistgnn {command}" in page
    assert "--local-steps" in page


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "tests/README.md").read_text()
    tests = re.findall(r"`(\w+/\w+\.py)::(\w+)`", page)
    lines_of_heads = 2 * page.count("| promise | test |")
    assert len(tests) >= page.count("\n| ") - lines_of_heads > 0
    for file, test in tests:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {test}"
