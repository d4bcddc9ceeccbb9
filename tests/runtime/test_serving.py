"""What threads share and what they do not: modules, added parameters, lanes."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler.codegen.module import Module
from compiler.errors import ShapeError
from runtime.executor import Executor
from runtime.program_source import ProgramSource
from runtime.serving import Lanes, Library
from runtime.tensors.scope import Scope


class Plain:
    """A program as far as lanes ask."""

    version = 0


class Compiler:
    """Creates modules that only have a name; adds `added` to the parameters."""

    def __init__(self, added: Callable[[Any], np.ndarray] | None = None) -> None:
        self.added = added
        self.asked: list[Any] = []

    def __call__(self, program: Any, pattern: Any, fetch: Any, params: Any) -> Module:
        self.asked.append(pattern)
        if self.added is not None:
            params["w@bn"] = self.added(pattern)
        return Module(str(pattern), "numpy", str(pattern), (), (), (), (), ())


def scope_with(**arrays: np.ndarray) -> Scope:
    scope = Scope()
    for name, array in arrays.items():
        scope.arrays()[name] = array
    return scope


def test_a_module_is_made_once_and_finds_the_parameters():
    weights, compiler = np.ones(3), Compiler()
    library = Library(compiler, scope := scope_with(w=weights))
    one = library.module(Plain(), {"x": ("N",)}, ["y"])
    assert library.module(Plain(), {"x": ("N",)}, ["y"]) is one
    assert library.module(Plain(), {"x": (1,)}, ["y"]) is not one
    assert len(compiler.asked) == len(library) == 2
    assert library.params(one, scope)["w"] is weights


@pytest.mark.parametrize(("added", "nbytes"), [(lambda _: np.ones(4), 32), (len, 16)])
def test_equal_added_parameters_are_shared(added: Any, nbytes: int):
    patterns = [{"x": ("N",)}, {"x": (1,), "y": (1,)}]
    library = Library(Compiler(lambda pattern: np.array(added(pattern), float)), scope := Scope())
    modules = [library.module(Plain(), pattern, []) for pattern in patterns]
    first, second = (library.params(module, scope)["w@bn"] for module in modules)
    np.testing.assert_array_equal(second, added(patterns[1]))
    assert (first is second) == (nbytes == 32)
    assert library.nbytes() == nbytes
    assert "w@bn" not in scope.arrays()


def test_sizes_that_do_not_fit_are_not_compiled_again():
    def fail(pattern: Any) -> Any:
        raise ShapeError("no")

    library = Library(compiler := Compiler(fail), Scope())
    for _ in range(2):
        with pytest.raises(ShapeError, match="no"):
            library.module(Plain(), {"x": ("N",)}, [])
    assert (len(compiler.asked), len(library)) == (1, 0)


class Uncompiled(ProgramSource[Any]):
    """Programs that are not compiled."""


class Lane(Executor[Any]):
    """Runs that wait for each other; counts how many are under way."""

    under_way, most = 0, 0
    lock = threading.Lock()

    def __init__(self, barrier: threading.Barrier | None = None) -> None:
        super().__init__(Uncompiled())
        self.barrier = barrier

    def run(self, *_: Any) -> list[Any]:
        with Lane.lock:
            Lane.under_way += 1
            Lane.most = max(Lane.most, Lane.under_way)
        if self.barrier is not None:
            self.barrier.wait(timeout=10)
        with Lane.lock:
            Lane.under_way -= 1
        return [self]


def lanes(barrier: threading.Barrier | None, limit: int | None = None) -> Lanes[Any]:
    Lane.most = 0
    return Lanes(lambda: Lane(barrier), Plain(), (), Scope(), limit)


def in_threads(count: int, run: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(run())) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=20)
    return results


def test_runs_one_after_the_other_are_in_one_lane_whatever_their_thread():
    runs = lanes(None)
    used = {id(in_threads(1, lambda: runs.run({}))[0][0]) for _ in range(5)}
    assert (len(used), runs.nbytes()) == (1, [0])


def test_runs_that_are_under_way_together_have_a_lane_each():
    runs = lanes(threading.Barrier(4))
    used = in_threads(4, lambda: runs.run({})[0])
    assert len(set(map(id, used))) == len(runs.nbytes()) == 4
    del used
    runs.release()
    assert runs.nbytes() == []


def test_no_more_runs_than_the_limit_are_under_way():
    runs = lanes(None, limit=1)
    assert len(in_threads(8, lambda: runs.run({}))) == 8
    assert (Lane.most, len(runs.nbytes())) == (1, 1)


def test_a_run_that_fails_leaves_its_lane():
    class Failing(Lane):
        def run(self, *_: Any) -> list[Any]:
            raise ValueError("no")

    runs = Lanes(Failing, Plain(), (), Scope(), 1)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            runs.run({})
    assert len(runs.nbytes()) == 1
