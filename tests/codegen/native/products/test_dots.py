"""Products and convolutions by dot-product instructions equal NumPy's on the rounded operands."""

import re

import ml_dtypes
import numpy as np
import pytest

from compiler.codegen.native.functions import cast
from compiler.codegen.native.llvm_ir import BF16, F32, I8, Function, Value
from compiler.codegen.native.machine import AVX512BF16, AVX512VNNI
from compiler.codegen.native.products.axes import Axis, EpilogueOperand
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.convolution import Convolution, convolution
from compiler.codegen.native.products.dots import DOTS, Dot
from compiler.codegen.native.products.epilogue import Epilogue, bias
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.place import ResultAddresses
from compiler.codegen.native.products.tiles import MOST_ROWS, Tiling
from compiler.ir.dims import Dim, Size, evaluate
from compiler.ir.types import DType
from tests.codegen.native.products.test_convolution import (
    CASES,
    VALUES,
    defined,
    drawn,
    known,
    stored,
)
from tests.codegen.native.support import run_steps
from tests.support.compiled_kernels import DOT_MACHINES, assembly

BFLOAT = ml_dtypes.bfloat16
M, K, N = Dim.named("M"), Dim.named("K"), Dim.named("N")
SIZES: list[tuple[Size, Size, Size]] = [
    (1, 1, 1), (5, 7, 9), (37, 53, 101), (1, 100, 1000), (130, 301, 200), (M, 53, N), (M, K, N),
]  # fmt: skip

needs_dots = pytest.mark.skipif(not DOT_MACHINES, reason="needs AVX512_BF16")


def _numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(BFLOAT)


def _check(got: np.ndarray, a: np.ndarray, b: np.ndarray, more: np.ndarray | float = 0.0) -> None:
    a, b = a.astype(float), b.astype(float)
    scale = (abs(a) @ abs(b) + abs(more)).max()
    assert abs(got - (a @ b + more)).max() <= 3e-6 * scale


@needs_dots
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_with_a_bias(sizes: tuple[Size, Size, Size], transposed: bool) -> None:
    m, k, n = sizes
    strides = (k * n, 1, k) if transposed else None
    after = bias(F32, 3)
    steps = matmul(AVX512BF16, BF16, (2,), m, k, n, b=strides, epilogue=after, constant=transposed)
    for values in ({"M": 23, "K": 29, "N": 75}, {"M": 1, "K": 2, "N": 1}):
        m, k, n = (evaluate(size, values) for size in sizes)
        a, b, c = _numbers((2, m, k)), _numbers((2, k, n), 1), _numbers((n,), 2).astype("f4")
        right = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else b
        arrays = {"a": a, "b": right, "bias": c, "out": np.zeros((2, m, n), "f4")}
        _check(run_steps(steps, AVX512BF16, arrays, values)["out"], a, b, c.astype(float))


@needs_dots
@pytest.mark.parametrize("conv", CASES, ids=str)
def test_convolutions(conv: Convolution) -> None:
    steps = convolution(AVX512BF16, BF16, conv, constant=True)
    x, w, d = (each.astype(BFLOAT) for each in drawn(conv))
    arrays = {"input": x, "filter": stored(conv, w), "out": d.astype("f4")}
    got = run_steps(steps, AVX512BF16, arrays, VALUES)["out"]
    exact = [each.astype(float) for each in (x, w)]
    scale = defined(known(conv), *map(abs, exact)).max()
    assert abs(got - defined(known(conv), *exact)).max() <= 3e-6 * scale


