"""Too little memory is one line with the plan's numbers: before the run where that is certain, otherwise when it is."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, InputError
from gistgnn.cli.main import main
from gistgnn.runners.auto import Auto
from tests.cli.in_process import refused

from .conftest import PRETENDED
from .runs import fit, make

FAILED = "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 8.00 GiB."
RUN = ("train", "--dataset", "digits", "--model", "gcn", "--hidden", "1024", "1024", "--sub-gcns", "2", "--epochs", "2")


def test_a_model_that_is_too_wide_is_refused_before_it_is_made(gpu: str) -> None:
    gist = make("gcn none 2", "cuda")
    with pytest.raises(InputError, match=r"takes .* of GPU memory, .* are free: make the widths smaller"):
        GIST(gist.build, (2_000_000, 2_000_000), 4, device="cuda").model()
    wide = GIST(gist.build, (4_000_000_000, 9), 4, device="cuda", store="host")
    with pytest.raises(InputError, match="memory"):
        fit(wide)


def test_an_allocation_that_fails_is_one_line_with_the_plan(
    gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", tmp_path / "run", "--device", "cuda")
    if gpu == PRETENDED:
        monkeypatch.setattr(Auto, "__call__", fail)
        refused(capsys, "out of GPU memory (OutOfMemoryError: CUDA out of memory", *RUN, *out)
        return
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(2**25 / torch.cuda.mem_get_info()[1])
    try:
        refused(capsys, "its plan has", *RUN, *out)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError(FAILED), MemoryError(), RuntimeError("can't allocate memory")], ids=repr
)
def test_the_line_names_plan_peak_and_advice(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Auto, "__call__", lambda *_: fail(error))
    arguments = (*RUN, "--out", tmp_path / "run", "--device", "cpu")
    for part in (f"out of memory ({type(error).__name__}", "its plan has", "MiB for it, in its training stage",
                 "it held up to", "raise --sub-gcns"):  # fmt: skip
        refused(capsys, part, *arguments, "--overwrite")


def test_another_error_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Auto, "__call__", lambda *_: fail(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        main([*RUN, "--out", str(tmp_path / "run"), "--device", "cpu"])


def fail(error: Any = None, *_: Any) -> Any:
    raise error if isinstance(error, Exception) else torch.OutOfMemoryError(FAILED)
