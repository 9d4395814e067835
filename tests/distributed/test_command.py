"""`torchrun -m gistgnn train`, as a user calls it."""

import json
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.cli.in_process import wait_until
from tests.helpers.commands import run_command, run_ranks, start, start_command, start_ranks

MODEL = ("--model", "graphsage", "--hidden", 64, 64, "--sub-gcns", 4)
TRAIN = ("train", *MODEL, "--epochs", 80, "--local-steps", 5)
CARRY = ("--set", "optimizer_state=carry")


def words(count: int, *args: object, restarts: int = 0) -> list[str]:
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    ranks = ["--standalone", "--nproc-per-node", str(count), "--max-restarts", str(restarts)]
    return [torchrun, *ranks, "-m", "gistgnn", *map(str, args)]


def assert_one_model(*folders: Path) -> None:
    one, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one == other


def test_it_leaves_the_model_of_one_process(tmp_path: Path) -> None:
    assert run_command(tmp_path, *TRAIN, *CARRY, "--out", "alone").returncode == 0
    options = (*TRAIN, *CARRY, "--out", "ranks", "--share", "rows")
    process = start(words(2, *options, "--json"), tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    alone = tmp_path / "alone"
    ranks = tmp_path / "ranks"
    assert_one_model(alone, ranks)
    record = json.loads(out)
    expected = json.loads((alone / "result.json").read_text())
    assert record == json.loads((ranks / "result.json").read_text()), "it is printed once"
    assert record["test"] == expected["test"]
    assert (record["config"]["store"], record["config"]["share"]) == ("memory", "rows")
    assert expected["communication"] is None
    communication = record["communication"]
    assert communication["ranks"] == 2
    assert communication["rounds"] == record["rounds"]
    assert sum(communication["sent"]) == sum(communication["received"]) > 0
    assert {path.name for path in ranks.iterdir()} == {path.name for path in alone.iterdir()}
    for changes, refusal in (
        ((), "ranks already holds a result: choose another --out, or add --overwrite"),
        (
            ("--out", "new", "--memory", 0.1),
            "m = 4 needs .* of memory on each of 2 ranks .*, 102 MiB are available: .*",
        ),
    ):
        first, second = run_ranks(tmp_path, 2, *options, *changes)
        assert (first.returncode, second.returncode) == (2, 2)
        lines = [*first.stderr.splitlines(), *second.stderr.splitlines()]
        [message] = [line for line in lines if line.startswith("gistgnn: error")]
        assert re.fullmatch(f"gistgnn: error: {refusal}", message)
    assert not (tmp_path / "new").exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options", [("--method", "data-parallel", "--sub-gcns", 2, "--epochs", 2), ("--budget", "3s")]
)
def test_a_run_whose_plan_has_one_sub_gcn_has_ranks(
    tmp_path: Path, options: tuple[object, ...]
) -> None:
    narrow = ("train", "--hidden", 32, 32, "--sampler", "clusters", "--clusters", 8, *options)
    assert [rank.returncode for rank in run_ranks(tmp_path, 2, *narrow, "--out", "run")] == [0, 0]


def test_a_signal_saves_what_one_process_goes_on_with(tmp_path: Path) -> None:
    longer = (*TRAIN, *CARRY, "--hidden", 16, 16, "--epochs", 300, "--checkpoint-every", 1)
    ranks = start_ranks(tmp_path, 2, *longer, "--out", "cut")
    wait_until((tmp_path / "cut/checkpoints").exists, ranks[0])
    for rank in ranks:  # A signal to torchrun reaches all ranks.
        rank.send_signal(signal.SIGTERM)
    messages = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    for line in (
        "stopping after this round",
        "resume with the same command and --out cut --resume",
    ):
        assert messages.count(line) == 1, messages
    record = tmp_path / "cut/result.json"
    if record.exists():  # There was an evaluation before the signal.
        assert json.loads(record.read_text())["interrupted"] is True
    for out in ("cut", "whole"):
        assert run_command(tmp_path, *longer, "--out", out, "--resume").returncode == 0
    assert_one_model(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epochs", "x"), "--epochs is 'x', expected a number"),
        (("--set", "heads=2"), "add --model gat"),
    ],
)
def test_a_rank_with_wrong_options_tells_the_others(
    tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    begun = time.monotonic()
    first, second = run_ranks(tmp_path, 2, *TRAIN, "--out", "run", "--timeout", 90, last=options)
    assert (first.returncode, second.returncode) == (2, 2)
    assert time.monotonic() - begun < 60
    assert first.stderr.endswith(
        "gistgnn: error: rank 1 refuses its settings: see what it has printed\n"
    )
    assert message in second.stderr
    assert second.stderr.count("error: ") == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("rank", "listens"), [(0, True), (1, True), (1, False)])
def test_ranks_that_cannot_meet_say_so_in_one_line(
    tmp_path: Path, rank: int, listens: bool
) -> None:
    # The server says nothing, but nobody else may have its port.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
        }
        process = start_command(tmp_path, *TRAIN, "--timeout", 2, "--out", "run", **environment)
        lines = process.communicate(timeout=40)[1].splitlines()
    messages = [line for line in lines if not line.startswith("gistgnn: starting")]
    assert (process.returncode, len(messages)) == (2, 1)
    assert "the other ranks cannot be reached within --timeout 2" in messages[0]
    reasons = {
        (0, True): "EADDRINUSE",
        (1, True): "accepts connections, and then does not answer",
        (1, False): "nobody answers at 127.0.0.1",
    }
    assert reasons[rank, listens] in messages[0]
    assert not (tmp_path / "run").exists()
