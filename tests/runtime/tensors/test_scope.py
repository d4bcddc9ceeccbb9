"""Scope: look-up through parents, and a generation that changes when arrays do."""

import gc
import weakref

import numpy as np
import pytest

from runtime.device import CPUPlace
from runtime.tensors.scope import Scope

CPU = CPUPlace()


def put(scope: Scope, name: str, values: object) -> None:
    scope.var(name).get_tensor().set(values, CPU)


def test_var_makes_a_variable_once() -> None:
    scope = Scope()
    assert scope.find_var("w") is None
    assert scope.var("w") is scope.var("w") is scope.find_var("w")
    assert not scope.var("w").get_tensor()._is_initialized()
    assert scope.local_var_names() == ["w"]


def test_a_kid_sees_its_parents_and_not_the_other_way() -> None:
    scope = Scope()
    grandkid = scope.new_scope().new_scope()
    put(scope, "w", [1.0])
    assert grandkid.find_var("w") is scope.find_var("w")
    put(grandkid, "h", [2.0])
    assert scope.find_var("h") is None


def test_var_in_a_kid_hides_the_parents() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    kid = scope.new_scope()
    assert kid.var("w") is not scope.var("w")
    assert kid.find_var("w") is kid.var("w")
    assert kid.names() == ["w"]


def test_kids_are_listed() -> None:
    scope = Scope()
    kid = scope.new_scope()
    assert scope._kids() == [kid]
    scope.drop_kids()
    assert scope._kids() == []


def test_drop_kids_empties_them() -> None:
    scope = Scope()
    kid = scope.new_scope()
    grandkid = kid.new_scope()
    put(scope, "w", [1.0])
    put(kid, "h", [1.0])
    put(grandkid, "g", [1.0])
    scope.drop_kids()
    assert [kid.find_var("h"), grandkid.find_var("g")] == [None, None]
    assert grandkid.find_var("w") is not None


def test_erase_forgets_local_variables() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    before = scope.generation
    scope.erase(["w", "unknown"])
    assert scope.find_var("w") is None and scope.generation > before


def test_generation_is_constant_while_arrays_stay() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    before = scope.generation
    put(scope, "w", [2.0])
    scope.find_var("w")
    np.array(scope.var("w").get_tensor())
    assert scope.generation == before


@pytest.mark.parametrize("change", ["replace", "create", "hide", "adopt"])
def test_generation_grows_in_the_whole_family(change: str) -> None:
    scope = Scope()
    kid = scope.new_scope()
    put(scope, "w", [1.0])
    before = kid.generation
    changes = {
        "replace": lambda: put(scope, "w", [1.0, 2.0]),
        "create": lambda: put(scope, "b", [1.0]),
        "hide": lambda: kid.var("w"),
        "adopt": lambda: scope.arrays().update(w=np.zeros(1)),
    }
    changes[change]()
    assert kid.generation > before
    assert kid.generation == scope.generation


def test_arrays_are_the_storage_of_tensors() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    arrays = scope.arrays()
    arrays["w"][0] = 5
    assert np.array(scope.var("w").get_tensor()).tolist() == [5]
    created = np.zeros(2)
    arrays["b"] = created
    assert scope.var("b").get_tensor().array is created


def test_arrays_show_what_is_set_here_and_in_parents() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    scope.var("empty")
    kid = scope.new_scope()
    put(kid, "h", [1.0])
    assert list(kid.arrays()) == ["h", "w"] and len(kid.arrays()) == 2
    assert "empty" not in kid.arrays()
    for name in ("empty", "unknown"):
        with pytest.raises(KeyError, match=name):
            kid.arrays()[name]


def test_arrays_set_the_variable_that_is_found() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    kid = scope.new_scope()
    kid.arrays()["w"] = np.zeros(3)
    assert scope.var("w").get_tensor().shape() == [3]


def test_deleting_an_array_erases_the_local_variable() -> None:
    scope = Scope()
    put(scope, "w", [1.0])
    with pytest.raises(KeyError, match="w"):
        del scope.new_scope().arrays()["w"]
    del scope.arrays()["w"]
    assert scope.find_var("w") is None


def test_scope_is_freed_without_references() -> None:
    gc.disable()
    try:
        scope = Scope()
        put(scope, "w", [1.0])
        scope.new_scope()
        gone = weakref.ref(scope)
        del scope
        assert gone() is None
    finally:
        gc.enable()
