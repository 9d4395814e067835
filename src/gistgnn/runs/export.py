"""The files that `gistgnn export` writes: a trained model that runs without gistgnn.

A new form is a function that writes it, and a line in `gistgnn.runs.forms`.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gistgnn import __version__
from gistgnn.errors import InputError, users_code
from gistgnn.fit.result import has_edge_weight
from gistgnn.nn.pyg_models import convert, input_names, to_pyg
from gistgnn.storage.record import RESULT, Record
from gistgnn.storage.tensors import write_tensors
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.formats import size

CODE = "model.py"
WEIGHTS = "model.safetensors"
ABOUT = "about.json"  # of a .pt2, and "about" of an .onnx
# Torch puts the weights of a larger model into a file of their own.
_LARGEST_ONNX = 3 * 2**29  # bytes

_EXPLANATION = '''"""A model that gistgnn has trained, for torch, torch_geometric and safetensors.

    from model import load

    {use}

x: [N, F] are the features as the graph has them. edge_index: [2, E] are the sources and the targets
of all edges; an undirected edge is two.{weights}
"""
'''
_CLASSES = """logits = load()({inputs})  # [N, C]
    probabilities = (logits / ABOUT["temperature"]).{function}"""
_NUMBERS = "predictions = load()({inputs})  # [N, C]"
_LOAD = f'''def load() -> nn.Module:
    """Return the trained model, in evaluation mode."""
    model = build()
    weights = load_file(Path(__file__).with_name("{WEIGHTS}"))
    model.load_state_dict(weights, assign=True)
    return model.eval()
'''


class Form(NamedTuple):
    """A form of exported models.

    Attributes:
        suffix: that the path has after the run's name.
        files: the names of the files in the folder that is the path; empty: the path is the file.
        write: writes a model, given the path, the model, and the facts that the files state.
    """

    suffix: str
    files: tuple[str, ...]
    write: Callable[[Path, nn.Module, dict[str, Any]], None]


def export(
    run: Path,
    record: Record,
    model: nn.Module,
    form: Form,
    out: Path | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the model of a run in a form that needs no gistgnn.

    Args:
        run: the folder of the run.
        record: what the run's result.json holds.
        model: the run's.
        form: of the files.
        out: the file, or the folder of "pyg". Defaults to one beside the run's folder.
        overwrite: replace files of these names.

    Returns:
        "files", the paths of what was written, and the facts that the files state.

    Raises:
        InputError: there are such files, they cannot be written, or the model cannot be exported.
    """
    # The run may be ".", which has neither a name nor a parent of its own.
    run = run if run.name not in ("", "..") else run.resolve()
    out = out or run.parent / f"{run.resolve().name}{form.suffix}"
    if not form.files and out.suffix != form.suffix:
        raise InputError(f"out is {out}, expected a name that ends in {form.suffix}")
    if (out / RESULT).exists():
        raise InputError(f"{out} is the folder of a run: choose another --out")
    files = [out / name for name in form.files] or [out]
    for file in files:
        if file.exists() and not overwrite:
            raise InputError(f"{file} exists: choose another --out, or add --overwrite")
    graph = record.graph
    is_weighted = has_edge_weight(record.fingerprint)
    about = {
        "gistgnn": __version__,
        "run": record.run,
        "graph": graph.name,
        "inputs": list(input_names(model, edge_weight=is_weighted)),
        "features": graph.features,
        "classes": graph.classes,
        "class_names": graph.class_names,
        "multi_label": graph.multi_label,
        "regression": graph.regression,
        "temperature": record.temperature,
    }
    form.write(out, model, about)
    return {"files": [str(file) for file in files], **about}


