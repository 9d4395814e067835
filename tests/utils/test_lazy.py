"""Names that packages import when they are first used."""

import ast
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gistgnn

ROOT = Path(gistgnn.__file__).parent
LAZY = [
    path
    for path in ROOT.rglob("__init__.py")
    if "lazy_attributes(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_every_name_that_type_checkers_see_is_there(path: Path) -> None:
    package = importlib.import_module(".".join(["gistgnn", *path.parent.relative_to(ROOT).parts]))
    (block,) = (
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If)
    )
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        if not str(node.module).startswith("gistgnn"):
            continue  # a type of another package, which the module's own functions name
        module = importlib.import_module(str(node.module))
        for alias in node.names:
            assert getattr(package, alias.name) is getattr(module, alias.name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


FROM_ZIP = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import gistgnn
for name in gistgnn.__all__:
    getattr(gistgnn, name)
print(gistgnn.GIST.__module__, gistgnn.__file__)
from gistgnn.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
def test_the_package_in_a_zip_trains(tmp_path: Path) -> None:
    """It brings a data set, the program that runs METIS, and the templates of reports."""
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in ROOT.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(ROOT.parent))
    train = ["train", "--hidden", "8", "--epochs", "4", "--device", "cpu", "--out", "run"]
    train += ["--sampler", "clusters", "--clusters", "4"]
    words = [sys.executable, "-I", "-c", FROM_ZIP, str(packed), *train]
    environ = {**os.environ, "GISTGNN_CACHE": str(tmp_path / "cache")}  # no clusters of before
    completed = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(f"gistgnn.gist {packed}/gistgnn/")
    assert (tmp_path / "run/report.html").is_file()


def test_a_package_in_a_zip_without_sources_can_be_imported(tmp_path: Path) -> None:
    """As zipapp and PyInstaller pack it."""
    folder = tmp_path / "gistgnn"
    code = (
        "import compileall, sys; compileall.compile_dir(sys.argv[1], legacy=True, quiet=2, "
        "stripdir=sys.argv[1])"
    )
    with zipfile.ZipFile(tmp_path / "sources.zip", "w") as sources:
        for path in ROOT.rglob("*.py"):
            sources.write(path, path.relative_to(ROOT.parent))
    with zipfile.ZipFile(tmp_path / "sources.zip") as sources:
        sources.extractall(tmp_path)
    subprocess.run([sys.executable, "-c", code, folder], check=True)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        for path in folder.rglob("*.pyc"):
            packed.write(path, path.relative_to(tmp_path))
    used = (
        "import gistgnn.utils as u; from gistgnn.sampling import SAMPLERS; from gistgnn import "
        "GistError"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'packed.zip')!r}); {used}; "
        "print(u.__file__, len(SAMPLERS))"
    )
    completed = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert "packed.zip" in completed.stdout