@needs_dots
def test_an_epilogue_reads_and_writes_bfloat16() -> None:
    """Whole and partial vectors."""
    m, k, n = 19, 31, 45

    def finish(f: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
        inputs = cast(f, place.load("residual"), DType.BF16, DType.FP32)
        return [cast(f, f.add(values[0], inputs), DType.FP32, DType.BF16)]

    operands = EpilogueOperand("out", BF16), EpilogueOperand("residual", BF16)
    steps = matmul(AVX512BF16, BF16, (), m, k, n, epilogue=Epilogue("add", operands, finish))
    a, b, c = _numbers((m, k)), _numbers((k, n), 1), _numbers((m, n), 2)
    arrays = {"a": a, "b": b, "residual": c, "out": np.zeros((m, n), BFLOAT)}
    got = run_steps(steps, AVX512BF16, arrays)["out"].astype(float)
    want = a.astype(float) @ b.astype(float) + c.astype(float)
    assert abs(got - want).max() <= 2.0**-8 * abs(want).max()


@needs_dots
def test_numbers_beside_a_window_do_not_enter_its_sums() -> None:
    """A partial word reads no neighbour: an infinity stays in its row."""
    a, b = _numbers((7, 9)), _numbers((9, 5), 1)
    a[3] = np.inf
    steps = matmul(AVX512BF16, BF16, (), 7, 9, 5)
    got = run_steps(steps, AVX512BF16, {"a": a, "b": b, "out": np.zeros((7, 5), "f4")})["out"]
    assert np.isfinite(np.delete(got, 3, 0)).all() and not np.isfinite(got[3]).any()


def _bytes(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """All levels, the lowest ones often enough that sums need the whole range."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@needs_dots
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [*SIZES, (3, 5001, 4)], ids=str)
def test_products_of_bytes_are_exact(sizes: tuple[Size, Size, Size], transposed: bool) -> None:
    """Sums have 32 bits, and are rounded once, to float32."""
    m, k, n = sizes
    strides = (k * n, 1, k) if transposed else None
    steps = matmul(AVX512VNNI, I8, (2,), m, k, n, b=strides, constant=transposed)
    for values in ({"M": 23, "K": 29, "N": 75}, {"M": 1, "K": 2, "N": 1}, {"M": 7, "K": 4, "N": 9}):
        m, k, n = (evaluate(size, values) for size in sizes)
        a, b = _bytes((2, m, k)), _bytes((2, k, n), 1)
        right = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else b
        arrays = {"a": a, "b": right, "out": np.zeros((2, m, n), "f4")}
        got = run_steps(steps, AVX512VNNI, arrays, values)["out"]
        np.testing.assert_array_equal(got, (a.astype("f8") @ b.astype("f8")).astype("f4"))


@needs_dots
@pytest.mark.parametrize("conv", CASES, ids=str)
def test_convolutions_of_bytes_are_exact(conv: Convolution) -> None:
    """What pads is zero, not the bias that the instruction needs."""
    steps = convolution(AVX512VNNI, I8, conv, constant=True)
    x, w, d = (each.astype("f4") for each in drawn(conv))
    x, w = _bytes(x.shape), _bytes(w.shape, 1)
    arrays = {"input": x, "filter": stored(conv, w), "out": d}
    got = run_steps(steps, AVX512VNNI, arrays, VALUES)["out"]
    np.testing.assert_array_equal(got, defined(known(conv), x.astype("f8"), w.astype("f8")))


def _tile(dot: Dot, vectors: int, wide: int, high: int) -> str:
    """The assembly of a convolution's tile over a window of 3 × 3."""
    names = {"a": dot.element, "b": dot.element, "out": dot.result}
    rows = (Axis(high * 3, {"a": 20 * 64, "out": 20 * 64}), Axis(wide * 3, {"a": 64, "out": 64}))
    sums = (Axis(3, {"a": 20 * 64}), Axis(3 * 64 // dot.pack, {"a": dot.pack}))
    columns = Axis(vectors * 16 * 2, {"out": 1})
    spec = Contraction(
        "tile", dot.sums, (), rows, sums, columns, names, panels="b", dot=dot
    )  # fmt: skip
    tiling = Tiling(vectors, high, wide, 4, "panels", 1, True)
    return assembly(contraction_kernel(spec, AVX512BF16, tiling).kernel, AVX512BF16)


@pytest.mark.parametrize("dot", DOTS, ids=lambda dot: dot.feature)
@pytest.mark.parametrize("vectors", MOST_ROWS[32])
def test_the_inner_loop_is_dot_products_and_nothing_spills(dot: Dot, vectors: int) -> None:
    rows = MOST_ROWS[32][vectors]
    for high in {1, 2 if rows % 2 == 0 else 1}:
        lines = _tile(dot, vectors, rows // high, high).splitlines()
        instruction = dot.intrinsic.rpartition(".")[2]
        assert sum(instruction in line for line in lines) >= 4 * rows * vectors
        assert not [line for line in lines if "fmadd" in line]
        assert not [line for line in lines if re.search(r"%zmm\d.*\(%rsp|\(%rsp.*%zmm", line)]
