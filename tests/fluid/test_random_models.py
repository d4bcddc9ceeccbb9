"""Random models of uneven shapes compute the same on every target, optimised or not.

`python tools/verify/random_models.py` does the same with a thousand.
"""

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from tests.fluid.random_models import WAYS, difference, outcome, recorded

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

FAST = range(2)
SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in range(2, 40)]


@pytest.fixture(autouse=True)
def _caches_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))


@pytest.mark.parametrize("number", [*FAST, *SLOW])
def test_every_way_computes_the_same(number: int) -> None:
    model = recorded(number)
    results = {way: outcome(model, way) for way in WAYS}
    for way, each in results.items():
        assert not difference(each, results["numpy"]), way
    checked, native = results["native with checks"], results["native"]
    assert all(np.array_equal(checked[name], array) for name, array in native.items())


def test_a_model_is_determined_by_its_number() -> None:
    first, second = recorded(7), recorded(7)
    assert first.main.to_string(True) == second.main.to_string(True)


def test_a_difference_is_named() -> None:
    wanted = {"y": np.array([1.0, 100.0], "f4"), "z": np.zeros(2, "f4")}
    assert difference(wanted, wanted) == ""
    assert difference({**wanted, "y": wanted["y"] + 0.1}, wanted) == ""
    assert difference({**wanted, "y": wanted["y"] + 1}, wanted).startswith("y differs by 1.0e-02")
    assert difference({**wanted, "z": np.zeros(3, "f4")}, wanted).startswith("z has shape (3,)")
    nan = {**wanted, "z": np.full(2, np.nan, "f4")}
    assert difference(nan, wanted) == "z is NaN in other places"
