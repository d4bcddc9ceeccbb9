"""Products with few rows have smaller tiles, chosen when their number is bound."""

import numpy as np
import pytest

import compiler
import fluid
from runtime.gpu.launches import by_name
from tools.ptx.step_counters import count_step

pytest.importorskip("triton")
pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def product(shape, axes=1):
    """A module of a product of a symbolic number of rows."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", shape)
        weight = fluid.layers.create_parameter([32, 24], "float32", name="w")
        y = fluid.layers.mul(x, weight, x_num_col_dims=axes)
    return compiler.compile(main, feed=["x"], fetch=[y], target="triton")


def sides(module):
    return [kernel.constants["ROWS"] for kernel in module.kernels]


@pytest.mark.parametrize(("shape", "axes", "found"), [
    ([None, 32], 1, [128, 64, 32, 16]), ([None, 20, 32], 2, [128, 64, 32]),
    ([None, 6081, 32], 2, [128, 64]), ([None, 12161, 32], 2, [128]),
    ([64, 32], 1, [32]), ([8, 32], 1, [16]), ([20000, 32], 1, [128]),
])  # fmt: skip
def test_variants_are_those_that_a_number_of_rows_may_need(shape, axes, found):
    assert sides(product(shape, axes)) == found


def test_the_variant_is_chosen_when_sizes_are_bound():
    module, values = product([None, 32]), np.random.default_rng(0)
    weight = values.random((32, 24), "f4")
    counts = {}
    for rows in (1, 16, 17, 33, 130):
        x = values.random((rows, 32), "f4")
        counts[rows] = sum(
            count_step(module, {"x": x}, {"w": weight}).kernels["mul"].instructions.values()
        )
    assert counts[1] == counts[16] < counts[17] < counts[33] < counts[130]
    assert counts[33] > 2 * counts[16]


def test_numbers_do_not_depend_on_the_variant(monkeypatch):
    monkeypatch.setenv("FLUID_GPU", "ptx:80")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        y = fluid.layers.fc(fluid.data("x", [None, 32]), 24)
    executor, x = (
        fluid.Executor(fluid.CUDAPlace(0)),
        np.random.default_rng(0).random((40, 32), "f4"),
    )
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        (whole,) = executor.run(main, {"x": x}, [y])
        for rows in (1, 20):
            (result,) = executor.run(main, {"x": x[:rows]}, [y])
            np.testing.assert_array_equal(result, whole[:rows])


def test_launchers_of_one_name_are_variants_of_the_first():
    class One:
        def __init__(self, name):
            self.row, self.variants = type("Row", (), {"kernel": name}), []

    a, b, c = One("mul"), One("relu"), One("mul")
    assert by_name([a, b, c]) == {"mul": a, "relu": b} and a.variants == [c] and not b.variants
