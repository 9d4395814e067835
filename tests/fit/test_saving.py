"""Runs that are saved: what is of another run, torn, or damaged by one flipped bit."""

import shutil
from pathlib import Path

import pytest

from gistgnn import GIST, Saving
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.fit.result import MODEL, RESULT
from gistgnn.sampling import ClusterSampling
from gistgnn.storage.checkpoints import Checkpoints
from tests.cli.in_process import refused as command_refused
from tests.cli.in_process import run
from tests.helpers.fitting import fit as plain_fit
from tests.helpers.fitting import gcn
from tests.helpers.flips import flipped, some_bytes
from tests.helpers.models import OURS, PLAIN, tiny_graph
from tests.helpers.refusals import full_disk, refused
from tests.helpers.resuming import RICH, after, fit, make, state
from tests.theta.stores import store


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for checkpoint in Checkpoints(folder).complete_folders()
        for file in checkpoint.iterdir()
    }


def newest(folder: Path) -> Path:
    checkpoint = Checkpoints(folder).newest()
    assert checkpoint
    return checkpoint


def tensors_of(checkpoint: Path) -> Path:
    return next(checkpoint.glob("rank-00000-*.safetensors"))


def test_a_checkpoint_of_another_model_or_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    fit(make(), callbacks=after(1), saving=Saving(path))
    before = contents(path)
    saving = Saving(path, resume=True)
    for setting, value in {"lr": 0.06, "patience": 9, "sampler": ClusterSampling(6, 3)}.items():
        with refused(str(path), "another run", f"{setting} was"):
            fit(make(), saving=saving, **{setting: value})
    for setting, gist in (
        ("seed", make(seed=1)),
        ("partition", make(partition="categorical")),
        ("whole", make(whole=[0])),
        ("widths", GIST(lambda w: OURS["gcn"](w, norm="batch"), (8, 6), 3)),
    ):
        with refused("another run", f"{setting} was"):
            fit(gist, saving=saving)
    with refused("another run", "dropout of the model was 0.4, now 0.0"):
        fit(GIST(lambda w: OURS["gcn"](w), (8, 7), 3), saving=saving)
    with refused("another run", "sub_gcns was 3, now 2"):
        fit(make(2), saving=saving, epochs=33)
    with refused("another run", "the graph's number of nodes was 24, now 27"):
        settings = {**PLAIN, "epochs": 33, "local_steps": 2, "lr": 0.05, "evaluate_every": 2}
        make().fit(tiny_graph(27), progress=False, saving=saving, **settings)
    assert contents(path) == before
    saving = Saving(tmp_path / "files", resume=True)
    fit(make(store=store("disk", tmp_path)), callbacks=after(1), saving=saving)
    shutil.rmtree(tmp_path / "theta")
    with refused(f"{tmp_path / 'theta'} "):
        fit(make(), saving=saving)
    saving = Saving(tmp_path / "rich", resume=True)
    fit(make(4), **RICH, saving=saving, callbacks=after(2))
    for setting, value, message in (
        ("epochs", 24, "epochs was 22, now 24"),
        ("optimizer_state", "reset", "optimizer_state was 'carry', now 'reset'"),
        ("schedule", "step", "schedule was 'cosine', now 'step'"),
        ("sampler", None, "sampler"),
    ):
        with refused("of another run", message):
            fit(make(4), **{**RICH, setting: value}, saving=saving)


def test_what_is_not_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "round-1").mkdir()
    fit(make(), callbacks=after(2), saving=Saving(tmp_path, every=1))
    fit(make(seed=1), callbacks=after(1), saving=Saving(tmp_path))
    Checkpoints(tmp_path).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-1", "thesis.tex"]


# A flipped bit, and files of another run.

TRAIN = (
    "train",
    "--standardise",
    "--hidden",
    8,
    "--epochs",
    4,
    "--local-steps",
    2,
    "--sub-gcns",
    2,
    "--device",
    "cpu",
)


def test_a_file_of_another_run_or_round_is_refused_and_the_checkpoint_before_is_gone_on_from(
    tmp_path: Path,
) -> None:
    saving, other = (Saving(tmp_path / name, every=1, resume=True) for name in ("mine", "other"))
    fit(make(), callbacks=after(2), saving=saving)
    fit(make(seed=1), callbacks=after(2), saving=other)
    before = Checkpoints(saving.path).complete_folders()[0]
    for source in (newest(other.path), before):
        shutil.copy(tensors_of(source), tensors_of(newest(saving.path)))
        with refused(
            str(tensors_of(newest(saving.path))),
            "resume from round-00000001",
        ):
            fit(make(), saving=saving)
    # A torn checkpoint is not looked at.
    (newest(saving.path) / "state.json").unlink()
    unbroken = make()
    gist = make()
    assert state(gist, fit(gist, saving=saving)) == state(unbroken, fit(unbroken))


def test_a_damaged_or_foreign_model_or_result_is_refused_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    other = tmp_path / "other"
    for folder, seed in ((out, 0), (other, 1)):
        assert run(*TRAIN, "--seed", seed, "--out", folder) == 0
    resume = (*TRAIN, "--out", out, "--resume")
    predict = ("predict", out, "--output", tmp_path / "p.csv")
    for name, commands in ((RESULT, [predict]), (MODEL, [("evaluate", out), resume])):
        (position,) = some_bytes(out / name, 1)
        with flipped(out / name, position):
            command_refused(capsys, name, "evaluate", out)
        before = (out / name).read_bytes()
        shutil.copy(other / name, out)
        for words in commands:
            command_refused(capsys, "of another run", *words)
        (out / name).write_bytes(before)
    assert run("evaluate", out) == 0


def test_a_last_checkpoint_that_does_not_fit_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain_fit(GIST(gcn(), (8, 8), 2))
    monkeypatch.setattr("gistgnn.storage.checkpoints.write_tensors", full_disk)
    result = plain_fit(GIST(gcn(), (8, 8), 2), saving=Saving(tmp_path / "c"))
    assert result.test == expected.test
    # A run that is not over is refused.
    with refused("No space left on device"):
        plain_fit(
            GIST(gcn(), (8, 8), 2),
            saving=Saving(tmp_path / "c"),
            callbacks=[InterruptWhen(lambda: True)],
        )
