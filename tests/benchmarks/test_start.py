from benchmarks.start import ENDS, started


def test_both_moments_are_found() -> None:
    seconds = started("digits")
    assert list(seconds) == list(ENDS)
    assert seconds["first line"] < seconds["first step done"]
