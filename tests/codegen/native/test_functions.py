"""Elementary functions of native kernels: accuracy over all floats, and NumPy's special cases."""

import math
import re
from functools import lru_cache

import numpy as np
import pytest

from compiler.codegen.native.functions import FUNCTIONS, lowering
from compiler.codegen.native.llvm_ir import Function, Value, constant
from compiler.codegen.native.machine import AVX2, AVX512, MACHINES, NEON, Machine
from compiler.codegen.trace import ELEMENTWISE
from compiler.ir.types import DType
from tests.codegen.native.function_kernels import (
    Library,
    all_exponents,
    assembly,
    elementwise,
    same,
    ulps,
    whole_vectors,
)
from tests.support.compiled_kernels import RUNNABLE

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="this CPU has no AVX2")

BOUNDS = {
    "exp": 1, "expm1": 2, "log": 1, "log1p": 2, "log2": 1, "log10": 1, "tanh": 3, "sinh": 3,
    "cosh": 2, "sigmoid": 3, "erf": 4, "sin": 3, "cos": 3, "tan": 4, "arcsin": 3, "arccos": 2,
    "arctan": 2, "sqrt": 0.5, "reciprocal": 0.5, "square": 0.5,
}  # fmt: skip
"""The greatest error of each function of one number, in ulps."""

EXACT = ("sign", "floor", "ceil", "rint", "trunc", "negative", "absolute")
TRUTHS = ("isfinite", "isnan", "isinf", "logical_not")
PAIRS = {"power": 1.5, "arctan2": 2}
EXACT_PAIRS = (
    *("add", "subtract", "multiply", "divide", "fmod", "remainder", "floor_divide"),
    *("maximum", "minimum"),
)
TRUTHS_OF_PAIRS = (
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    *("logical_and", "logical_or", "logical_xor"),
)
ONE, TWO = (*BOUNDS, *EXACT, *TRUTHS), (*PAIRS, *EXACT_PAIRS, *TRUTHS_OF_PAIRS)
FLOATS = (DType.FP32, DType.FP64)
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])


def kernels(lanes_of_float: int, flushed: bool = False, names: tuple[str, ...] = (*ONE, *TWO)):
    """A kernel for every function and float type; doubles have half as many lanes."""
    return [
        elementwise(
            f"{name}_{dtype.text}_{lanes_of_float}{'_flushed' * flushed}",
            FUNCTIONS[name],
            [dtype] * (1 if name in ONE else 2),
            lanes_of_float * 4 // dtype.itemsize,
            flushed,
        )
        for name in names
        for dtype in FLOATS
    ]


@lru_cache
def library(machine: Machine) -> Library:
    """All kernels with full vectors of a machine, and with denormal numbers as zeros."""
    lanes = machine.vector_bytes // 4
    return Library([*kernels(lanes), *kernels(lanes, flushed=True)], machine)


def compute(name: str, dtype: DType, *operands: np.ndarray, suffix: str = "") -> np.ndarray:
    """A function by the first machine's kernel; booleans for predicates."""
    machine = RUNNABLE[0]
    result = np.bool_ if name in (*TRUTHS, *TRUTHS_OF_PAIRS) else dtype.numpy
    kernel = f"{name}_{dtype.text}_{machine.vector_bytes // 4}{suffix}"
    return library(machine)(kernel, result, *operands)


@lru_cache
def numbers(dtype: DType) -> np.ndarray:
    """Numbers of every exponent, and numbers near where functions change."""
    ends = all_exponents(dtype.numpy, 2000 if dtype is DType.FP32 else 40)
    random = np.random.default_rng(1)
    near = [random.uniform(-a, a, 20000) for a in (1, 3, 20, 110, 800, 1e5)]
    halves = np.arange(-50, 50) * 0.5
    edges = [1 + random.normal(size=20000) * 1e-4, halves, np.arange(1, 5000) * (math.pi / 2)]
    with np.errstate(all="ignore"):
        return whole_vectors(np.concatenate([ends, *near, *edges]).astype(dtype.numpy))


