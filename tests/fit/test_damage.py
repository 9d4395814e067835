"""Damage to the files of a run: every flipped byte is refused, and files of another run are named."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from gistgnn import Saving, load_run
from gistgnn.fit.result import MODEL, RESULT
from gistgnn.runs.run_folder import check_files, read_record
from gistgnn.storage.checkpoints import Checkpoint, Checkpoints
from tests.cli.in_process import refused as command_refused
from tests.cli.in_process import run
from tests.helpers.flips import every_byte, flipped, some_bytes
from tests.helpers.models import OURS
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make, state

TRAIN = ("train", "--hidden", 8, "--epochs", 4, "--local-steps", 2, "--sub-gcns", 2, "--device", "cpu")
AGAIN = "train the run again"


def build(widths: Any) -> nn.Module:
    return OURS["gcn"](widths, dropout=0.4, norm="batch")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return fit(make()).save(tmp_path / "run")


def test_every_flipped_byte_of_a_model_is_refused(saved: Path) -> None:
    path = saved / MODEL
    for place in every_byte(path):
        with flipped(path, place), refused(f"{path} ", AGAIN):
            load_run(saved, build)
    load_run(saved, build)


def test_every_flipped_byte_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    saving = Saving(tmp_path / "checkpoints", every=1)
    fit(make(), callbacks=after(2), saving=saving)
    place = newest(saving)
    run_of = json.loads((place / "state.json").read_text())["run"]
    for path in (tensors_of(place), place / "state.json"):
        for at in every_byte(path)[:-1]:  # the last one is a newline
            with flipped(path, at), refused(f"{path} ", f"; delete {place} to resume from round-00000001"):
                Checkpoint(place, run_of)
    plain, resumed = make(), make()
    expected = state(plain, fit(plain))
    assert state(resumed, fit(resumed, saving=Saving(saving.path, resume=True))) == expected


def newest(saving: Saving) -> Path:
    place = Checkpoints(saving.path).newest()
    assert place
    return place


def tensors_of(place: Path) -> Path:
    return next(place.glob("rank-00000-*.safetensors"))


def test_a_checkpoint_s_file_of_another_run_or_round_is_refused(tmp_path: Path) -> None:
    saving, other = (Saving(tmp_path / name, every=1, resume=True) for name in ("mine", "other"))
    fit(make(), callbacks=after(2), saving=saving)
    fit(make(seed=1), callbacks=after(2), saving=other)
    before = Checkpoints(saving.path).whole()[0]
    for source in (newest(other), before):
        shutil.copy(tensors_of(source), tensors_of(newest(saving)))
        with refused(f"{tensors_of(newest(saving))} is damaged, or of another run", "resume from round-00000001"):
            fit(make(), saving=saving)


def test_features_and_results_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    for folder, seed in ((out, 0), (other, 1)):
        assert run(*TRAIN, "--standardise", "--seed", seed, "--out", folder) == 0
    features = out / "features.safetensors"
    for at in every_byte(features):
        with flipped(features, at), refused(f"{features} "):
            check_files(out, read_record(out))
    for name in (RESULT, "features.safetensors", MODEL):
        for at in some_bytes(out / name, 5):
            with flipped(out / name, at):
                command_refused(capsys, name, "evaluate", out)
        before = (out / name).read_bytes()
        shutil.copy(other / name, out)
        if name == MODEL:
            said = f"{name} is damaged, or of another run"
            command_refused(capsys, said, "evaluate", out)
            command_refused(capsys, said, *TRAIN, "--standardise", "--out", out, "--resume")
        elif name == RESULT:
            command_refused(capsys, "of another run", "predict", out, "--output", tmp_path / "p.csv")
        (out / name).write_bytes(before)
    assert run("evaluate", out) == 0
