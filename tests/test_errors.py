"""The errors of gistgnn, and who may catch them."""

import pickle

from gistgnn.errors import DivergedError, GistError, InputError, RankLostError, reason


def test_every_error_is_a_gist_error() -> None:
    assert all(issubclass(kind, GistError) for kind in (InputError, DivergedError, RankLostError))
    assert issubclass(InputError, ValueError)
    assert not any(issubclass(kind, InputError) for kind in (DivergedError, RankLostError))


def test_divergence_travels_between_processes() -> None:
    error = DivergedError(2, "the loss is nan")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert "diverged in round 3: the loss is nan" in str(again)
    assert (again.round_number, again.what, again.result) == (2, "the loss is nan", None)


def test_reasons_are_one_line() -> None:
    assert reason(KeyError("a")) == "KeyError: 'a'"
    assert reason(ValueError()) == "ValueError"
    assert reason(ValueError("a\n  b " + 300 * "c")) == f"ValueError: {('a b ' + 300 * 'c')[:160]}..."
