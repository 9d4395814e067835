"""Models whose large weights lie in the host's memory, outside the module."""

import torch

from gistgnn.evaluation.scores import predict
from gistgnn.io.stored_model import held_model
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.layout.axes import named_tensors
from gistgnn.sampling import whole_graph
from tests.helpers.models import OURS, tiny_graph
from tests.helpers.refusals import refused

BATCH = whole_graph(tiny_graph())


def test_it_computes_what_the_module_does_with_the_values_of_the_time() -> None:
    plain = OURS["graphsage"]((40, 30), norm="batch").eval()
    tensors = {name: tensor.detach() for name, tensor in named_tensors(plain).items()}
    with torch.device("meta"):
        meta = OURS["graphsage"]((40, 30), norm="batch")
    held = held_model(meta, tensors, above=2000)
    assert any(isinstance(buffer, StoredTensor) for buffer in held.buffers())
    torch.testing.assert_close(predict(held, BATCH), predict(plain, BATCH))
    tensors["convs.1.weight"].mul_(2)  # the module's own
    torch.testing.assert_close(predict(held, BATCH), predict(plain, BATCH))


def test_small_tensors_are_copies() -> None:
    plain = OURS["gcn"]((5, 4))
    tensors = {name: tensor.detach() for name, tensor in named_tensors(plain).items()}
    with torch.device("meta"):
        meta = OURS["gcn"]((5, 4))
    held = held_model(meta, tensors)
    tensors["convs.0.bias"].fill_(9)
    assert not bool((named_tensors(held)["convs.0.bias"] == 9).any())


def test_another_model_s_tensors_are_refused() -> None:
    with torch.device("meta"):
        meta = OURS["gcn"]((5, 4))
    with refused("'convs.0.weight'"):
        held_model(meta, {name: t.detach() for name, t in named_tensors(OURS["gcn"]((6, 4))).items()})
