"""Too little memory is one line with the plan's numbers.

The line comes before the run where that is certain, otherwise when memory is short.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, InputError
from gistgnn.runners.auto import Auto
from gistgnn.theta import Store
from tests.cli.in_process import run

from .runs import fit, make

FAILED = "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 8.00 GiB."
RUN = (
    "train",
    "--dataset",
    "digits",
    "--model",
    "gcn",
    "--hidden",
    "1024",
    "1024",
    "--sub-gcns",
    "2",
    "--epochs",
    "2",
)


def last_line(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The last line of a command that ends with status 2, and without a trace."""
    capsys.readouterr()
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.mark.cuda
def test_a_model_or_a_step_that_is_too_wide_is_refused_before_it_is_made(tmp_path: Path) -> None:
    build = make("gcn none 2", "cuda").build
    for store, where in (("memory", "GPU memory"), ("host", "memory")):
        gist = GIST(build, (2_000_000, 2_000_000), 4, device="cuda", store=store)  # 16 TB
        with pytest.raises(
            InputError, match=rf"takes .* of {where}, .* are free: make the widths smaller"
        ):
            gist.model()
    wide = GIST(
        build, (2_000_000, 2_000_000), 2, device="cuda", store=Store("disk", tmp_path / "theta")
    )
    with pytest.raises(InputError, match=r"a step of one sub-GCN .* of GPU memory, .* are free"):
        fit(wide)


@pytest.mark.cuda
def test_an_allocation_that_fails_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*RUN, "--out", tmp_path / "run", "--device", "cuda:0")
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(2**25 / torch.cuda.mem_get_info()[1])
    try:
        line = last_line(capsys, *arguments)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    for part in ("error: out of GPU memory (OutOfMemoryError: CUDA out of memory", "it held up to"):
        assert part in line


ERRORS = [torch.OutOfMemoryError(FAILED), MemoryError(), RuntimeError("can't allocate memory")]


def test_the_line_names_peak_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Auto, "__call__", fail)
    for number, error in enumerate(ERRORS):
        line = last_line(capsys, *RUN, "--out", tmp_path / f"run-{number}", "--device", "cpu")
        assert line.startswith(f"gistgnn: error: out of memory ({type(error).__name__}")
        for part in ("it held up to", "raise --sub-gcns"):
            assert part in line
    error = RuntimeError("something else")  # it stays as it is
    with pytest.raises(RuntimeError, match="something else"):
        run(*RUN, "--out", tmp_path / "other", "--device", "cpu")
