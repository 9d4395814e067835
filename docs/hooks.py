"""Hooks of the documentation site: pages made from other files, and a check that pages load nothing
from elsewhere.
"""

import argparse
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from gistgnn.cli.options import Parser

ROOT = Path(__file__).resolve().parents[1]
# Files outside docs/ that are pages of the site, so that links to them work both on GitHub and
# here.
COPIES = {
    "benchmarks/RESULTS.md": "results.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples/index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "tests/README.md": "tests.md",
}
COMMANDS = "<!-- commands -->"
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_LOADS = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href|srcset)=[\"']?(?:https?:)?//"
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that come from files outside docs/, and the examples themselves."""
    for source, page in COPIES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(
            File.generated(config, page, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
        )
    for example in sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")]):
        content = example.read_text(encoding="utf-8")
        files.append(File.generated(config, f"examples/{example.name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at pages of the site, and put the commands where the command line's page asks for
    them.
    """
    uri = page.file.src_uri
    source = next((path for path, copy in COPIES.items() if copy == uri), f"docs/{uri}")
    markdown = _LINK.sub(lambda link: link[1] + relinked(link[2], source, uri) + link[3], markdown)
    return markdown.replace(COMMANDS, describe_commands()) if COMMANDS in markdown else markdown


def relinked(target: str, source: str, uri: str) -> str:
    """Return a link's target as seen from the page.

    Args:
        target: as the file has it, relative to the file.
        source: the file, relative to the repository's root.
        uri: the page, relative to docs/.
    """
    path, mark, anchor = target.partition("#")
    if not path or "://" in path:
        return target
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if file in COPIES:
        page = COPIES[file]
    elif file.startswith("docs/"):
        page = file.removeprefix("docs/")
    else:
        return target
    return posixpath.relpath(page, posixpath.dirname(uri) or ".") + mark + anchor


def on_post_build(config: Any) -> None:
    """Refuse a site with a page that would load something from another host."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if found := _LOADS.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page} loads something from elsewhere: {found[0]}")


def describe_commands() -> str:
    """Return every command and option of the command line, as Markdown."""
    from gistgnn.cli.main import make_parser

    return "\n\n".join(_describe(parser) for parser in _leaves(make_parser()))


def _leaves(parser: "Parser") -> "list[Parser]":
    """The parsers of commands that have no commands below them."""
    if parser.commands is None:
        return [parser]
    return [leaf for child in parser.commands.choices.values() for leaf in _leaves(child)]


def _describe(parser: "Parser") -> str:
    lines = [f"## `{parser.prog}`"]
    for group in parser.groups:
        actions = [action for action in group.options if action.dest != "help"]
        # arguments without a name first
        actions.sort(key=lambda action: bool(action.option_strings))
        if actions:
            lines.append(f"**{group.title}**")
            rows = [f"| {_name(action)} | {_help(action, parser)} |" for action in actions]
            lines.append("\n".join(["| option | meaning |", "| --- | --- |", *rows]))
    if parser.details:
        lines.append(f"```text\n{parser.details}\n```")
    return "\n\n".join(lines)


def _name(action: argparse.Action) -> str:
    """How an option is written, with what it takes."""
    value = action.metavar
    if value is None and action.nargs != 0:
        value = "" if action.choices else action.dest.upper()
    words = [
        " ".join(filter(None, (name, str(value or "")))) for name in action.option_strings
    ] or [str(value)]
    return ", ".join(f"`{word}`" for word in words)


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "") % {"prog": parser.prog, "default": action.default}
    if action.choices:
        text = (
            f"{', '.join(f'`{choice}`' for choice in action.choices)}. {text[:1].upper()}{text[1:]}"
        )
    return text.replace("|", r"\|").replace("*", r"\*")
