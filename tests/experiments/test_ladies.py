import re
from pathlib import Path

import pytest
from commands import command, run_command

from gistgnn.cli.main import main
from gistgnn.experiments.ladies import PAPER, SUB_GCNS, Ladies
from gistgnn.sampling import LadiesSampling


def test_the_table_is_the_paper_s() -> None:
    assert set(PAPER) == {(hidden, m) for hidden in (2, 3) for m in SUB_GCNS}
    assert PAPER[2, 4] == (88.42, 2.90)
    assert PAPER[3, 2] == (86.52, 1.82)


def test_a_run_is_of_the_paper_s_settings() -> None:
    run = Ladies(("synthetic:reddit",)).config("synthetic:reddit", 3, 4, 1)
    assert run.model.hidden == (256, 256, 256)
    assert run.model.name == "gcn"
    assert run.sub_gcns == 4
    assert run.seed == 1
    assert run.sampler == LadiesSampling(batch_size=512, nodes_per_layer=512, row_normalise=True)
    assert run.training["local_steps"] == 500
    assert run.training["epochs"] == 80
    assert run.training["lr"] == 0.001
    assert run.inductive
    small = Ladies(("digits",)).config("digits", 2, 1, 0)
    assert not small.inductive
    assert small.training["lr"] == 0.01


def test_the_command(tmp_path: Path) -> None:
    options = ("--datasets", "digits", "--layers", 2, "--epochs", 8, "--local-steps", 2, "--seeds", 2, "--jobs", 2)
    done = run_command(tmp_path, "reproduce", "ladies", *options, "--out", "out")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/ladies.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| digits")]
    assert [row.split("|")[3].strip() for row in rows] == ["baseline", "2", "4"]
    assert all(re.search(r"\d+\.\d\d ± \d+\.\d\d", row) for row in rows)
    assert "1.83x" in rows[1]
    kept = {path: path.read_text() for path in (tmp_path / "out/runs").iterdir()}
    assert len(kept) == 6
    again = run_command(tmp_path, "reproduce", "ladies", *options, "--out", "out")
    assert again.returncode == 0
    assert {path: path.read_text() for path in (tmp_path / "out/runs").iterdir()} == kept
    assert (tmp_path / "out/ladies.md").read_text() == text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--layers", 4), "invalid choice: 4"),
        (("--datasets", "absent"), "'absent' is neither a data set nor a file"),
        (("--local-steps", 0), "'0' is not an integer >= 1"),
    ],
)
def test_bad_options(
    options: tuple[object, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = command("reproduce", "ladies", *options, "--out", tmp_path / "out")
    given = list(map(str, argv[argv.index("reproduce") :]))
    try:
        status = main(given)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