@lru_cache
def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of random numbers of all sizes, of small integers, and of special numbers."""
    random, kind, count = np.random.default_rng(3), dtype.numpy, 1 << 15
    any_ = all_exponents(kind, 64 if dtype is DType.FP32 else 8)
    x, y = random.permutation(any_), random.permutation(any_)
    limits = [math.inf, math.nan, np.finfo(kind).max, np.finfo(kind).tiny, 1e30, 1e-30]
    special = [0, 1, 2, 0.5, 3, 1.5, 2**24 + 1, np.finfo(kind).smallest_subnormal, *limits]
    grid = np.meshgrid(*[np.array([*special, *(-each for each in special)])] * 2)
    base = [np.exp(random.normal(size=count) * size) for size in (1e-3, 1, 10)]
    small = random.integers(-40, 40, (2, count))
    powers = [random.uniform(-60, 60, count) for _ in base]
    columns = (x, *base, small[0], grid[0].ravel()), (y, *powers, small[1], grid[1].ravel())
    left, right = ([each.astype(kind) for each in column] for column in columns)
    return whole_vectors(np.concatenate(left)), whole_vectors(np.concatenate(right))


def precise(dtype: DType, *operands: np.ndarray) -> list[np.ndarray]:
    """Operands in a type with more digits."""
    kind = np.float64 if dtype is DType.FP32 else np.longdouble
    with np.errstate(all="ignore"):
        return [operand.astype(kind) for operand in operands]


def exact_sigmoid(x: np.ndarray) -> np.ndarray:
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1) / (1 + z)


def exact_erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(each) for each in x.astype(np.float64)]).astype(x.dtype)


def exact(name: str, *operands: np.ndarray) -> np.ndarray:
    """The function by NumPy, or by its definition."""
    own = {"sigmoid": exact_sigmoid, "erf": exact_erf}
    with np.errstate(all="ignore"):
        return own.get(name, getattr(np, name, None))(*operands)


def assert_accurate(name: str, dtype: DType, bound: float, *operands: np.ndarray) -> None:
    actual = compute(name, dtype, *operands)
    wanted = exact(name, *precise(dtype, *operands))
    error = ulps(actual, wanted)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (
        f"{name}{[operand[worst] for operand in operands]}: {actual[worst]}"
    )
    signs = (np.signbit(actual) != np.signbit(wanted)) & ~np.isnan(wanted)
    assert not signs.any(), (
        f"{name}{[operand[signs][0] for operand in operands]} has the wrong sign"
    )


# ---- accuracy -----------------------------------------------------------------------------------


@each_float
@pytest.mark.parametrize("name", BOUNDS)
def test_functions_are_accurate_for_every_exponent(name, dtype):
    x = numbers(dtype)
    assert_accurate(name, dtype, BOUNDS[name], x[::4] if name == "erf" else x)


@each_float
@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_numbers_are_accurate(name, dtype):
    assert_accurate(name, dtype, PAIRS[name], *pairs(dtype))


@each_float
@pytest.mark.parametrize("name", EXACT)
def test_rounding_and_signs_are_numpys_to_the_bit(name, dtype):
    x = numbers(dtype)
    result = compute(name, dtype, x)
    assert same(result, exact(name, x)).all()


@each_float
@pytest.mark.parametrize("name", EXACT_PAIRS)
def test_arithmetic_and_remainders_are_numpys(name, dtype):
    x, y = pairs(dtype)
    actual, wanted = compute(name, dtype, x, y), exact(name, x, y)
    agree = same(actual, wanted)
    if name in ("maximum", "minimum"):  # of 0 and -0, NumPy's choice depends on the CPU
        agree |= (actual == 0) & (wanted == 0)
    assert agree.all(), [each[~agree][:5] for each in (x, y, actual, wanted)]


@each_float
def test_predicates_are_numpys(dtype):
    x, y = pairs(dtype)
    for name in TRUTHS:
        np.testing.assert_array_equal(compute(name, dtype, x), exact(name, x), name)
    for name in TRUTHS_OF_PAIRS:
        np.testing.assert_array_equal(compute(name, dtype, x, y), exact(name, x, y), name)


@each_float
@pytest.mark.parametrize("name", [*BOUNDS, *PAIRS])
def test_functions_are_accurate_with_denormals_as_zeros(name, dtype):
    tiny = np.finfo(dtype.numpy).tiny
    inputs = pairs(dtype) if name in PAIRS else (numbers(dtype)[::8],)
    actual = compute(name, dtype, *inputs, suffix="_flushed")
    wanted = exact(name, *precise(dtype, *inputs))
    error = ulps(actual, wanted)
    denormal = [(np.abs(each) < tiny) & (each != 0) for each in inputs]
    left_out = np.logical_or.reduce([*denormal, np.abs(wanted) <= 2 * tiny])
    error = np.where(left_out, 0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= {**BOUNDS, **PAIRS}[name], [each[worst] for each in inputs]


# ---- vectors and machines -----------------------------------------------------------------------


def test_results_do_not_depend_on_the_lanes_or_the_machine():
    names = (*ONE, *TWO)
    libraries = [(library(each), each.vector_bytes // 4) for each in RUNNABLE]
    for lanes in (0, 2, 4):
        libraries.append((Library(kernels(lanes), RUNNABLE[0]), lanes))
    for name in names:
        for dtype in FLOATS:
            inputs = (numbers(dtype)[::16],) if name in ONE else pairs(dtype)
            inputs = tuple(whole_vectors(each) for each in inputs)
            kind = np.bool_ if name in (*TRUTHS, *TRUTHS_OF_PAIRS) else dtype.numpy
            first, *others = (
                lib(f"{name}_{dtype.text}_{lanes}", kind, *inputs).tobytes()
                for lib, lanes in libraries
            )
            assert all(other == first for other in others), (name, dtype)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_kernels_call_nothing(machine):
    text = assembly(kernels(machine.vector_bytes // 4), machine)
    assert len(text.splitlines()) > 5000
    assert not re.findall(r"^\s+(?:callq?|bl|blr|jmpq?\s+\*\S+)\s.*", text, re.MULTILINE)


def test_functions_cover_all_of_traces():
    assert set(FUNCTIONS) >= ELEMENTWISE
    assert lowering("less", DType.UINT8) is not lowering("less", DType.INT8)
    assert lowering("convolve", DType.FP32) is None


def test_vectors_of_the_machines_are_full():
    assert (AVX512.vector_bytes, AVX2.vector_bytes, NEON.vector_bytes) == (64, 32, 16)


# ---- constants ----------------------------------------------------------------------------------


def with_constant(name: str, number: float, first: bool):
    """A function with one operand fixed."""

    def body(f: Function, x: Value) -> Value:
        fixed = constant(x.type, number)
        return FUNCTIONS[name](f, *((fixed, x) if first else (x, fixed)))

    return body


POWERS = (0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.5, 2.25)


@each_float
def test_constant_operands_compute_the_same(dtype):
    x = numbers(dtype)[::16]
    x = whole_vectors(np.concatenate([x, [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]]))
    x = x.astype(dtype.numpy)
    fixed = [("power", power, False) for power in POWERS]
    fixed += [(n, c, b) for n in ("maximum", "minimum") for c in (0.0, math.nan) for b in (0, 1)]
    functions = [
        elementwise(f"k{i}", with_constant(*each), [dtype], 8) for i, each in enumerate(fixed)
    ]
    compiled = Library(functions, RUNNABLE[0])
    for i, (name, number, first) in enumerate(fixed):
        actual = compiled(f"k{i}", dtype.numpy, x)
        constant_ = np.full_like(x, number)
        wanted = exact(name, *precise(dtype, *((constant_, x) if first else (x, constant_))))
        assert ulps(actual, wanted).max() <= 1.5, (name, number)
