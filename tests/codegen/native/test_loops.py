"""Kernels of the kernel IR as machine code give NumPy's numbers, on any sizes and machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.codegen.kernel.body import MatmulBody
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.llvm_ir import F32
from compiler.codegen.native.loops import KernelLowering
from compiler.codegen.native.loops.body import NotLowered
from compiler.codegen.native.loops.lower import lower_one
from compiler.codegen.native.machine import AVX512, MACHINES, NEON, Machine
from compiler.ir import philox
from compiler.ir.dims import Dim, Size
from compiler.ir.region import Region
from compiler.ir.types import DType
from compiler.support.thresholds import lowered
from runtime.errors import OutOfBounds
from tests.codegen.native.loops_support import Case, call, operand, run, run_checked
from tests.support.compiled_kernels import assembly, on_machines

N, M = Dim.named("N"), Dim.named("M")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng().normal(size=shape).astype(np.float32)


def check(
    case: Case, machine: Machine, arrays: dict[str, np.ndarray], wanted: dict[str, np.ndarray],
    dims: dict[str, int] | None = None, exact: bool = False,
) -> None:  # fmt: skip
    """Hold a kernel's results against NumPy's, with and without checks of bounds."""
    for each in (run, run_checked):
        actual = each(case.k, machine, arrays, dims)
        for name, want in wanted.items():
            if exact:
                np.testing.assert_array_equal(actual[name], want, err_msg=name)
            else:
                np.testing.assert_allclose(actual[name], want, rtol=2e-5, atol=2e-6, err_msg=name)


# ---- pointwise ----


@on_machines
@pytest.mark.parametrize("count", [1, 7, 16, 33, 100, 4096, 70001])
@pytest.mark.parametrize("is_open", [False, True])
def test_one_axis(machine: Machine, count: int, is_open: bool) -> None:
    size: Size = N if is_open else count
    case = Case((size,))
    (i,) = case.indices
    x, out = case.ref("X", (size,)), case.ref("Out", (size,))
    case.k.store(out, (i,), case.k.maximum(x[i] * 2.0 - 0.5, 0.0))
    inputs = floats(count)
    inputs[0] = np.nan
    arrays = {"X": inputs, "Out": np.zeros_like(inputs)}
    want = np.maximum(inputs * np.float32(2) - np.float32(0.5), 0)
    check(case, machine, arrays, {"Out": want}, {"N": count}, exact=True)


@on_machines
@pytest.mark.parametrize("sizes", [(3, 5, 7), (2, 40, 19), (70, 3, 1), (1, 1, 50)])
@pytest.mark.parametrize("kept", range(8))
def test_broadcasting_over_every_axis(machine: Machine, sizes: tuple[int, ...], kept: int) -> None:
    shape = tuple(size if kept >> axis & 1 else 1 for axis, size in enumerate(sizes))
    case = Case(sizes)
    x, y, out = case.ref("X", sizes), case.ref("Y", shape), case.ref("Out", sizes)
    at = tuple(i if n != 1 else 0 for i, n in zip(case.indices, shape, strict=True))
    case.k.store(out, case.indices, x[case.indices] + y[at])
    arrays = {"X": floats(*sizes), "Y": floats(*shape), "Out": floats(*sizes)}
    check(case, machine, arrays, {"Out": arrays["X"] + arrays["Y"]}, exact=True)


@on_machines
def test_in_place(machine: Machine) -> None:
    case = Case((1000,))
    (i,) = case.indices
    x = case.ref("X", (1000,))
    case.k.store(x, (i,), x[i] * 3.0)
    inputs = floats(1000)
    check(case, machine, {"X": inputs}, {"X": inputs * np.float32(3)}, exact=True)


@on_machines
@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.TOKEN], ids=lambda d: d.text)
@pytest.mark.parametrize("other", [d for d in DType if d is not DType.TOKEN], ids=lambda d: d.text)
def test_casts_between_all_types(machine: Machine, dtype: DType, other: DType) -> None:
    case = Case((77,))
    (i,) = case.indices
    x, out = case.ref("X", (77,), dtype), case.ref("Out", (77,), other)
    case.k.store(out, (i,), x[i])
    inputs = np.arange(77).astype(dtype.numpy)
    check(case, machine, {"X": inputs, "Out": np.zeros(77, other.numpy)},
          {"Out": inputs.astype(other.numpy)}, exact=True)  # fmt: skip


@on_machines
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16, DType.INT64, DType.FP64])
def test_arithmetic_in_other_types(machine: Machine, dtype: DType) -> None:
    case = Case((301,))
    (i,) = case.indices
    x, y, out = (case.ref(name, (301,), dtype) for name in ("X", "Y", "Out"))
    case.k.store(out, (i,), case.k.where(x[i] < y[i], x[i] + y[i], x[i] - y[i]))
    a, b = (np.random.default_rng().integers(0, 100, 301).astype(dtype.numpy) for _ in range(2))
    want = np.where(a < b, a + b, a - b)
    check(case, machine, {"X": a, "Y": b, "Out": np.zeros_like(a)}, {"Out": want}, exact=True)


@on_machines
def test_rows_with_gaps(machine: Machine) -> None:
    region = Region(0, 12 * 4, 20 * 4)
    case = Case((9, 12))
    x, out = case.ref("X", (9, 12), region=region), case.ref("Out", (9, 12))
    case.k.store(out, case.indices, x[case.indices] + 1.0)
    inputs = floats(9, 20)
    arrays = {"X": inputs, "Out": np.zeros((9, 12), np.float32)}
    check(case, machine, arrays, {"Out": inputs[:, :12] + np.float32(1)}, exact=True)


@on_machines
@pytest.mark.parametrize("sizes", [(5, 70), (64, 33), (3, 3)])
def test_transpose(machine: Machine, sizes: tuple[int, int]) -> None:
    case = Case(sizes[::-1])
    i, j = case.indices
    x, out = case.ref("X", sizes), case.ref("Out", sizes[::-1])
    case.k.store(out, (i, j), x[j, i])
    inputs = floats(*sizes)
    arrays = {"X": inputs, "Out": np.zeros(sizes[::-1], np.float32)}
    check(case, machine, arrays, {"Out": inputs.T}, exact=True)


@on_machines
@pytest.mark.parametrize("is_open", [False, True])
def test_unravelled_index(machine: Machine, is_open: bool) -> None:
    first: Size = N if is_open else 6
    case = Case((first * 35,))
    (i,) = case.indices
    x, out = case.ref("X", (7, first, 5)), case.ref("Out", (first, 7, 5))
    a, b, c = case.k.unravel(i, (first, 7, 5))
    case.k.store(out, (a, b, c), x[b, a, c])
    inputs = floats(7, 6, 5)
    arrays = {"X": inputs, "Out": np.zeros((6, 7, 5), np.float32)}
    check(case, machine, arrays, {"Out": inputs.transpose(1, 0, 2)}, {"N": 6}, exact=True)


@on_machines
@pytest.mark.parametrize("rows", [50, 20])
def test_index_as_number(machine: Machine, rows: int) -> None:
    case = Case((rows, 9))
    i, j = case.indices
    out = case.ref("Out", (rows, 9))
    case.k.store(out, (i, j), case.k.astype(i * 9 + j, DType.FP32) + case.k.astype(j, DType.FP32))
    want = np.arange(9 * rows, dtype=np.float32).reshape(-1, 9) + np.arange(9, dtype=np.float32)
    check(case, machine, {"Out": np.zeros_like(want)}, {"Out": want}, exact=True)


# ---- gathers, scatters, conditions ----


@on_machines
@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_gather_rows(machine: Machine, dtype: DType, width: int) -> None:
    case = Case((31, width))
    i, j = case.indices
    x, out = case.ref("X", (10, width)), case.ref("Out", (31, width))
    row = case.ref("Ids", (31,), dtype)[i]
    inside = (row >= 0) & (row < 10)
    case.k.store(out, (i, j), x.at(row, j, where=inside, other=-1))
    inputs, ids = (
        floats(10, width),
        np.random.default_rng().integers(-2, 12, 31).astype(dtype.numpy),
    )
    good = (ids >= 0) & (ids < 10)
    want = np.where(good[:, None], inputs[np.clip(ids, 0, 9)], np.float32(-1))
    arrays = {"X": inputs, "Ids": ids, "Out": np.zeros_like(want)}
    check(case, machine, arrays, {"Out": want}, exact=True)


@on_machines
@pytest.mark.parametrize("width", [1, 5, 40])
def test_scatter_add_in_order(machine: Machine, width: int) -> None:
    case = Case((500, width))
    i, j = case.indices
    x, out = case.ref("X", (500, width)), case.ref("Out", (10, width))
    row = case.ref("Ids", (500,), DType.INT64)[i]
    case.k.add(out, (row, j), x[i, j], row >= 0)
    inputs, ids = floats(500, width), np.random.default_rng().integers(-2, 10, 500)
    want = np.ones((10, width), np.float32)
    np.add.at(want, ids[ids >= 0], inputs[ids >= 0])
    arrays = {"X": inputs, "Ids": ids, "Out": np.ones((10, width), np.float32)}
    check(case, machine, arrays, {"Out": want}, exact=True)


@on_machines
def test_add_into_one_element(machine: Machine) -> None:
    case = Case((100,))
    (i,) = case.indices
    x, out = case.ref("X", (100,), DType.INT32), case.ref("Out", (1,), DType.INT32)
    case.k.add(out, (0,), x[i])
    inputs = np.arange(100, dtype=np.int32)
    arrays = {"X": inputs, "Out": np.zeros(1, np.int32)}
    check(case, machine, arrays, {"Out": inputs.sum(keepdims=True)}, exact=True)


@on_machines
@pytest.mark.parametrize("shift", [-3, 0, 5])
def test_window_with_padding(machine: Machine, shift: int) -> None:
    case = Case((4, 37))
    i, j = case.indices
    x, out = case.ref("X", (4, 30)), case.ref("Out", (4, 37))
    at = j + shift
    case.k.store(out, (i, j), x.at(i, at, where=(at >= 0) & (at < 30), other=9))
    inputs = floats(4, 30)
    padded = np.full((4, 60), 9, np.float32)
    padded[:, 10:40] = inputs
    want = padded[:, 10 + shift : 47 + shift]
    check(case, machine, {"X": inputs, "Out": np.zeros_like(want)}, {"Out": want}, exact=True)


@on_machines
def test_conditional_store(machine: Machine) -> None:
    case = Case((77,))
    (i,) = case.indices
    x, out = case.ref("X", (77,)), case.ref("Out", (77,))
    case.k.store(out, (i,), x[i], x[i] > 0)
    inputs = floats(77)
    arrays = {"X": inputs, "Out": np.full(77, 5, np.float32)}
    check(case, machine, arrays, {"Out": np.where(inputs > 0, inputs, np.float32(5))}, exact=True)


# ---- reductions ----

REDUCED: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod,
}  # fmt: skip


@on_machines
@pytest.mark.parametrize("fn", REDUCED)
@pytest.mark.parametrize("sizes", [(3, 100, 4), (2, 5, 70), (1, 1000, 1), (40, 3, 33), (2, 1, 5)])
@pytest.mark.parametrize("is_open", [False, True])
def test_middle_axis(machine: Machine, fn: str, sizes: tuple[int, int, int], is_open: bool) -> None:
    a, b, c = (N, M, Dim.named("K")) if is_open else sizes
    case = Case((a, c))
    i, j = case.indices
    r = case.k.loop(b)
    x, out = case.ref("X", (a, b, c)), case.ref("Out", (a, c))
    case.k.store(out, (i, j), getattr(case.k, fn)(x[i, r, j], r))
    inputs = (1 + floats(*sizes) / 100) if fn == "prod" else floats(*sizes)
    arrays = {"X": inputs, "Out": np.zeros((sizes[0], sizes[2]), np.float32)}
    want = REDUCED[fn](inputs.astype(np.float64), axis=1)
    check(case, machine, arrays, {"Out": want}, dict(zip("NMK", sizes, strict=True)))


@on_machines
def test_three_vectors_in_flight(machine: Machine) -> None:
    test_middle_axis(machine, "sum", (2, 3 * machine.lanes(F32) + 1, 1), False)


@on_machines
@pytest.mark.parametrize("fn", ["max", "min"])
@pytest.mark.parametrize("place", [0, 20, 69])
def test_nan_is_the_largest_and_the_smallest(machine: Machine, fn: str, place: int) -> None:
    case = Case((3,))
    (i,) = case.indices
    r = case.k.loop(70)
    x, out = case.ref("X", (3, 70)), case.ref("Out", (3,))
    case.k.store(out, (i,), getattr(case.k, fn)(x[i, r], r))
    inputs = floats(3, 70)
    inputs[1, place] = np.nan
    arrays = {"X": inputs, "Out": np.zeros(3, np.float32)}
    check(case, machine, arrays, {"Out": getattr(np, fn)(inputs, axis=1)}, exact=True)


@on_machines
@pytest.mark.parametrize("sizes", [(5, 130), (300, 10), (4, 1), (2, 3000)])
def test_softmax(machine: Machine, sizes: tuple[int, int]) -> None:
    case = Case((N,))
    (i,) = case.indices
    r = case.k.loop(sizes[1])
    x, out = case.ref("X", (N, sizes[1])), case.ref("Out", (N, sizes[1]))
    grown = case.k.exp(x[i, r] - case.k.max(x[i, r], r))
    case.k.store(out, (i, r), grown / case.k.sum(grown, r))
    inputs = floats(*sizes)
    want = np.exp(inputs - inputs.max(1, keepdims=True))
    arrays = {"X": inputs, "Out": np.zeros_like(inputs)}
    check(case, machine, arrays, {"Out": want / want.sum(1, keepdims=True)}, {"N": sizes[0]})


@on_machines
@pytest.mark.parametrize("sizes", [(5, 130), (30, 10), (2, 2000)])
def test_layer_norm(machine: Machine, sizes: tuple[int, int]) -> None:
    case = Case((sizes[0],))
    (i,) = case.indices
    r = case.k.loop(sizes[1])
    x, out = case.ref("X", sizes), case.ref("Out", sizes)
    scale, mean_out = case.ref("Scale", sizes[1:]), case.ref("Mean", sizes[:1])
    mean, variance = case.k.moments(x[i, r], r)
    case.k.store(mean_out, (i,), mean)
    case.k.store(out, (i, r), (x[i, r] - mean) / case.k.sqrt(variance + 1e-5) * scale[r])
    inputs, by = floats(*sizes) + np.float32(100), floats(sizes[1])
    wide = inputs.astype(np.float64)
    middle = wide.mean(1, keepdims=True)
    want = (wide - middle) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * by
    arrays = {"X": inputs, "Scale": by, "Out": np.zeros_like(inputs)}
    arrays["Mean"] = np.zeros(sizes[0], np.float32)
    for each in (run, run_checked):
        result = each(case.k, machine, arrays)
        np.testing.assert_allclose(result["Out"], want, atol=2e-4)
        np.testing.assert_allclose(result["Mean"], middle[:, 0], rtol=1e-6)


@on_machines
def test_moments_of_columns_where_a_condition_holds(machine: Machine) -> None:
    case = Case((37,))
    (j,) = case.indices
    r = case.k.loop(50)
    x, out, spread = case.ref("X", (50, 37)), case.ref("Out", (37,)), case.ref("Var", (37,))
    mean, variance = case.k.moments(x[r, j], r, x[r, j] > 0)
    case.k.store(out, (j,), mean)
    case.k.store(spread, (j,), variance)
    inputs = floats(50, 37)
    chosen = np.where(inputs > 0, inputs, np.nan)
    arrays = {"X": inputs, "Out": np.zeros(37, np.float32), "Var": np.zeros(37, np.float32)}
    wanted = {"Out": np.nanmean(chosen, axis=0), "Var": np.nanvar(chosen, axis=0)}
    check(case, machine, arrays, wanted)


@on_machines
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.INT8, DType.UINT8, DType.INT64, DType.FP16])
def test_reductions_of_other_types(machine: Machine, dtype: DType) -> None:
    case = Case((5,))
    (i,) = case.indices
    r = case.k.loop(90)
    x, most, least = case.ref("X", (5, 90), dtype), *(case.ref(n, (5,), dtype) for n in "AB")
    case.k.store(most, (i,), case.k.max(x[i, r], r))
    case.k.store(least, (i,), case.k.min(x[i, r], r))
    inputs = (
        np.random.default_rng()
        .integers(0, 3 if dtype is DType.BOOL else 120, (5, 90))
        .astype(dtype.numpy)
    )
    arrays = {"X": inputs, "A": np.zeros(5, dtype.numpy), "B": np.zeros(5, dtype.numpy)}
    check(case, machine, arrays, {"A": inputs.max(1), "B": inputs.min(1)}, exact=True)


@on_machines
def test_argmax_takes_the_first(machine: Machine) -> None:
    case = Case((6,))
    (i,) = case.indices
    r = case.k.loop(83)
    x, out = case.ref("X", (6, 83)), case.ref("Out", (6,), DType.INT64)
    case.k.store(out, (i,), case.k.argmax(x[i, r], r))
    inputs = np.random.default_rng().integers(0, 5, (6, 83)).astype(np.float32)
    arrays = {"X": inputs, "Out": np.zeros(6, np.int64)}
    check(case, machine, arrays, {"Out": inputs.argmax(1)}, exact=True)


@on_machines
@pytest.mark.parametrize("sizes", [(3, 50, 1), (2, 7, 40)])
def test_cumsum(machine: Machine, sizes: tuple[int, int, int]) -> None:
    case = Case((sizes[0], sizes[2]))
    i, j = case.indices
    r = case.k.loop(sizes[1])
    x, out = case.ref("X", sizes), case.ref("Out", sizes)
    case.k.store(out, (i, r, j), case.k.cumsum(x[i, r, j], r))
    inputs = floats(*sizes)
    arrays = {"X": inputs, "Out": np.zeros_like(inputs)}
    check(case, machine, arrays, {"Out": np.cumsum(inputs, axis=1)})


@on_machines
@pytest.mark.parametrize("sizes", [(1000,), (4, 30), (5, 64)])
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP64])
def test_uniform_numbers(machine: Machine, sizes: tuple[int, ...], dtype: DType) -> None:
    case = Case(sizes)
    out = case.ref("Out", sizes, dtype)
    key = case.k.key(operand("Key", (1,), DType.INT64))
    index = case.k.ravel(case.indices, sizes)
    case.k.store(out, case.indices, case.k.uniform(key, index, dtype))
    arrays = {"Key": np.array([12345678901]), "Out": np.zeros(sizes, dtype.numpy)}
    draw = philox.uniform_by_key if dtype is DType.FP32 else philox.uniform_float64_by_key
    want = draw(arrays["Key"], 0, sizes)
    check(case, machine, arrays, {"Out": want}, exact=True)


@on_machines
def test_product_with_computed_factors(machine: Machine) -> None:
    tiles = MatmulBody("product", (2,), (13, 37, 50))
    case = Case((), tiles)
    n, i, j = tiles.indices
    left, right = tiles.iterations
    a, b, out = case.ref("A", (2, 13, 50)), case.ref("B", (2, 37, 50)), case.ref("Out", (2, 13, 37))
    total = tiles.contract(a[n, i, left] + 1.0, b[n, j, right] * 2.0)
    tiles.store(out, (n, i, j), tiles.maximum(total, 0.0))
    x, y = floats(2, 13, 50), floats(2, 37, 50)
    want = np.maximum((x + 1) @ (y * 2).transpose(0, 2, 1), 0)
    arrays = {"A": x, "B": y, "Out": np.zeros((2, 13, 37), np.float32)}
    result = run(tiles, machine, arrays)
    np.testing.assert_allclose(result["Out"], want, rtol=1e-4, atol=1e-4)


@on_machines
def test_loop_with_its_own_end(machine: Machine) -> None:
    case = Case((9, 20))
    i, j = case.indices
    r = case.k.loop(33, until=case.ref("Ends", (9,), DType.INT64)[i])
    x, out = case.ref("X", (9, 33, 20)), case.ref("Out", (9, 20))
    case.k.store(out, (i, j), case.k.sum(x[i, r, j], r))
    inputs, ends = floats(9, 33, 20), np.random.default_rng().integers(0, 34, 9)
    want = np.stack([each[:n].sum(0) for each, n in zip(inputs, ends, strict=True)])
    arrays = {"X": inputs, "Ends": ends, "Out": np.zeros_like(want)}
    check(case, machine, arrays, {"Out": want})


@on_machines
def test_reduction_that_one_axis_of_the_grid_shares(machine: Machine) -> None:
    case = Case((9, 20))
    i, j = case.indices
    r = case.k.loop(33)
    x, y, out = case.ref("X", (9, 33)), case.ref("Y", (9, 20)), case.ref("Out", (9, 20))
    case.k.store(out, (i, j), y[i, j] - case.k.sum(x[i, r], r))
    a, b = floats(9, 33), floats(9, 20)
    arrays = {"X": a, "Y": b, "Out": np.zeros_like(b)}
    check(case, machine, arrays, {"Out": b - a.sum(1, keepdims=True)})


# ---- machine code ----


def _kernels() -> list[Case]:
    case = Case((1000,))
    (i,) = case.indices
    x, out = case.ref("X", (1000,)), case.ref("Out", (1000,))
    case.k.store(out, (i,), case.k.tanh(x[i]) * case.k.exp(x[i]))
    rows = Case((N,))
    (i,) = rows.indices
    r = rows.k.loop(100)
    x, out = rows.ref("X", (N, 100)), rows.ref("Out", (N,))
    rows.k.store(out, (i,), rows.k.log(rows.k.sum(rows.k.exp(x[i, r]), r)))
    return [case, rows]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
@pytest.mark.parametrize("number", range(2))
def test_assembles_without_calls(machine: Machine, number: int) -> None:
    text = assembly(lower_one(_kernels()[number].k, machine).kernel, machine)
    assert not re.search(r"\bcall|\bbl\s" if machine is NEON else r"\bcall", text)


def test_equal_kernels_have_equal_text() -> None:
    texts = {lower_one(_kernels()[0].k, AVX512).kernel.text() for _ in range(2)}
    assert len(texts) == 1


@on_machines
def test_bounds_checks_find_out_of_bounds_accesses(machine: Machine) -> None:
    case = Case((40,))
    (i,) = case.indices
    x, out = case.ref("X", (20,)), case.ref("Out", (40,))
    case.k.store(out, (i,), x[i])
    arrays = {"X": floats(20), "Out": np.full(40, 7, np.float32)}
    with pytest.raises(OutOfBounds, match=r"reads .* of argument 0, which has 80 bytes"):
        run_checked(case.k, machine, arrays)


def test_not_lowered_has_a_reason() -> None:
    case = Case((40,))
    (i,) = case.indices
    region = Region(0, 4 * 4, 10 * 4)
    x = case.ref("X", (10, 4), region=region, view=(40,))
    case.k.store(case.ref("Out", (40,)), (i,), x[i])
    with pytest.raises(NotLowered, match="has gaps"):
        lower_one(case.k, AVX512)


def test_units_share_a_long_axis() -> None:
    case = Case((1_000_000,))
    (i,) = case.indices
    x, out = operand("X", (1_000_000,)), case.ref("Out", (1_000_000,))
    case.k.store(out, (i,), case.ref(x.name, x.shape)[i] + 1.0)
    assert int(lower_one(case.k, AVX512).kernel.units) >= 64


def test_column_sums_have_lanes_along_columns() -> None:
    case = Case((64,))
    (j,) = case.indices
    r = case.k.loop(10_000)
    case.k.store(case.ref("Out", (64,)), (j,), case.k.sum(case.ref("X", (10_000, 64))[r, j], r))
    text = lower_one(case.k, AVX512).kernel.text()
    assert "gather" not in text
    assert "load <16 x float>" in text


@on_machines
def test_functions_with_branches_are_hoisted(machine: Machine) -> None:
    case = Case((7, 40))
    i, j = case.indices
    x, y, out = case.ref("X", (7,)), case.ref("Y", (7, 40)), case.ref("Out", (7, 40))
    case.k.store(out, (i, j), case.k.sin(x[i]) * y[i, j] + case.k.cos(x[i]))
    a, b = floats(7) * np.float32(1e6), floats(7, 40)
    arrays = {"X": a, "Y": b, "Out": np.zeros_like(b)}
    wide = a.astype(np.float64)[:, None]
    check(case, machine, arrays, {"Out": np.sin(wide) * b + np.cos(wide)})


@on_machines
@pytest.mark.parametrize("columns", [1, 5, 64])
def test_long_reductions_are_split_into_parts(machine: Machine, columns: int) -> None:
    case = Case((columns,))
    (j,) = case.indices
    r = case.k.loop(200_001)
    x, out = case.ref("X", (200_001, columns)), case.ref("Out", (columns,))
    spread = case.ref("Var", (columns,))
    mean, variance = case.k.moments(x[r, j], r)
    case.k.store(out, (j,), mean)
    case.k.store(spread, (j,), variance)
    inputs = floats(200_001, columns) + np.float32(10)
    arrays = {"X": inputs, "Out": np.zeros(columns, np.float32)}
    arrays["Var"] = np.zeros(columns, np.float32)
    assert run_split(case, machine, arrays) > 1
    wide = inputs.astype(np.float64)
    np.testing.assert_allclose(arrays["Out"], wide.mean(0), rtol=2e-6)
    np.testing.assert_allclose(arrays["Var"], wide.var(0), rtol=2e-5)


def run_split(
    case: Case, machine: Machine, arrays: dict[str, np.ndarray],
    dims: dict[str, int] | None = None,
) -> int:  # fmt: skip
    """Run a kernel split into parts, with scratch added to its arrays; the number of kernels."""

    def scratch(shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        name = f"t{len(arrays)}"
        arrays[name] = np.full([int(str(n)) for n in shape], np.nan, dtype.numpy)
        return operand(name, shape, dtype)

    kernels = KernelLowering(machine).lower(case.k, scratch)
    for kernel in kernels:
        call(kernel, machine, arrays, dims or {}, division=3)
    return len(kernels)


@on_machines
@pytest.mark.parametrize("size", [1, 5, 70_001])
def test_parts_of_an_open_reduction_may_have_nothing_left(machine: Machine, size: int) -> None:
    case = Case((1,))
    r = case.k.loop(N)
    case.k.store(case.ref("Out", (1,)), case.indices, case.k.sum(case.ref("X", (N,))[r], r))
    inputs = floats(size)
    arrays = {"X": inputs, "Out": np.zeros(1, np.float32)}
    with lowered({"reduction_part_work": 16, "reduction_part_step": 4}):
        assert run_split(case, machine, arrays, {"N": size}) > 1
    np.testing.assert_allclose(arrays["Out"], inputs.sum(dtype=np.float64), rtol=1e-4, atol=1e-4)


@on_machines
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP64])
@pytest.mark.parametrize(
    "sizes",
    [
        (8, 64, 32, 32),  # as many parts as lanes
        (16, 4, 56, 56),  # the last parts have nothing left of the longest axis
        (2, 3, 150, 151),
        (4097, 2, 3, 5),
        (3, 5, 1, 10007),
        (1, 1, 257, 263),
    ],
)
def test_reductions_over_outer_and_inner_axes_are_split(
    machine: Machine, sizes: tuple[int, int, int, int], dtype: DType
) -> None:
    images, channels, high, wide = sizes
    case = Case((channels,))
    (c,) = case.indices
    r = case.k.loop(images * high * wide)
    n, h, w = case.k.unravel(r, (images, high, wide))
    x = case.ref("X", sizes, dtype)[n, c, h, w]
    inputs = np.random.default_rng(0).normal(size=sizes).astype(dtype.numpy) + 10
    arrays = {"X": inputs}
    for fn in ("sum", "max"):
        out = case.ref(fn, (channels,), dtype)
        case.k.store(out, (c,), case.k.node("reduce", (x, r), dtype, fn))
        arrays[fn] = np.zeros(channels, dtype.numpy)
    assert run_split(case, machine, arrays) > 1
    axes, tolerance = (0, 2, 3), 1e-5 if dtype is DType.FP32 else 1e-14
    np.testing.assert_allclose(arrays["sum"], inputs.sum(axes, np.float64), rtol=tolerance)
    np.testing.assert_array_equal(arrays["max"], inputs.max(axes))


@on_machines
@pytest.mark.parametrize("sizes", [(1, 3_000_017), (3_000_017, 1), (40_009, 75)])
def test_errors_of_sums_do_not_grow_with_their_length(
    machine: Machine, sizes: tuple[int, int]
) -> None:
    """Sums of many positive numbers, along lanes and along a loop."""
    case = Case((sizes[1] if sizes[1] < 100 else 1,))
    (j,) = case.indices
    r = case.k.loop(max(sizes))
    x = case.ref("X", sizes)
    case.k.store(case.ref("Out", case.k.shape), (j,),
                 case.k.sum(x[r, j] if sizes[0] > 1 else x[j, r], r))  # fmt: skip
    values = np.random.default_rng(0).random(sizes, np.float32)
    arrays = {"X": values, "Out": np.zeros(case.k.shape, np.float32)}
    result = run(case.k, machine, arrays)["Out"]
    expected = values.sum(int(sizes[0] == 1), np.float64)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_parts_of_a_reduction_are_not_lanes() -> None:
    """Each part has its own number of iterations, which lanes cannot have."""
    case = Case((4,))
    (c,) = case.indices
    r = case.k.loop(4096 * 64)
    n, i = case.k.unravel(r, (4096, 64))
    x = case.ref("X", (4096, 4, 64))[n, c, i]
    case.k.store(case.ref("Out", (4,)), (c,), case.k.sum(x, r))
    first, _ = KernelLowering(AVX512).lower(case.k, lambda shape, dtype: operand("t", shape, dtype))
    assert "gather" not in first.kernel.text()
