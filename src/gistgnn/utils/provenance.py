"""Where a result comes from: version, date, command, hardware, libraries, commit."""

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gistgnn.utils.machine import describe_machine

LIBRARIES = ("torch", "torch_geometric", "numpy", "scipy", "scikit-learn", "pymetis", "safetensors")
_GIT_SECONDS = 5  # a folder on a slow disk should not delay a result


def provenance(device: str) -> dict[str, Any]:
    """Describe this process and the device where the sub-GCNs train, as result.json holds it.

    Returns:
        "version" of gistgnn, "date" in UTC, "command" as it was typed, "machine", "libraries" with their versions, and
        "git": the working directory's commit and whether files differ from it, or None outside a repository.
    """
    return {
        "version": _version("gistgnn"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "machine": describe_machine(device),
        "libraries": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
        "git": git_commit(Path.cwd()),
    }


def command() -> str:
    """Return the command line of this process, to be typed again."""
    program = Path(sys.argv[0]).name
    if program in ("gistgnn", "gistgnn.exe"):
        return shlex.join(["gistgnn", *sys.argv[1:]])
    if program == "__main__.py":  # python -m gistgnn
        return shlex.join(["python", "-m", Path(sys.argv[0]).parent.name, *sys.argv[1:]])
    return shlex.join(["python", *sys.argv]) if program else "python"


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Return the commit of a folder's repository and whether tracked files differ from it; None: there is none."""
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else {"commit": commit, "changed": bool(changes)}


def _git(folder: Path, *words: str) -> str | None:
    """Return what git prints; None where it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
