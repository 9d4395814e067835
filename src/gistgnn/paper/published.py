"""The form of a row of the paper's tables."""

from __future__ import annotations

from dataclasses import dataclass

COMMENTED = "†"  # marks a row that is commented out in the paper's LaTeX source
COMMENTED_NOTE = f"{COMMENTED}: a row that is commented out in the paper's LaTeX source."


@dataclass(frozen=True)
class Published:
    """A row of one of the paper's tables.

    Args:
        f1: in percent.
        time: as the table gives it.
        speedup: over the first row of its group.
        unit: of the time, "s" or "h".
        commented: whether the row is commented out in the paper's source.
    """

    f1: float
    time: float
    speedup: float
    unit: str
    commented: bool = False

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.time * {"s": 1, "h": 3600}[self.unit]

    @property
    def cells(self) -> list[str]:
        """The cells of a table: F1, time and speed-up."""
        mark = COMMENTED if self.commented else ""
        return [f"{self.f1:.2f}{mark}", f"{self.time:.2f} {self.unit}", f"{self.speedup:.2f}x"]


def published_cells(row: Published | None) -> list[str]:
    """Return the cells of a row of the paper; of none, if the paper has no such row."""
    return row.cells if row else ["–", "–", "–"]


def in_seconds(*rows: tuple[float, float, float]) -> tuple[Published, ...]:
    """Return rows from their F1, seconds and speed-up."""
    return tuple(Published(*row, unit="s") for row in rows)


def in_hours(*rows: tuple[float, float, float]) -> tuple[Published, ...]:
    """Return rows from their F1, hours and speed-up."""
    return tuple(Published(*row, unit="h") for row in rows)
