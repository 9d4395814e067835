"""A phase of a training run: a part with its own m and learning rate."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gistgnn.errors import InputError
from gistgnn.utils.checks import MOST, check_count, check_flag, check_number, shown


@dataclass(frozen=True)
class Phase:
    """A part of a run with its own m and learning rate. Every phase begins with new moments.

    Args:
        sub_gcns: m.
        epochs: E, passes over the training nodes, as in `Training`; a fraction is possible.
        lr: learning rate at the start of the phase; None: as in `Training`. The schedule follows the phase's progress.
        schedule: None: as in `Training`.
        redraw_every: None: as in `Training`.
        copies: only sub-GCN 0 trains, and its parameters are written to all m blocks: Θ is m copies of one narrow
            model. It costs 1/m of the steps. Blocks are not redrawn.

    Raises:
        InputError: a value is out of its range.
    """

    sub_gcns: int
    epochs: float
    lr: float | None = None
    schedule: str | None = None
    redraw_every: int | None = None
    copies: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        check_count("sub_gcns", self.sub_gcns)
        check_number("epochs", self.epochs, above=True, below=MOST)
        if self.redraw_every is not None:
            check_count("redraw_every", self.redraw_every, least=0)
        check_flag("copies", self.copies)
        if self.copies and self.redraw_every:
            raise InputError(
                f"redraw_every is {self.redraw_every} in a phase of copies, which keep their blocks: use 0"
            )


def as_phases(phases: Any) -> tuple[Phase, ...]:
    """Return phases as a tuple; raise InputError if they are no list of `Phase`."""
    if not isinstance(phases, (list, tuple)) or not all(isinstance(phase, Phase) for phase in phases):
        raise InputError(f"phases is {shown(phases)}, expected a list of Phase, such as [Phase(sub_gcns=8, epochs=20)]")
    return tuple(phases)


def check_kept_blocks(phases: Iterable[tuple[int, int]]) -> None:
    """Raise InputError if successive phases keep their blocks, and these are not nested.

    Args:
        phases: m of every phase, and the rounds between two draws of its blocks; 0: they are kept.
    """
    kept: set[int] = set()  # m of the phases that have the same draw
    for sub_gcns, redraw_every in phases:
        kept = kept if redraw_every == 0 else set()
        for other in sorted(kept):
            few, many = sorted((other, sub_gcns))
            if many % few:
                raise InputError(
                    f"the phases have {other} and {sub_gcns} sub-GCNs, but the blocks are kept: use numbers of which "
                    "one divides the other, or redraw_every=1"
                )
        kept.add(sub_gcns)
