"""Kernels over elements have one code for all numbers of elements, unless an index matters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fluid
from compiler.codegen.native.element_types import TYPES as ELEMENTS
from compiler.codegen.native.loops import KernelLowering, LoweredKernel
from compiler.codegen.native.loops.lower import lower_one
from compiler.codegen.native.machine import AVX2, Machine
from compiler.driver import compile_stages
from compiler.ir.region import Region
from compiler.ir.types import DType
from tests.codegen.native.loops_support import Case, Guarded, call, operand
from tests.support.compiled_kernels import on_machines

INTEGERS = DType.INT32, DType.INT64, DType.INT8, DType.UINT8, DType.INT16
SIZES = (2, 7, 16, 33, 8191, 8192, 20000)


def update(size: int, factor: float = 0.5, dtype: DType = DType.FP32) -> Case:
    """W -= rate * where(g > 0, g, g * factor), and the updated g, in place."""
    case = Case((size,))
    (i,) = case.indices
    w, g = (case.ref(name, (size,), dtype) for name in "WG")
    rate = case.ref("R", (1,), dtype)[0]
    step = case.k.where(case.k.call("greater", g[i], 0.0), g[i], g[i] * factor)
    case.k.store(w, (i,), w[i] - rate * step)
    case.k.store(g, (i,), step)
    return case


def lowered(lowering: KernelLowering, case: Case) -> LoweredKernel:
    (flat,) = lowering.lower(case.k, lambda shape, dtype: operand("t", shape, dtype))
    return flat


@on_machines
def test_one_code_updates_arrays_of_any_size(machine: Machine) -> None:
    lowering, random, texts = KernelLowering(machine), np.random.default_rng(0), set[str]()
    for size in SIZES:
        flat, alone = lowered(lowering, update(size)), lower_one(update(size).k, machine)
        texts.add(flat.kernel.text())
        assert flat.sizes == [size]
        assert (flat.kernel.units, flat.kernel.work) == (alone.kernel.units, alone.kernel.work)
        arrays = {name: random.standard_normal(size).astype("f4") for name in "WG"}
        arrays["R"] = np.array([0.1], "f4")
        one, own = ({name: each.copy() for name, each in arrays.items()} for _ in range(2))
        call(flat, machine, one, {}, division=3)
        call(alone, machine, own, {})
        for name in "WG":
            assert one[name].tobytes() == own[name].tobytes()
        step = np.where(arrays["G"] > 0, arrays["G"], arrays["G"] * np.float32(0.5))
        np.testing.assert_allclose(one["W"], arrays["W"] - arrays["R"] * step, rtol=1e-5, atol=1e-7)
    assert len(texts) == 1


@on_machines
@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(DType.FP64, 0.5), (DType.FP16, 0.5), (DType.BF16, 0.5), *((each, 2) for each in INTEGERS)],
    ids=str,
)
def test_one_code_updates_arrays_of_any_type(machine: Machine, dtype: DType, factor: float) -> None:
    """Around the elements of one and of two vectors, and of units; the results are exact."""
    lowering, random, texts = KernelLowering(machine), np.random.default_rng(0), set[str]()
    lanes = machine.lanes(ELEMENTS[dtype])
    around = (count + more for count in (lanes, 2 * lanes, 8192) for more in (-1, 0, 1))
    for size in sorted({2, 3, *around} - {0, 1}):
        flat = lowered(lowering, update(size, factor, dtype))
        texts.add(flat.kernel.text())
        arrays = {name: random.integers(-8, 9, size).astype(dtype.numpy) for name in "WG"}
        arrays["R"] = np.array([2], dtype.numpy)
        step = np.where(arrays["G"] > 0, arrays["G"], arrays["G"] * dtype.numpy.type(factor))
        expected = {"W": arrays["W"] - arrays["R"] * step, "G": step, "R": arrays["R"].copy()}
        for division in (1, 3):
            guarded = {name: Guarded(array) for name, array in arrays.items()}
            call(flat, machine, {name: each.array for name, each in guarded.items()}, {}, division)
            for name, each in guarded.items():
                each.check(name)
                np.testing.assert_array_equal(each.array, expected[name], f"{name} of {size}")
    assert len(texts) == 1


def test_what_is_computed_is_part_of_the_code() -> None:
    lowering = KernelLowering(AVX2)
    cases = update(33), update(33, factor=0.25), update(33, dtype=DType.FP64)
    assert len({lowered(lowering, case).kernel.text() for case in cases}) == len(cases)


def _reversed(size: int) -> Case:
    case = Case((size,))
    (i,) = case.indices
    x = case.ref("X", (size,))
    case.k.store(case.ref("Out", (size,)), (i,), x[size - 1 - i])
    return case


def _number(size: int) -> Case:
    case = Case((size,))
    (i,) = case.indices
    case.k.store(case.ref("Out", (size,), DType.INT64), (i,), i * 3)
    return case


def _some(size: int) -> Case:
    case = Case((size,))
    (i,) = case.indices
    case.k.store(case.ref("Out", (size,)), (i,), 1.0, i < size - 1)
    return case


def _with_gaps(size: int) -> Case:
    case = Case((size,))
    (i,) = case.indices
    out = case.ref("Out", (size,), region=Region(0, 4, 16))
    case.k.store(out, (i,), case.ref("X", (size,))[i])
    return case


def _added(size: int) -> Case:
    case = Case((size,))
    (i,) = case.indices
    case.k.add(case.ref("Out", (size,)), (i,), case.ref("X", (size,))[i])
    return case


@pytest.mark.parametrize("case", [_reversed, _number, _some, _with_gaps, _added])
def test_kernels_that_read_an_index_keep_their_own_code(case: Callable[[int], Case]) -> None:
    lowering = KernelLowering(AVX2)
    for size in (32, 64):
        flat, alone = lowered(lowering, case(size)), lower_one(case(size).k, AVX2)
        assert (flat.kernel.text(), flat.sizes) == (alone.kernel.text(), alone.sizes)


def test_parameters_of_all_sizes_are_updated_by_one_kernel() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = fluid.layers.data("x", [5])
        for size in (7, 12, 30):
            hidden = fluid.layers.fc(hidden, size, act="tanh")
        loss = fluid.layers.mean(hidden)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    module = compile_stages(main, feed=["x"], fetch=[loss.name], target="native").module
    assert sum(name.startswith("momentum") for name in module.kernels_ir) == 1
    filled = compile_stages(startup, feed=[], fetch=[], target="native").module
    zeros = [text for name, text in filled.kernels_ir.items() if name.startswith("fill_constant")]
    assert len(zeros) <= 2


@on_machines
def test_a_number_without_axes_is_read_by_all_elements(machine: Machine) -> None:
    """The total of a global reduction has no axes."""
    case = Case((20000,))
    (i,) = case.indices
    case.k.store(case.ref("y", (20000,)), (i,), case.ref("x", (20000,))[i] / case.ref("r", ())[()])
    arrays = {"x": np.arange(20000, dtype="f4"), "y": np.zeros(20000, "f4"), "r": np.array(4, "f4")}
    call(lowered(KernelLowering(machine), case), machine, arrays, {})
    np.testing.assert_array_equal(arrays["y"], arrays["x"] / 4)
