"""The machine and the process on which a number was measured, as a result describes them.

Torch is imported late, for the command line.
"""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from gistgnn.errors import InputError, reason
from gistgnn.utils.checks import check_kind, shown
from gistgnn.utils.formats import plural

if TYPE_CHECKING:
    import torch


class Provenance(TypedDict):
    """Where a result comes from."""

    version: str | None  # of gistgnn
    date: str  # when it was written, UTC
    command: str
    machine: str
    libraries: dict[str, str | None]  # their versions, or None where one is not installed
    git: dict[str, Any] | None  # the commit of the working directory, if it is in a repository


def describe_machine(device: str = "cpu", threads: int | None = None) -> str:
    """Describe the processor or GPU, torch's threads and torch's version in one line.

    ``threads`` defaults to those of this process.
    """
    import torch

    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else processor()
    used = plural(threads or torch.get_num_threads(), "thread")
    return f"{hardware}, {used} of {os.cpu_count()} cores, torch {torch.__version__}"


def usable_device(name: "str | torch.device") -> "torch.device":
    """Return a device that torch finds.

    "cuda" alone is the GPU in use, by its number, as threads begin with GPU 0.
    """
    import torch

    check_kind("device", name, (str, torch.device), "cpu, cuda or cuda:N")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise ValueError("its tensors have no values")
        # This fails for a device that this torch has no code for.
        torch.empty(0, device=device if device.type != "cuda" else "cpu")
    except Exception as error:  # torch raises many kinds
        raise InputError(
            f"device is {shown(name)}, expected cpu, cuda or cuda:N ({reason(error)})"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        gpus = plural(torch.cuda.device_count(), "GPU")
        raise InputError(f"device is '{device}', but torch finds {gpus} here: use cpu")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def require_usual_torch() -> None:
    """Refuse global settings of torch with which our models cannot train."""
    import torch

    if (kind := torch.get_default_dtype()) is not torch.float32:
        raise InputError(
            f"torch's default type is {kind}, and features are float32: "
            "set_default_dtype(torch.float32)"
        )
    if torch.get_default_device().type == "meta":
        raise InputError(
            "torch's default device is meta, whose tensors have no values: "
            "set_default_device('cpu')"
        )


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


LIBRARIES = ("torch", "torch_geometric", "numpy", "scipy", "scikit-learn", "pymetis", "safetensors")
_GIT_SECONDS = 5  # a folder on a slow disk should not delay a result


def provenance(device: str) -> Provenance:
    """Describe this process and the device where the sub-GCNs train, as result.json holds it."""
    return {
        "version": version_of("gistgnn"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "machine": describe_machine(device),
        "libraries": {
            "python": platform.python_version(),
            **{name: version_of(name) for name in LIBRARIES},
        },
        "git": git_commit(Path.cwd()),
    }


def command() -> str:
    """Return the command line of this process, to be typed again."""
    program = Path(sys.argv[0]).name
    if program in ("gistgnn", "gistgnn.exe"):
        return shlex.join(["gistgnn", *sys.argv[1:]])
    words = (
        ["-m", Path(sys.argv[0]).parent.name, *sys.argv[1:]]
        if program == "__main__.py"
        else sys.argv
    )
    return shlex.join(["python", *(words if program else [])])


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Return the commit of a folder's repository, and whether tracked files differ from it.

    Returns None if the folder is in no repository.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return (
        None if commit is None or changes is None else {"commit": commit, "changed": bool(changes)}
    )


def _git(folder: Path, *words: str) -> str | None:
    """Return what git prints; None where it fails or is not installed."""
    try:
        command = ["git", "-C", str(folder), *words]
        finished = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.strip()


def version_of(name: str) -> str | None:
    """Return the version of an installed package, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
