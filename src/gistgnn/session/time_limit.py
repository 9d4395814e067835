"""Ends a run in time."""

import time

from gistgnn.errors import InputError
from gistgnn.utils.checks import LONGEST, check_number


class TimeLimit:
    """Says when a run has to end, so that its last evaluation ends within a number of seconds.

    Args:
        seconds: from `begun` on; None: there is no limit.
        begun: when the run began, by `time.perf_counter`.
        budget: the run has a budget, which limits its time as well.

    Raises:
        InputError: the number is not above 0, or there are two limits.
    """

    def __init__(self, seconds: float | None, begun: float, *, budget: bool = False) -> None:
        if seconds is not None:
            check_number("max_seconds", seconds, above=True, below=LONGEST)
            if budget:
                raise InputError(f"max_seconds is {seconds:g}, but a budget limits the time as well: leave one out")
        self.set = seconds is not None
        self._end = begun + (seconds or 0.0)
        self._round = self._evaluation = 0.0  # the longest ones so far
        self._begun = time.perf_counter()  # of the round

    def is_up(self) -> bool:
        """Whether there is no time for one more round and its evaluation; asked at the end of a round."""
        now = time.perf_counter()
        self._round = max(self._round, now - self._begun)
        return self.set and now + self._round + 2 * self._evaluation > self._end

    def evaluated(self, seconds: float) -> None:
        """Note how long an evaluation took."""
        self._evaluation = max(self._evaluation, seconds)

    def begin_round(self) -> None:
        """Note that the next round begins."""
        self._begun = time.perf_counter()
