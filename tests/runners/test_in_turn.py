import pytest
import torch
from torch import nn

from gistgnn import GIST, DivergedError
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import FullGraph, forward, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import loss_of, subtrain
from gistgnn.utils.random_streams import torch_stream
from tests.helpers.models import OURS, C, F, tiny_graph
from tests.helpers.refusals import refused

SAMPLER = FullGraph(whole_graph(tiny_graph()))
TRAINING = Training(9, local_steps=3, lr=0.05)


def make(m: int = 3, dropout: float = 0.5) -> GIST:
    return GIST(lambda w: OURS["gcn"](w, dropout=dropout), (9, 7), m)


def values(module: nn.Module) -> list[list[float]]:
    return [t.tolist() for t in named_tensors(module).values()]


@pytest.mark.parametrize("i", [0, 1, 2])
def test_a_sub_gcn_trained_alone_is_the_same(i: int) -> None:
    """Where and after what a sub-GCN trains does not matter, dropout included."""
    together, alone = make().begin_round(), make().begin_round()
    InTurn()(together, SAMPLER, TRAINING, StepRange(0, 3, 9), seed=5)
    torch.manual_seed(77)
    with torch_stream(5, "dropout", 0, i):
        optimizer = TRAINING.make_optimizer(alone.subs[i].parameters())
        subtrain(alone.subs[i], optimizer, SAMPLER.batches(0, 3), TRAINING, lambda k: TRAINING.lr)
    assert values(alone.subs[i]) == values(together.subs[i])


def test_dropout_differs_by_round_sub_gcn_and_seed() -> None:
    def trained(number: int, seed: int) -> list[list[list[float]]]:
        gist = GIST(lambda w: OURS["gcn"](w, dropout=0.5), (9, 7), 2, whole=[0, 1])
        gist.next_round = number
        round_ = gist.begin_round()
        InTurn()(round_, SAMPLER, TRAINING, StepRange(0, 3, 9), seed)
        return [values(sub) for sub in round_]

    runs = [*trained(0, 0), *trained(1, 0), *trained(0, 1)]
    assert all(a != b for k, a in enumerate(runs) for b in runs[:k])
    assert trained(1, 0) == runs[2:4]


def test_the_loss_is_the_mean_over_steps_and_sub_gcns() -> None:
    round_, again = make(dropout=0.0).begin_round(), make(dropout=0.0).begin_round()
    found = round_.aggregate(InTurn()(round_, SAMPLER, TRAINING, StepRange(0, 2, 9), seed=0))
    losses = []
    for sub in again:
        optimizer = torch.optim.Adam(sub.parameters(), lr=TRAINING.lr)
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(forward(sub, SAMPLER.batch), SAMPLER.batch)
            losses.append(float(loss))
            loss.backward()
            optimizer.step()
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-6)


def test_the_rate_follows_the_place_in_the_run() -> None:
    rates: list[float] = []

    class Watched(Training):
        def rate(self, progress: float) -> float:
            rates.append(progress)
            return super().rate(progress)

    InTurn()(make(2).begin_round(), SAMPLER, Watched(8), StepRange(4, 3, 8), seed=0)
    assert rates == [4 / 8, 5 / 8, 6 / 8] * 2


def test_carry_and_the_baseline_keep_moments() -> None:
    for m, state in ((1, "reset"), (3, "carry")):
        gist = make(m)
        round_ = gist.begin_round()
        InTurn()(round_, SAMPLER, Training(9, optimizer_state=state), StepRange(0, 3, 9), seed=0)
        round_.aggregate()
        assert all(moments["step"] == 3 for moments in gist.theta.moments.values())


def test_partitioned_inputs_are_the_columns_of_each_sub_gcn() -> None:
    seen: list[torch.Tensor] = []

    class Watching(GCN):
        def forward(self, x, adj):  # type: ignore[no-untyped-def]
            if self.training:
                seen.append(x)
            return super().forward(x, adj)

    gist = GIST(lambda w: Watching(w[0], w[1:], C), (F, 8), 3, input_axis=0)
    round_ = gist.begin_round()
    InTurn()(round_, SAMPLER, TRAINING, StepRange(0, 1, 9), seed=0)
    for own, x in zip(round_.blocks, seen, strict=True):
        assert torch.equal(x, SAMPLER.batch.x[:, own[0]])


def test_a_loss_that_is_not_finite_is_refused() -> None:
    gist = make()
    round_ = gist.begin_round()
    with torch.no_grad():
        named_tensors(round_.subs[1])["convs.2.bias"].fill_(float("inf"))
    before = gist.theta.copy()
    losses = InTurn()(round_, SAMPLER, TRAINING, StepRange(0, 2, 9), seed=0)
    assert losses.keys() == {0, 1}  # the others are not trained for nothing
    with refused("round 1", "loss of sub-GCN 1", error=DivergedError):
        round_.aggregate(losses)
    assert all(torch.equal(tensor, before[name]) for name, tensor in gist.theta.tensors.items())


def test_gradient_clipping_bounds_a_step() -> None:
    round_ = make(2, dropout=0.0).begin_round()
    before = [torch.cat([p.detach().flatten() for p in sub.parameters()]) for sub in round_]
    InTurn()(round_, SAMPLER, Training(9, optimizer="sgd", lr=1.0, clip_norm=1e-3), StepRange(0, 1, 9), seed=0)
    for old, sub in zip(before, round_, strict=True):
        step = torch.cat([p.detach().flatten() for p in sub.parameters()]) - old
        assert 0 < float(step.norm()) <= 1.01e-3
