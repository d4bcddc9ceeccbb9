"""Factors in half precision are widened exactly, whatever their number and its division."""

import ctypes

import numpy as np
import pytest

from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.narrow_factors import BLOCK, _widening
from compiler.ir.types import DType
from compiler.support.thresholds import lowered
from tests.support.compiled_kernels import load, on_machines


@on_machines
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16], ids=lambda each: each.text)
def test_every_element_of_every_unit_is_widened(machine: Machine, dtype: DType) -> None:
    count = 100
    halves = np.random.default_rng(0).standard_normal(count).astype(dtype.numpy)
    wide = np.full(count + 64, np.nan, np.float32)
    with lowered({"widening_block": BLOCK.small}):
        function = load(NativeKernel([_widening(machine, dtype)], 0, 0, 0), machine)
        units = -(-count // BLOCK.value)
    slots = (ctypes.c_int64 * 3)(halves.ctypes.data, wide.ctypes.data, count)
    for unit in reversed(range(units)):
        function(ctypes.addressof(slots), unit, unit + 1)
    np.testing.assert_array_equal(wide[:count], halves.astype(np.float32))
    assert np.isnan(wide[count:]).all()
