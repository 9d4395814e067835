"""The operations and bytes that a step of a model needs at least."""

from dataclasses import dataclass

from benchmarks.case import Case

FLOAT, INDEX = 4, 4  # bytes


@dataclass(frozen=True)
class Product:
    """A matrix product [rows, inner] [inner, columns] of a layer, with its role in a step."""

    layer: int
    role: str  # "forward": X Wᵀ; "weights": Gᵀ X; "inputs": G W
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """One multiplication and one addition for every pair."""
        return 2 * self.rows * self.inner * self.columns

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """The properties that its speed depends on."""
        return self.role, self.rows, self.inner, self.columns


@dataclass(frozen=True)
class Counts:
    """The work of one step of one model or sub-GCN.

    Args:
        products: products of features and weights, forward and backward.
        sparse_bytes: bytes that the products with the graph's operators read and write once.
        adam_bytes: bytes that Adam reads and writes.
        parameters: number of the model's parameters.
    """

    products: list[Product]
    sparse_bytes: int
    adam_bytes: int
    parameters: int

    @property
    def flops(self) -> int:
        """Operations of all products."""
        return sum(product.flops for product in self.products)


def count(case: Case, widths: tuple[int, ...], nodes: int, edges: int) -> Counts:
    """Count the work of a step with these widths on a batch of this size."""
    layers = _layers(case, widths)
    products = []
    for i, (d_in, d_out) in enumerate(layers):
        products.append(Product(i + 1, "forward", nodes, d_in, d_out))
        products.append(Product(i + 1, "weights", d_out, nodes, d_in))
        if i:  # features need no gradient
            products.append(Product(i + 1, "inputs", nodes, d_out, d_in))
    parameters = _parameters(case, layers)
    # Adam reads a parameter, its gradient and two moments, and writes all of them but the gradient.
    return Counts(products, _sparse_bytes(case, layers, nodes, edges), 7 * FLOAT * parameters, parameters)


def _layers(case: Case, widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the inputs and outputs of every layer's weight."""
    heads = case.heads if case.model == "gat" else 1
    copies = 2 if case.model == "graphsage" else 1  # [H, Ā H]
    ins = [case.features, *(heads * width for width in widths)]
    outs = [*(heads * width for width in widths), heads * case.classes]
    return [(copies * d_in, d_out) for d_in, d_out in zip(ins, outs, strict=True)]


def _parameters(case: Case, layers: list[tuple[int, int]]) -> int:
    weights = sum(d_in * d_out for d_in, d_out in layers)
    outputs = sum(d_out for _, d_out in layers)
    if case.model != "gat":
        return weights + outputs
    biases = outputs - (case.heads - 1) * case.classes  # the last layer's bias is added to the heads' mean
    return weights + 2 * outputs + biases


def _sparse_bytes(case: Case, layers: list[tuple[int, int]], nodes: int, edges: int) -> int:
    """Count the bytes of sparse products: each reads its dense factor and its entries, and writes its result, once."""
    entries = edges if case.model == "graphsage" else edges + nodes

    def once(width: int, values: int = 1) -> int:
        return 2 * nodes * width * FLOAT + entries * (INDEX + values * FLOAT)

    if case.model == "gat":
        # Forward; backward to the features; backward to the coefficients, which reads two dense factors.
        return sum(3 * once(d_out, case.heads) for _, d_out in layers)
    copies = 2 if case.model == "graphsage" else 1
    # Features need no gradient. If their product is precomputed for the whole graph, rows of it are copied.
    total = 2 * nodes * case.features * FLOAT if case.precompute else once(case.features)
    return total + sum(2 * once(min(d_in // copies, d_out)) for d_in, d_out in layers[1:])
