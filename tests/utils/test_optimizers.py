import subprocess
import sys

import pytest
import torch

from gistgnn.settings import OPTIMIZERS, Training


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_and_state_are_those_of_torch(name: str) -> None:
    start = torch.linspace(-1, 1, 12).view(3, 4)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    training = Training(1, optimizer=name, lr=0.1, weight_decay=0.01)
    pair = [
        (ours, training.make_optimizer([ours])),
        (theirs, getattr(torch.optim, OPTIMIZERS[name])([theirs], lr=0.1, weight_decay=0.01, fused=True)),
    ]
    for _ in range(3):
        for parameter, optimizer in pair:
            optimizer.zero_grad()
            (parameter**3).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)
    state, expected = (optimizer.state_dict()["state"] for _, optimizer in pair)
    assert str(state) == str(expected)


def test_a_step_does_not_load_the_compiler() -> None:
    code = (
        "import sys, torch; from gistgnn.settings import Training; p = torch.nn.Parameter(torch.ones(2));"
        "o = Training(1).make_optimizer([p]); p.sum().backward(); o.step(); o.zero_grad();"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
