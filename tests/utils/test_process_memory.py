from pathlib import Path

from tests.helpers.commands import run_program

PROGRAM = """
import torch, sys
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes
if sys.argv[1] == "keep":
    keep_freed_memory()
    keep_freed_memory()
torch.manual_seed(0)
x = torch.randn(500, 4000)
for _ in range(5):
    x = (x @ x.t() / 4000).softmax(dim=1) @ x
assert peak_memory_bytes(torch.device("cpu")) > 2**20
print(x.double().sum().item(), x[3, :3].tolist())
"""


def test_keeping_freed_memory_changes_no_result(tmp_path: Path) -> None:
    done = [run_program(tmp_path, PROGRAM, what) for what in ("keep", "not")]
    assert [each.returncode for each in done] == [0, 0], done
    assert done[0].stdout == done[1].stdout != ""
