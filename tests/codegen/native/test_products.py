"""Matrix products of native code equal NumPy's in float64, on sizes that are multiples of nothing."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.codegen.native.llvm_ir import F16, F32, F64, Function, Type, Value
from compiler.codegen.native.machine import AVX2, AVX512, NEON, Machine
from compiler.codegen.native.products.axes import Axis, EpilogueOperand
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.epilogue import Epilogue, bias
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.place import ResultAddresses
from compiler.codegen.native.products.tiles import MOST_ROWS, Tiling
from compiler.ir.dims import Dim, Size, evaluate
from tests.codegen.native.support import run_steps
from tests.support.compiled_kernels import RUNNABLE, assembly, on_machines

M, K, N = Dim.named("M"), Dim.named("K"), Dim.named("N")
BOUNDS = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-14}
"""Of the error, relative to the largest sum of magnitudes."""

SIZES: list[tuple[Size, Size, Size]] = [
    (1, 1, 1), (5, 7, 9), (128, 64, 64), (37, 53, 101), (1, 100, 1000), (130, 300, 200),
    (M, 53, 101), (M, 53, N), (M, K, N), (13, K, 33), (M, 7, 3),
    (37, 53, 1), (M, 100, 1), (1, 16, 1),
]  # fmt: skip


def _numbers(shape: tuple[int, ...], dtype: type, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(got: np.ndarray, a: np.ndarray, b: np.ndarray, more: np.ndarray | float = 0.0) -> None:
    """Compare with the product in float64."""
    want = a.astype(float) @ b.astype(float) + more
    scale = (abs(a.astype(float)) @ abs(b.astype(float)) + abs(more)).max()
    assert abs(got - want).max() <= BOUNDS[got.dtype] * scale


@on_machines
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_with_a_bias(
    machine: Machine, sizes: tuple[Size, Size, Size], transposed: bool, constant: bool
) -> None:
    m, k, n = sizes
    strides = (k * n, 1, k) if transposed else None
    steps = matmul(machine, F32, (2,), m, k, n, b=strides, epilogue=bias(F32, 3), constant=constant)
    for values in ({"M": 23, "K": 29, "N": 75}, {"M": 1, "K": 1, "N": 1}):
        m, k, n = (evaluate(size, values) for size in sizes)
        a, b, c = (
            _numbers((2, m, k), np.float32),
            _numbers((2, k, n), np.float32),
            _numbers((n,), np.float32),
        )
        right = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else b
        out = np.zeros((2, m, n), np.float32)
        arrays = {"a": a, "b": right, "bias": c, "out": out}
        _check(run_steps(steps, machine, arrays, values)["out"], a, b, c)


@on_machines
def test_products_of_doubles(machine: Machine) -> None:
    a, b = _numbers((37, 53), np.float64), _numbers((53, 29), np.float64)
    steps = matmul(machine, F64, (), 37, 53, 29)
    got = run_steps(steps, machine, {"a": a, "b": b, "out": np.zeros((37, 29))})["out"]
    _check(got, a, b)


@on_machines
@given(st.tuples(*[st.integers(1, 90)] * 3), st.integers(0, 2**32), st.booleans())
@settings(max_examples=15)
def test_products_of_any_size(
    machine: Machine, sizes: tuple[int, int, int], seed: int, left: bool
) -> None:
    """The left operand as it is or transposed."""
    m, k, n = sizes
    a, b = _numbers((m, k), np.float32, seed), _numbers((k, n), np.float32, seed + 1)
    arrays = {"a": np.ascontiguousarray(a.T) if left else a, "b": b, "out": np.zeros((m, n), "f4")}
    steps = matmul(machine, F32, (), m, k, n, a=(1, m) if left else None)
    _check(run_steps(steps, machine, arrays)["out"], a, b)


@on_machines
def test_a_batch_with_strides_and_a_broadcast_operand(machine: Machine) -> None:
    """Heads of an attention: [B, T, H, D] read as [B, H, T, D], and a right operand without B."""
    a, b = _numbers((2, 9, 3, 20), np.float32), _numbers((3, 20, 17), np.float32)
    steps = matmul(machine, F32, (2, 3), 9, 20, 17, a=(9 * 60, 20, 60, 1), b=(0, 20 * 17, 17, 1))
    got = run_steps(steps, machine, {"a": a, "b": b, "out": np.zeros((2, 3, 9, 17), "f4")})["out"]
    _check(got, a.transpose(0, 2, 1, 3), b)


@on_machines
def test_rows_of_a_batch_are_one_product(machine: Machine) -> None:
    a, b = _numbers((4, 5, 8), np.float32), _numbers((8, 30), np.float32)
    steps = matmul(machine, F32, (4,), 5, 8, 30, b=(0, 30, 1), constant=True)
    assert len(steps.prepare) == 1
    got = run_steps(steps, machine, {"a": a, "b": b, "out": np.zeros((4, 5, 30), "f4")})["out"]
    _check(got, a, b)


def _residual_relu(function: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
    """Sum and residual, and the positive part of it as a half."""
    total = function.add(values[0], place.load("residual"))
    zero = function.constant(total.type, 0.0)
    positive = function.select(function.compare("olt", total, zero), zero, total)
    return [total, function.convert("fptrunc", positive, F16)]


@on_machines
def test_an_epilogue_reads_other_arrays_and_writes_several(machine: Machine) -> None:
    m, k, n = 19, 31, 45
    a, b, c = (
        _numbers((m, k), np.float32),
        _numbers((k, n), np.float32),
        _numbers((m, 1), np.float32),
    )
    operands = (EpilogueOperand("residual", F32, (1, 0)), EpilogueOperand("half", F16, (n, 1)))
    epilogue = Epilogue("residual_relu", operands, _residual_relu, ("out", "half"))
    steps = matmul(machine, F32, (), m, k, n, epilogue=epilogue)
    arrays = {
        "a": a,
        "b": b,
        "residual": c,
        "out": np.zeros((m, n), "f4"),
        "half": np.zeros((m, n), "f2"),
    }
    got = run_steps(steps, machine, arrays)
    _check(got["out"], a, b, c)
    assert np.array_equal(got["half"], np.maximum(got["out"], 0).astype("f2"))


@on_machines
def test_sums_can_begin_from_the_output(machine: Machine) -> None:
    a, b, c = (
        _numbers((9, 12), np.float32),
        _numbers((12, 21), np.float32),
        _numbers((9, 21), np.float32),
    )
    steps = matmul(machine, F32, (), 9, 12, 21, epilogue=Epilogue("add", start="out"))
    _check(run_steps(steps, machine, {"a": a, "b": b, "out": c})["out"], a, b, c)


@on_machines
@pytest.mark.parametrize("order", ["panels", "blocks", "tiles"])
@pytest.mark.parametrize("m", [67, M], ids=str)
def test_bits_do_not_depend_on_the_division_into_units(
    machine: Machine, m: Size, order: str
) -> None:
    a, b = _numbers((67, 40), np.float32), _numbers((40, 150), np.float32)
    arrays = {"a": a, "b": b, "out": np.zeros((67, 150), "f4")}
    tiling = Tiling(2, 5, 1, 4, order, 3, prefetch=True)
    steps = matmul(machine, F32, (), m, 40, 150, constant=True, tiling=tiling)
    whole, *parts = (
        run_steps(steps, machine, arrays, {"M": 67}, shares)["out"]
        for shares in ((), (50,), (10, 20, 30, 40, 70, 99))
    )
    _check(whole, a, b)
    assert all(np.array_equal(whole, part) for part in parts)


@on_machines
def test_infinities_stay_in_their_rows(machine: Machine) -> None:
    """Lanes and rows behind the last ones mix with nothing."""
    a, b = _numbers((7, 9), np.float32), _numbers((9, 5), np.float32)
    a[3] = np.inf
    steps = matmul(machine, F32, (), 7, 9, 5)
    got = run_steps(steps, machine, {"a": a, "b": b, "out": np.zeros((7, 5), "f4")})["out"]
    assert np.isfinite(np.delete(got, 3, 0)).all()
    assert not np.isfinite(got[3]).any()


def test_equal_products_have_equal_names_and_texts() -> None:
    one, two = (matmul(AVX2, F32, (), 30, 40, 50).calls[-1].kernel for _ in range(2))
    other = matmul(AVX512, F32, (), 30, 40, 50).calls[-1].kernel
    assert one.name == two.name and one.text() == two.text()
    assert other.name != one.name


TILES = [
    (machine, vectors, rows, high)
    for machine in (AVX512, AVX2, NEON)
    for vectors, rows in MOST_ROWS[machine.registers].items()
    for high in {1, 2 if rows % 2 == 0 else 1}
]


def _tile(
    machine: Machine, element: Type, vectors: int, wide: int, high: int, channels: int = 32
) -> str:
    """The assembly of a convolution's tile over a window of 3 × 3."""
    lanes = machine.lanes(element)
    names = dict.fromkeys(("a", "b", "out"), element)
    rows = (Axis(high * 3, {"a": 20 * 32, "out": 20 * 64}), Axis(wide * 3, {"a": 32, "out": 64}))
    sums = (Axis(3, {"a": 20 * 32}), Axis(3, {"a": 32}), Axis(channels, {"a": 1}))
    columns = Axis(vectors * lanes * 2, {"out": 1})
    spec = Contraction("tile", element, (), rows, sums, columns, names, panels="b")
    call = contraction_kernel(spec, machine, Tiling(vectors, high, wide, 4, "panels", 1, True))
    return assembly(call.kernel, machine)


