"""The operations and bytes that a step of a model cannot do without."""

from dataclasses import dataclass

from benchmarks.case import Case

FLOAT, INDEX = 4, 4  # bytes


@dataclass(frozen=True)
class Product:
    """A matrix product [rows, inner] [inner, columns] of a layer, in the roles that the factors have in a step."""

    layer: int
    role: str  # "forward": X Wᵀ; "weights": Gᵀ X; "inputs": G W
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each pair."""
        return 2 * self.rows * self.inner * self.columns

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """What its speed depends on."""
        return self.role, self.rows, self.inner, self.columns


@dataclass(frozen=True)
class Counts:
    """Of one step of one model, or sub-GCN.

    Args:
        products: of features and weights, forward and backward.
        sparse_bytes: read and written once by the products with the graph's operators.
        adam_bytes: read and written by Adam.
        parameters: of the model.
    """

    products: list[Product]
    sparse_bytes: int
    adam_bytes: int
    parameters: int

    @property
    def flops(self) -> int:
        """Of all products."""
        return sum(product.flops for product in self.products)


def count(case: Case, widths: tuple[int, ...], nodes: int, edges: int) -> Counts:
    """Count a step of the model at these widths on a batch of so many nodes and edges."""
    layers = _layers(case, widths)
    products = []
    for i, (d_in, d_out) in enumerate(layers):
        products.append(Product(i + 1, "forward", nodes, d_in, d_out))
        products.append(Product(i + 1, "weights", d_out, nodes, d_in))
        if i:  # the features are no parameters
            products.append(Product(i + 1, "inputs", nodes, d_out, d_in))
    parameters = _parameters(case, layers)
    # Adam reads a parameter, its gradient and two moments, and writes all but the gradient.
    return Counts(products, _sparse_bytes(case, layers, nodes, edges), 7 * FLOAT * parameters, parameters)


def _layers(case: Case, widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Inputs and outputs of every layer's weight."""
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
    biases = outputs - (case.heads - 1) * case.classes  # the last layer's is of the heads' mean
    return weights + 2 * outputs + biases


def _sparse_bytes(case: Case, layers: list[tuple[int, int]], nodes: int, edges: int) -> int:
    """A product reads and writes its dense factor and result once, and reads the entries."""
    entries = edges if case.model == "graphsage" else edges + nodes

    def once(width: int, values: int = 1) -> int:
        return 2 * nodes * width * FLOAT + entries * (INDEX + values * FLOAT)

    if case.model == "gat":
        # Forward; backward to the features; and to the coefficients, where two dense factors are read.
        return sum(3 * once(d_out, case.heads) for _, d_out in layers)
    copies = 2 if case.model == "graphsage" else 1
    # Features have no gradient; where their product is that of the whole graph, its rows are copied.
    total = 2 * nodes * case.features * FLOAT if case.precompute else once(case.features)
    return total + sum(2 * once(min(d_in // copies, d_out)) for d_in, d_out in layers[1:])
