"""BLAS threads: one for small products, the user's number if set."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from runtime import blas
from runtime.blas import BlasThreads, with_few_threads


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that were set, of a library with four."""
    numbers: list[int] = []
    for variable in blas.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setattr(blas, "blas_threads", lambda: BlasThreads(numbers.append, 4))
    monkeypatch.setenv("FLUID_TARGET", "numpy")
    return numbers


def run(width: int, rows: int) -> Any:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
    ):
        y = fluid.layers.fc(fluid.data("x", [None, width]), width)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        return executor.run(feed={"x": np.ones((rows, width), "float32")}, fetch_list=[y])


def test_steps_of_small_products_take_one_thread(written: list[int]) -> None:
    run(256, 256)
    assert written == [1, 4] * 2  # the startup program is one


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
def test_native_kernels_leave_the_threads_of_blas_alone(
    written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_TARGET", "native")
    run(256, 256)
    assert written == []


def test_a_step_of_a_large_product_takes_them_all(written: list[int]) -> None:
    run(1024, 128)
    assert written == [1, 4]  # the startup program's


@pytest.mark.parametrize("name", [variable.name for variable in blas.VARIABLES])
def test_a_number_that_the_user_set_holds(
    written: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "2")
    run(8, 4)
    assert written == []


def test_a_limit_holds_for_every_step(written: list[int]) -> None:
    library = BlasThreads(written.append, 4)
    step = library.one(lambda x: x + 1)
    assert library.limit(1) == 4
    assert step(1) == 2
    assert library.limit(4) == 1
    assert step(1) == 2
    assert written == [1, 4, 1, 4]


def test_blas_threads_are_restored_after_a_failing_step(written: list[int]) -> None:
    step = with_few_threads(lambda: 1 // 0, [])
    with pytest.raises(ZeroDivisionError):
        step()
    assert written == [1, 4]


def test_a_product_of_sizes_at_the_limit_is_small(written: list[int]) -> None:
    def step() -> None: ...

    assert with_few_threads(step, [1 << 10, 1 << 20, 1 << 20]) is not step
    assert with_few_threads(step, [(1 << 10) + 1, 1 << 20, 1 << 20]) is step


def test_the_library_of_numpy_is_found() -> None:
    result = blas.blas_threads()
    assert result is None or result.most >= 1


def test_products_run_on_one_thread_as_long_as_anyone_shares_the_cores() -> None:
    written: list[int] = []
    threads = blas.BlasThreads(written.append, 4)
    threads.share()
    threads.share()
    threads.unshare()
    assert threads.most == 1
    threads.unshare()
    threads.share()
    threads.unshare()
    assert threads.most == 4 and written == [1, 4, 1, 4]