@pytest.mark.parametrize(
    ("machine", "vectors", "rows", "high"), TILES,
    ids=lambda each: each.name if isinstance(each, Machine) else str(each),
)  # fmt: skip
def test_nothing_spills_in_the_inner_loop(
    machine: Machine, vectors: int, rows: int, high: int
) -> None:
    """No vector of the largest tiles goes to the stack."""
    text = _tile(machine, F32, vectors, rows // high, high)
    vector, stack = (r"%[yz]mm\d", r"\(%rsp") if machine != NEON else (r"\b[qv]\d", r"\[sp")
    lines = [line for line in text.splitlines() if re.search(vector, line)]
    assert lines
    assert not [line for line in lines if re.search(stack, line)]


@pytest.mark.parametrize("machine", [AVX512, AVX2], ids=lambda each: each.name)
def test_blocks_of_a_long_sum_are_added_outside_the_inner_loop(machine: Machine) -> None:
    vectors, rows = 2, MOST_ROWS[machine.registers][2]
    lines = _tile(machine, F32, vectors, rows, 1, channels=2048).splitlines()
    labels = {line.split(":")[0]: place for place, line in enumerate(lines) if ":" in line}
    jumps = [(n, re.search(r"\bj\w+\s+(\S+)", line)) for n, line in enumerate(lines)]
    loops = [lines[labels[to[1]] : n] for n, to in jumps if to and labels.get(to[1], n) < n]
    inner = min((loop for loop in loops if "vfmadd" in "".join(loop)), key=len)
    assert sum("vfmadd" in line for line in inner) >= 4 * vectors * rows
    assert not [line for line in inner if re.search(r"%[yz]mm\d.*\(%rsp|\(%rsp.*%[yz]mm\d", line)]


@on_machines
@pytest.mark.parametrize("is_open", [False, True])
def test_long_sums_lose_no_more_than_short_ones(machine: Machine, is_open: bool) -> None:
    random = np.random.default_rng(0)
    a, b = random.random((3, 50_003), np.float32), random.random((50_003, 17), np.float32)
    steps = matmul(machine, F32, (), 3, K if is_open else 50_003, 17)
    arrays = {"a": a, "b": b, "out": np.zeros((3, 17), np.float32)}
    result = run_steps(steps, machine, arrays, {"K": 50_003})["out"]
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-6)


@pytest.mark.skipif(AVX512 not in RUNNABLE, reason="needs AVX-512")
def test_masks_are_used_for_the_last_columns() -> None:
    steps = matmul(AVX512, F32, (), 8, 16, 21, constant=True)
    assert "{%k" in assembly(steps.calls[-1].kernel, AVX512)