def _write_pyg(folder: Path, model: nn.Module, about: dict[str, Any]) -> None:
    """Write the Python that builds the model of PyG's modules, and its weights."""
    conversion = convert(model, edge_weight="edge_weight" in about["inputs"])
    use = (_NUMBERS if about["regression"] else _CLASSES).format(
        inputs=", ".join(conversion.inputs),
        function="sigmoid()" if about["multi_label"] else "softmax(dim=1)",
    )
    explanation = _EXPLANATION.format(
        use=use,
        weights=" edge_weight: [E]." if "edge_weight" in conversion.inputs else "",
    )
    imports = ["from safetensors.torch import load_file", *conversion.imports]
    imports.sort(key=lambda line: (line.startswith("from"), line))
    parts = [
        f"{explanation}\nfrom pathlib import Path\n",
        "\n".join(imports),
        "\nABOUT = {",
        *(f"    {name!r}: {value!r}," for name, value in about.items()),
        "}\n",
        *(f"\n{definition}" for definition in [*conversion.definitions, _LOAD]),
    ]
    with replacing(folder / CODE) as code_path:
        code_path.write_text("\n".join(parts), encoding="utf-8")
        with replacing(folder / WEIGHTS) as weights_path:
            write_tensors(weights_path, conversion.tensors)
            # No code stands beside the weights of another model: their names may be the same.
            (folder / CODE).unlink(missing_ok=True)


def _write_torch(path: Path, model: nn.Module, about: dict[str, Any]) -> None:
    """Write the model as a program of ``torch.export``."""
    program = _program_of(model, about)
    buffer = io.BytesIO()  # torch's own writer does not tell why a disk refuses
    torch.export.save(program, buffer, extra_files={ABOUT: json.dumps(about)})
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def _write_onnx(path: Path, model: nn.Module, about: dict[str, Any]) -> None:
    """Write the model in the format of ONNX, by torch's exporter."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise InputError(f"--to onnx needs {names}: pip install 'gistgnn[onnx]'")
    model_bytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    if model_bytes > _LARGEST_ONNX:
        raise InputError(
            f"the model has {size(model_bytes)}, and a file of ONNX at most {size(_LARGEST_ONNX)}: "
            "use --to torch or --to pyg"
        )
    program = _program_of(model, about)
    with users_code("torch cannot write the model as ONNX", "use --to torch"), _without_notes():
        onnx = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            output_names=["logits"],
            dynamic_shapes=_dynamic_shapes(about["inputs"]),
        )
    assert onnx is not None
    onnx.model.metadata_props["about"] = json.dumps(about)
    with replacing(path) as temporary:
        onnx.save(temporary)


def _program_of(model: nn.Module, about: dict[str, Any]) -> ExportedProgram:
    """Return the program of a model, for any numbers of nodes and edges."""
    model = to_pyg(model, edge_weight="edge_weight" in about["inputs"])
    dtype = next(model.parameters()).dtype
    # The program has these sizes nowhere; other ones than 0 and 1 are not taken for constants.
    nodes = 5
    edges = 8
    example = {
        "x": torch.zeros(nodes, about["features"], dtype=dtype),
        "edge_index": torch.arange(2 * edges).view(2, edges) % nodes,
        "edge_weight": torch.ones(edges, dtype=dtype),
    }
    arguments = tuple(example[name] for name in about["inputs"])
    with users_code("torch cannot export the model"), _without_notes():
        program = torch.export.export(
            _Positional(model).eval(), arguments, dynamic_shapes=_dynamic_shapes(about["inputs"])
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it has the paths of this machine's files
    return program


class _Positional(nn.Module):
    """Names the inputs of a program; PyG's `Sequential` takes any."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        arguments = (x, edge_index) if edge_weight is None else (x, edge_index, edge_weight)
        return self.model(*arguments)


def _dynamic_shapes(inputs: list[str]) -> dict[str, Any]:
    nodes = Dim("nodes")
    edges = Dim("edges")
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}, "edge_weight": {0: edges}}
    return {name: shapes[name] for name in inputs}


@contextmanager
def _without_notes() -> Iterator[None]:
    """Suppress what torch prints about its own inner workings."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


PYG = Form("_pyg", (CODE, WEIGHTS), _write_pyg)
TORCH = Form(".pt2", (), _write_torch)
ONNX = Form(".onnx", (), _write_onnx)
