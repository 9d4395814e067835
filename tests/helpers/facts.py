"""What a record says of the graph of a run, without a run."""

from collections.abc import Sequence

from gistgnn.storage.record import GraphFacts


def facts_of(classes: int, *, multi_label: bool, class_names: Sequence[str] = ()) -> GraphFacts:
    """Return the facts of some graph with these classes."""
    return GraphFacts(
        name="some graph",
        nodes=12,
        edges=24,
        features=4,
        classes=classes,
        multi_label=multi_label,
        class_names=list(class_names),
    )
