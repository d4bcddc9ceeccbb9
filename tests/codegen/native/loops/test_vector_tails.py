"""A tail of one lane stores one element: those behind it keep their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.native.machine import Machine
from compiler.ir.types import DType
from tests.codegen.native.loops_support import Case, run
from tests.support.compiled_kernels import on_machines

NARROW = (DType.BF16, DType.FP16, DType.INT8, DType.UINT8, DType.INT16, DType.BOOL, DType.FP32)


@on_machines
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("columns", [17, 33, 65, 129])
def test_the_element_behind_a_row_is_not_overwritten(
    machine: Machine, dtype: DType, columns: int
) -> None:
    case = Case((3, columns))
    x = case.ref("x", (3, columns))
    out = case.ref("out", (3, columns + 3), dtype)
    total = case.k.sum(x[case.indices[0], (r := case.k.loop(columns))], r)
    value = case.k.where(x[case.indices] > total, 1.0, 0.5)
    case.k.store(out, case.indices, value)
    arrays = {
        "x": np.ones((3, columns), np.float32),
        "out": np.ones((3, columns + 3), dtype.numpy),
    }
    result = run(case.k, machine, arrays, None)["out"]
    assert (result[:, :columns] == np.array(0.5).astype(dtype.numpy)).all()
    assert (result[:, columns:] == 1).all()
