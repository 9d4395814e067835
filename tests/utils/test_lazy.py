import pytest

from gistgnn.utils.lazy import Registry


def test_a_lookup_imports_the_module() -> None:
    numbers = Registry[float]({"pi": "math:pi", "missing": "math:no_such_number"})
    assert numbers["pi"] == pytest.approx(3.14159, abs=1e-5)
    assert list(numbers) == ["pi", "missing"]
    assert len(numbers) == 2
    with pytest.raises(AttributeError):
        numbers["missing"]
    with pytest.raises(KeyError):
        numbers["e"]


def test_an_unknown_public_name() -> None:
    import gistgnn.nn

    with pytest.raises(AttributeError, match=r"module 'gistgnn\.nn' has no attribute 'NoSuchModel'"):
        _ = gistgnn.nn.NoSuchModel
