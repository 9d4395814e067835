"""Real processes that are killed while they write Θ, and what becomes of their runs."""

import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from gistgnn import Saving
from gistgnn.layout.axes import named_tensors
from gistgnn.storage import tensors as tensor_files
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta import Store, slices
from tests.helpers.commands import Forked
from tests.helpers.resuming import RICH, fit, make
from tests.theta.stores import values

CALLS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "posix_fallocate")


def digest(folder: Path | None, kind: str) -> str:
    """Run to the end, from wherever an earlier process left off, and say what came out."""
    in_files = folder and kind != "checkpoints"
    options: dict[str, Any] = {"store": Store("disk", folder / "theta")} if in_files else {}
    gist = make(4 if kind == "clusters" else 3, **options)
    saving = Saving(folder / "checkpoints", every=1, resume=True) if folder else None
    if folder and not Checkpoints(folder / "checkpoints").newest():
        shutil.rmtree(folder / "theta", ignore_errors=True)
    steps: dict[str, Any] = {"epochs": 7 * gist.sub_gcns, "optimizer_state": "carry"}
    if kind == "clusters":  # two steps in an epoch
        steps = {**RICH, "epochs": 7 * gist.sub_gcns / 2}
    result = fit(gist, saving=saving, **steps)
    sha256 = hashlib.sha256()
    best = {f"best/{name}": tensor for name, tensor in named_tensors(result.model).items()}
    for name, tensor in sorted({**values(gist.theta), **best}.items()):
        sha256.update(name.encode() + tensor.detach().float().numpy().tobytes())
    sha256.update(repr([result.progress.best_round, result.progress.rounds, result.test]).encode())
    return sha256.hexdigest()


def dies_at(n: int) -> None:
    """Let the n-th call be the last thing that this process does: half of it, where it writes."""
    count = iter(range(1, 10**9))

    def wrapped(
        real: Callable[..., Any], half: Callable[..., Any] = lambda *_: None
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(count) == n:
                half(real, *args)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
    Path.write_bytes = wrapped(  # type: ignore[method-assign]
        Path.write_bytes, lambda *args: half_of_file(*args, path=args[1])
    )
    shutil.copyfile = wrapped(shutil.copyfile, lambda *args: half_of_file(*args, path=args[2]))
    tensor_files.save_file = wrapped(
        tensor_files.save_file, lambda *args: half_of_file(*args, path=args[2])
    )
    slices.scatter = wrapped(slices.scatter, half_of_tensor)  # type: ignore[attr-defined]


def half_of_file(write: Callable[..., Any], *args: Any, path: Path) -> None:
    write(*args)
    os.truncate(path, path.stat().st_size // 2)


def half_of_tensor(scatter: Callable[..., Any], tensor: Tensor, cut: Any, values: Tensor) -> None:
    before = tensor.clone().view(-1)
    half = tensor.numel() // 2
    scatter(tensor, cut, values)
    tensor.view(-1)[half:] = before[half:]


def in_child(work: Callable[[], str | None]) -> tuple[int, str]:
    """Do something in a fork of this process; return how it ended and what it said."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, (work() or "").encode())
            os._exit(0)
        except BaseException as error:  # whatever it is, the parent is to see it
            os.write(writes, repr(error).encode())
            os._exit(1)
    os.close(writes)
    output = os.read(reads, 10**6).decode()
    os.close(reads)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output


def kill_again_and_again(folder: Path, step: int, kind: str) -> None:
    """Kill a run at every `step`-th call, and let another process end it.

    Print how both have ended.
    """
    print("unbroken", *in_child(lambda: digest(None, kind)), flush=True)
    for n in range(1, 1200, step):
        run_folder = folder / str(n)
        run_folder.mkdir()

        def work(n: int = n, run_folder: Path = run_folder) -> str:
            dies_at(n)
            return digest(run_folder, kind)

        def work_to_the_end(run_folder: Path = run_folder) -> str:
            return digest(run_folder, kind)

        status, output = in_child(work)
        print(n, status, output or "-", *in_child(work_to_the_end), flush=True)
        shutil.rmtree(run_folder)
        if not status:  # it has fewer calls
            return


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
@pytest.mark.parametrize(("kind", "step"), [("disk", 23), ("clusters", 31), ("checkpoints", 11)])
def test_a_run_that_is_killed_ends_like_an_unbroken_one(
    kind: str, step: int, tmp_path: Path
) -> None:
    """At least twenty kills over all that a run writes.

    A run writes a round's files, Θ, the best Θ, moments, state and checkpoints. With "checkpoints"
    Θ is in memory, otherwise in files.
    """
    completed = Forked(tmp_path, kill_again_and_again, tmp_path, step, kind).completed(timeout=300)
    assert completed.returncode == 0, completed.stderr
    unbroken, *lines = (line.split() for line in completed.stdout.splitlines())
    assert unbroken[1] == "0"
    killed = [line for line in lines if int(line[1]) == -signal.SIGKILL]
    assert len(killed) >= 20, completed.stdout
    for line in lines:
        assert line[-2:] == ["0", unbroken[2]], line
