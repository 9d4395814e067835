"""Tensors, and other values in their place, that are no plain dense numbers."""

from random import Random
from typing import Any


def odd_tensor(rng: Random, plain: Any) -> tuple[str, Any]:
    """Return what is odd, and a value to stand for a plain tensor."""
    import torch

    size = list(plain.shape)
    makers: dict[str, Any] = {
        "meta": lambda: plain.to("meta"),
        "huge meta": lambda: torch.empty(2**40, 2, device="meta"),
        "quantised": lambda: torch.quantize_per_tensor(plain.float(), 1.0, 0, torch.qint8),
        "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        "jagged": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
        "float8": lambda: plain.to(torch.float8_e4m3fn),
        "float4": lambda: torch.empty(size, dtype=torch.float4_e2m1fn_x2),
        "bits8": lambda: torch.empty(size, dtype=torch.bits8),
        "uint4": lambda: torch.empty(size, dtype=torch.uint4),
        "terabytes": lambda: torch.zeros(1, 1).expand(2**20, 2**20),
        "long": lambda: torch.zeros(1, dtype=plain.dtype).expand(2**45),
        "expanded": lambda: plain[:1].expand(size),
        "coo": lambda: plain.to_sparse(),
        "csr": lambda: torch.eye(40).to_sparse_csr(),
        "complex": lambda: plain.to(torch.complex64),
        "conjugate": lambda: plain.to(torch.complex64).conj(),
        "parameter": lambda: torch.nn.Parameter(plain.float()),
        "uint16": lambda: plain.to(torch.uint16),
        "uint64": lambda: torch.full(size, 2**63 - 1, dtype=torch.int64).view(torch.uint64),
        "minus one as uint64": lambda: torch.full(size, -1, dtype=torch.int64).view(torch.uint64),
        "bfloat16": lambda: plain.to(torch.bfloat16),
        "bool": lambda: plain.bool(),
        "int8": lambda: plain.to(torch.int8),
        "float": lambda: plain.double(),
        "nan": lambda: torch.full(size, float("nan")),
        "huge numbers": lambda: torch.full(size, 1e300, dtype=torch.float64),
        "transposed": lambda: plain.mT if plain.dim() > 1 else plain[None].mT,
        "empty": lambda: plain[:0],
        "scalar": lambda: torch.tensor(1),
        "strided": lambda: torch.stack([plain, plain], -1)[..., 0],
        "text": lambda: "text",
        "None": lambda: None,
        "list": lambda: plain.tolist(),
        "ragged list": lambda: [[1], [1, 2]],
        "dictionary": lambda: {"a": plain},
        "number": lambda: 10**30,
        "deep list": lambda: _deep(900),
        "tensors in a list": lambda: [plain, plain],
        "storage": lambda: plain.untyped_storage(),
        "size": lambda: plain.shape,
        "dtype": lambda: plain.dtype,
    }
    what = rng.choice(list(makers))
    return what, makers[what]()


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value
