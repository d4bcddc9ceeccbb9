"""Native kernels of sorted rows, and of the first values of rows, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.native.machine import AVX2, Machine
from compiler.codegen.native.sorting.rows import Rows, first_values
from compiler.ir.dims import Dim, Size
from compiler.ir.types import DType
from compiler.support.thresholds import lowered
from tests.support import image_kernels as support
from tests.support.compiled_kernels import on_machines

N, M = Dim.named("N"), Dim.named("M")


def drawn(dtype: DType, shape: tuple[int, ...], high: int) -> np.ndarray:
    """Values with ties; floats also with NaN and zeros of both signs."""
    values = np.random.default_rng(0).integers(-high, high, shape).astype(dtype.numpy)
    if dtype.is_float:
        values.reshape(-1)[3::11] = np.nan
        values.reshape(-1)[5::13] = -0.0
    return values


def stable_order(values: np.ndarray, largest: bool) -> np.ndarray:
    """The order of values along axis 1, NaN as the largest."""
    kinds = np.unique(values)  # NaN is the last
    ranks = np.searchsorted(kinds, values)
    return np.argsort(-ranks if largest else ranks, axis=1, kind="stable")


def check(machine: Machine, rows: Rows, values: np.ndarray, count: int) -> None:
    sizes = {"N": values.shape[0], "M": values.shape[1]}
    want = stable_order(values, rows.largest)[:, :count]
    arrays = {
        "X": values,
        "Out": np.zeros_like(values, shape=want.shape),
        "Indices": np.zeros_like(want),
        "keys": np.zeros(16 * values.shape[1], np.int64),
    }
    result = support.run(first_values(rows), machine, arrays, ["Out", "Indices"], sizes)
    np.testing.assert_array_equal(result[1], want)
    np.testing.assert_array_equal(result[0], np.take_along_axis(values, want, 1))


SHORT, LONG, WIDE = (3, 37, 2), (2, 701, 1), (6, 60, 2)


@on_machines
@pytest.mark.parametrize(
    ("dtype", "shape", "count"),
    [
        (DType.FP32, (2, 1, 1), 1),
        (DType.FP32, SHORT, 37),
        (DType.FP64, LONG, 701),
        (DType.FP32, LONG, 701),
        (DType.FP32, LONG, 20),
        (DType.INT64, LONG, 20),
        (DType.FP16, LONG, 200),
        (DType.UINT8, (2, 701, 3), 30),
    ],
    ids=str,
)
def test_first_values(
    machine: Machine, dtype: DType, shape: tuple[int, int, int], count: int
) -> None:
    for largest, high in ((True, 1000 if dtype.itemsize > 1 else 100), (False, 4)):
        rows = Rows(machine, dtype, shape, count, largest)
        check(machine, rows, drawn(dtype, shape, high), count)


@pytest.mark.parametrize(("shape", "count"), [((N, 701, 1), 20), ((N, M, 1), 20), ((N, M, 1), M)])
def test_open_sizes(shape: tuple[Size, Size, Size], count: Size) -> None:
    rows = Rows(AVX2, DType.FP32, shape, count, True)
    for size in (20, 39, 40, 701) if shape[1] is M else (701,):
        values = drawn(DType.FP32, (3, size, 1), 100)
        check(AVX2, rows, values, count if isinstance(count, int) else size)


@pytest.mark.parametrize("count", [60, 25])
@pytest.mark.parametrize("dtype", [DType.FP32, DType.INT64], ids=str)
def test_keys_outside_of_the_stack(dtype: DType, count: int) -> None:
    with lowered({"sorted_row": 48, "radix_sorted_keys": 24}):
        rows = Rows(AVX2, dtype, WIDE, count, False)
        assert not rows.is_on_stack
        check(AVX2, rows, drawn(dtype, WIDE, 100), count)


def test_values_that_come_in_the_worst_order() -> None:
    """Each value is a candidate: the buffer is sorted again and again."""
    values = np.arange(701.0, dtype=np.float32).reshape(1, 701, 1)
    check(AVX2, Rows(AVX2, DType.FP32, (1, 701, 1), 3, True), values, 3)
