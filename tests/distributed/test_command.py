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

TRAIN = (
    "train",
    "--model",
    "graphsage",
    "--hidden",
    64,
    64,
    "--sub-gcns",
    4,
    "--epochs",
    80,
    "--local-steps",
    5,
)
CARRY = ("--set", "optimizer_state=carry")


def words(count: int, *args: object, restarts: int = 0) -> list[str]:
    program = [
        str(Path(sys.executable).with_name("torchrun")),
        "--standalone",
        "--nproc-per-node",
        str(count),
    ]
    return [*program, "--max-restarts", str(restarts), "-m", "gistgnn", *map(str, args)]


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
    assert record == json.loads((ranks / "result.json").read_text())  # printed once
    assert record["test"] == expected["test"]
    assert (record["config"]["store"], record["config"]["share"]) == ("memory", "rows")
    assert expected["communication"] is None
    said = record["communication"]
    assert said["ranks"] == 2
    assert said["rounds"] == record["rounds"]
    assert sum(said["sent"]) == sum(said["received"]) > 0
    assert {path.name for path in ranks.iterdir()} == {path.name for path in alone.iterdir()}
    for given, refusal in (
        ((), "ranks already holds a result: choose another --out, or add --overwrite"),
        (
            ("--out", "new", "--memory", 0.1),
            "m = 4 needs .* of memory on each of 2 ranks .*, 102 MiB are available: .*",
        ),
    ):
        again = run_ranks(tmp_path, 2, *options, *given)
        assert [rank.returncode for rank in again] == [2, 2]
        [said] = [
            line
            for rank in again
            for line in rank.stderr.splitlines()
            if line.startswith("gistgnn: error")
        ]
        assert re.fullmatch(f"gistgnn: error: {refusal}", said)
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
    for rank in ranks:  # as torchrun passes a signal on
        rank.send_signal(signal.SIGTERM)
    said = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    for line in (
        "stopping after this round",
        "resume with the same command and --out cut --resume",
    ):
        assert said.count(line) == 1, said
    if (record := tmp_path / "cut/result.json").exists():  # there was an evaluation before
        assert json.loads(record.read_text())["interrupted"] is True
    for out in ("cut", "whole"):
        assert run_command(tmp_path, *longer, "--out", out, "--resume").returncode == 0
    assert_one_model(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--epochs", "x"), "--epochs is 'x', expected a number"),
        (("--set", "heads=2"), "add --model gat"),
    ],
)
def test_a_rank_with_wrong_options_tells_the_others(
    tmp_path: Path, options: tuple[object, ...], said: str
) -> None:
    begun = time.monotonic()
    first, second = run_ranks(tmp_path, 2, *TRAIN, "--out", "run", "--timeout", 90, last=options)
    assert (first.returncode, second.returncode) == (2, 2)
    assert time.monotonic() - begun < 60
    assert first.stderr.endswith(
        "gistgnn: error: rank 1 refuses its settings: see what it has printed\n"
    )
    assert said in second.stderr
    assert second.stderr.count("error: ") == 1


@pytest.mark.parametrize(("rank", "listens"), [(0, True), (1, True), (1, False)])
def test_ranks_that_cannot_meet_say_so_in_one_line(
    tmp_path: Path, rank: int, listens: bool
) -> None:
    with socket.socket() as server:  # it says nothing; nobody else may have its port
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        where = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
        }
        process = start_command(tmp_path, *TRAIN, "--timeout", 2, "--out", "run", **where)
        lines = process.communicate(timeout=40)[1].splitlines()
    said = [line for line in lines if not line.startswith("gistgnn: starting")]
    assert (process.returncode, len(said)) == (2, 1)
    assert "the other ranks cannot be reached within --timeout 2" in said[0]
    reason = {(0, True): "EADDRINUSE", (1, True): "accepts connections, and then does not answer"}
    assert reason.get((rank, listens), "nobody answers at 127.0.0.1") in said[0]
    assert not (tmp_path / "run").exists()
