"""What a program has set in torch around `fit` does not change the result, or is refused."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg

from gistgnn import GIST
from gistgnn.graphs import Graph
from tests.helpers.fitting import same, theta
from tests.helpers.models import C, F, tiny_graph
from tests.helpers.refusals import refused


@contextmanager
def having(set_value: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    set_value(value)
    try:
        yield
    finally:
        set_value(before)


SURROUNDINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "gradients off": lambda: having(torch.set_grad_enabled, False, True),
    "deterministic": lambda: having(torch.use_deterministic_algorithms, True, False),
    "a default device": lambda: having(torch.set_default_device, "cpu", None),
}


def trainer() -> GIST:
    return GIST(lambda width: pyg.models.GCN(F, width, 2, C), 8, 2)


def trained(gist: GIST, graph: Graph) -> dict[str, Any]:
    gist.fit(graph, epochs=6, local_steps=1, standardise=True, progress=False)
    return theta(gist)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_is_set_around_fit_does_not_change_the_result(name: str) -> None:
    expected = trained(trainer(), tiny_graph())
    with SURROUNDINGS[name]():
        assert same(trained(trainer(), tiny_graph()), expected)
        begun = trainer()
        graph = tiny_graph()
        begun.model()
        assert same(trained(begun, graph), expected)
    assert same(trained(begun, graph), expected), "what was made there trains elsewhere"


def test_what_no_model_can_train_with_is_refused() -> None:
    for kind in (torch.float64, torch.bfloat16):
        gist = trainer()
        with having(torch.set_default_dtype, kind, torch.float32), refused(str(kind), "float32"):
            trained(gist, tiny_graph())
        with having(torch.set_default_dtype, kind, torch.float32), refused(str(kind), "float32"):
            trainer()
    with having(torch.set_default_device, "meta", None), refused("meta"):
        trainer()
    for device in ("meta", torch.device("meta")):
        with refused("device is", "meta", "expected cpu, cuda or cuda:N"):
            GIST(lambda width: pyg.models.GCN(F, width, 2, C), 8, 2, device=device)
    tried: list[int] = []

    def counted(parameters: Any, lr: float) -> torch.optim.Optimizer:
        tried.append(1)
        return torch.optim.Muon(parameters, lr=lr)

    with refused("the optimizer", "convs.0.bias"):
        trainer().fit(tiny_graph(), epochs=1, optimizer=counted, progress=False)
    assert tried


def test_a_function_by_name_is_imported_once_and_at_the_start(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedules.py").write_text("def falling(progress):\n    return 1 - progress\n")
    imported: list[str] = []
    from gistgnn.training import names

    resolve_name = names.resolve_name

    def counted(text: str) -> Any:
        imported.append(text)
        return resolve_name(text)

    monkeypatch.setattr(names, "resolve_name", counted)
    monkeypatch.syspath_prepend(tmp_path)
    runs = {}
    for epochs in (6, 60):
        imported.clear()
        gist = trainer()
        result = gist.fit(tiny_graph(), epochs=epochs, schedule="schedules:falling", progress=False)
        runs[epochs] = len(imported)
        assert result.config["training"]["schedule"] == "schedules:falling"
    assert runs[6] == runs[60], "the number of imports does not follow the number of steps"
    for wrong in (
        {"schedule": "schedules:rising"},
        {"loss": "nowhere:loss"},
        {"optimizer": "nowhere:make"},
    ):
        with refused("cannot be imported", next(iter(wrong.values()))):
            trainer().fit("no graph", epochs=1, progress=False, **wrong)  # type: ignore[arg-type, call-overload]


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path: Any) -> None:
    from gistgnn.training.names import find_named

    functions = []
    for number, folder in enumerate(("one", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside_it.py").write_text(f"NUMBER = {number}\n")
        text = "from beside_it import NUMBER\n\n\ndef factor(progress):\n    return NUMBER\n"
        (tmp_path / folder / "mine.py").write_text(text)
        functions.append(find_named("schedule", f"{tmp_path}/{folder}/mine.py:factor"))
    assert [function(0.0) for function in functions] == [0, 1]
    assert functions[0].__module__ != functions[1].__module__
    assert find_named("schedule", f"{tmp_path}/one/mine.py:factor") is functions[0]
