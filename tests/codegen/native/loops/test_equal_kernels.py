"""Kernels that are equal but for their operands share code; those that differ in anything do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.codegen.native.loops import KernelLowering, LoweredKernel
from compiler.codegen.native.loops.lower import lower_one
from compiler.codegen.native.machine import AVX2
from compiler.ir.region import WHOLE, Region
from compiler.ir.types import DType
from tests.codegen.native.loops_support import Case, operand

SHAPE = (6, 8)


def kernel(
    x: str = "X",
    y: str = "Y",
    out: str = "Out",
    dtype: DType = DType.FP32,
    factor: float = 2.0,
    row: int = 0,
    region: Region = WHOLE,
    columns: int = 8,
    fn: str = "maximum",
    where: bool = False,
    atomic: bool = False,
) -> Case:
    """out[i, j] = fn(x[row, j] * factor, y[i, j]) in one of its variants."""
    case = Case((6, columns))
    i, j = case.indices
    left, right = case.ref(x, SHAPE, dtype), case.ref(y, SHAPE, dtype, region=region)
    value = case.k.call(fn, left[row, j] * factor, right[i, j])
    store = case.k.add if atomic else case.k.store
    store(case.ref(out, SHAPE, dtype), (i, j), value, i < j if where else None)
    return case


def lowered(lowering: KernelLowering, case: Case) -> LoweredKernel:
    (found,) = lowering.lower(case.k, lambda shape, dtype: operand("t", shape, dtype))
    return found


def test_equal_kernels_are_one_and_keep_their_operands() -> None:
    lowering = KernelLowering(AVX2)
    first, second = (lowered(lowering, kernel(x, y, out)) for x, y, out in ("XYO", "ABC"))
    assert first.kernel is second.kernel
    assert [[each.name for each in one.operands] for one in (first, second)] == [
        ["X", "Y", "O"],
        ["A", "B", "C"],
    ]


VARIANTS: dict[str, Callable[[], Case]] = {
    "plain": kernel,
    "one operand twice": lambda: kernel(y="X"),
    "in place of the first": lambda: kernel(out="X"),
    "in place of the second": lambda: kernel(out="Y"),
    "another type": lambda: kernel(dtype=DType.FP64),
    "another number": lambda: kernel(factor=3.0),
    "a number of zero": lambda: kernel(factor=0.0),
    "a number of minus zero": lambda: kernel(factor=-0.0),
    "another row": lambda: kernel(row=1),
    "rows with gaps": lambda: kernel(region=Region(0, 32, 64)),
    "fewer columns": lambda: kernel(columns=7),
    "another function": lambda: kernel(fn="minimum"),
    "a condition": lambda: kernel(where=True),
    "an addition": lambda: kernel(atomic=True),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_have_the_code_that_they_have_alone(variant: str) -> None:
    lowering = KernelLowering(AVX2)
    for other in VARIANTS.values():
        lowered(lowering, other())
    found, alone = lowered(lowering, VARIANTS[variant]()), lower_one(VARIANTS[variant]().k, AVX2)
    assert found.kernel.text() == alone.kernel.text()
    assert [each.name for each in found.operands] == [each.name for each in alone.operands]
    assert (found.sizes, found.kernel.units) == (alone.sizes, alone.kernel.units)
    assert (found.kernel.flops, found.kernel.nbytes) == (alone.kernel.flops, alone.kernel.nbytes)


def test_an_offset_in_a_slot_is_not_part_of_the_code() -> None:
    lowering = KernelLowering(AVX2)
    near, far = (kernel(region=Region(offset, 32, 64)) for offset in (0, 32))
    assert lowered(lowering, near).kernel is lowered(lowering, far).kernel
