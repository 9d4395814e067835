"""What the phases of a run take, and the run as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gistgnn.planning.option import Option, evaluations_of, option_of
from gistgnn.planning.rates import Rates
from gistgnn.planning.rehearsal import Rehearsal


@dataclass(frozen=True, kw_only=True)
class PhaseOption(Option):
    """What a phase takes; `seconds` has "phase", too, the phase without evaluations."""

    number: int  # 1, 2, ...
    copies: bool
    epochs: float
    rounds: int
    evaluations: int

    @property
    def name(self) -> str:
        """What messages call the phase."""
        return f"phase {self.number} (m = {self.sub_gcns}{', copies' if self.copies else ''})"


@dataclass(frozen=True)
class Total:
    """What all phases of a run take with one store; sizes in bytes."""

    store: str
    peaks: dict[str, int]  # the most that each place holds in any phase
    lacking: tuple[str, ...]  # the places that have too little in some phase
    rounds: int
    moved: int  # from and to Θ
    evaluations: int
    seconds: float | None  # of all phases and evaluations

    @property
    def fits(self) -> bool:
        """Whether every place has enough in every phase."""
        return not self.lacking

    @classmethod
    def of(cls, phases: Sequence[PhaseOption]) -> Total:
        """Add up the phases of a run."""
        seconds = [each.seconds["total"] for each in phases if each.seconds]
        return cls(
            store=phases[0].store,
            peaks={place: max(each.peaks[place] for each in phases) for place in phases[0].peaks},
            lacking=tuple(dict.fromkeys(place for each in phases for place in each.lacking)),
            rounds=sum(each.rounds for each in phases),
            moved=sum(each.rounds * each.moved_by_all for each in phases),
            evaluations=sum(each.evaluations for each in phases),
            seconds=sum(seconds) if seconds else None,
        )


def phase_options(
    store: str, phases: Sequence[Rehearsal], limits: Mapping[str, int], rates: Rates | None
) -> list[PhaseOption]:
    """Return what the phases of a rehearsed run take; the arguments are those of `option_of`."""
    options = []
    for number, found in enumerate(phases, 1):
        option = option_of(store, found, limits, rates)
        seconds = option.seconds and {**option.seconds, "phase": found.epochs * option.seconds["epoch"]}
        own = PhaseOption(
            **vars(option) | {"seconds": seconds},
            number=number,
            copies=found.first.copies,
            epochs=found.epochs,
            rounds=len(found.rounds),
            evaluations=evaluations_of(found),
        )
        options.append(own)
    return options
