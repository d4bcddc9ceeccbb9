"""Functions of integers and booleans in native kernels, and casts: those of NumPy."""

import math
import re
from functools import lru_cache

import numpy as np
import pytest

from compiler.codegen.native.functions import cast, lowering
from compiler.codegen.native.llvm_ir import Function, Value
from compiler.codegen.native.machine import MACHINES, Machine
from compiler.ir.types import DType
from tests.codegen.native.function_kernels import Library, assembly, elementwise
from tests.support.compiled_kernels import RUNNABLE

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="this CPU has no AVX2")

INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64)
ONE = (
    *("negative", "absolute", "sign", "square", "reciprocal", "floor", "ceil", "trunc"),
    *("isfinite", "isnan", "isinf", "logical_not"),
)
TWO = (
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    *("logical_and", "logical_or", "logical_xor", "add", "subtract", "multiply"),
    *("floor_divide", "remainder", "fmod", "power", "maximum", "minimum"),
)
OF_BOOLEANS = (
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    *("logical_and", "logical_or", "logical_xor", "add", "multiply", "maximum", "minimum"),
)
TYPES = tuple(each for each in DType if each is not DType.TOKEN)


def integer_kernels(lanes: int) -> list[Function]:
    """A kernel for every function and type."""
    named = [(name, dtype, 1) for dtype in INTEGERS for name in ONE]
    named += [(name, dtype, 2) for dtype in INTEGERS for name in TWO]
    named += [(name, DType.BOOL, 2) for name in OF_BOOLEANS]
    return [
        elementwise(f"{name}_{dtype.text}", lowering(name, dtype), [dtype] * count, lanes)
        for name, dtype, count in named
    ]


def cast_kernels(lanes: int) -> list[Function]:
    """A kernel for every pair of types."""

    def body(source: DType, target: DType):
        def convert(f: Function, x: Value) -> Value:
            return cast(f, x, source, target)

        return convert

    return [
        elementwise(f"cast_{a.text}_{b.text}", body(a, b), [a], lanes) for a in TYPES for b in TYPES
    ]


@lru_cache
def library(machine: Machine, lanes: int) -> Library:
    return Library([*integer_kernels(lanes), *cast_kernels(lanes)], machine)


EVERYWHERE = [(machine, lanes) for machine in RUNNABLE for lanes in (0, 16)]
everywhere = pytest.mark.parametrize(
    ("machine", "lanes"), EVERYWHERE, ids=[f"{m.name}-{lanes}" for m, lanes in EVERYWHERE]
)

LIMITS = (
    *(0.0, 0.5, 1.5, 2.5, math.inf, math.nan, 65504, 65519, 65520, 2.0**31, 2.0**31 - 1, 2.0**63),
    *(
        2.0**62,
        255,
        256,
        2.0**-24,
        2.0**-25,
        2.0**-25 * (1 + 2**-20),
        1 + 2.0**-11,
        3.39e38,
        1e-300,
    ),
    *(1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-45, 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40),
    *(3.4028235e38, 3.3961775e38, 1e300, 2.0**-133, 2.0**-134 * 1.5, 2.0**-14 * (1 - 2.0**-12)),
    *(2.0**-150, 1e-40),
)
"""Halfway cases of the narrower types, and their ends."""


def values(dtype: DType) -> np.ndarray:
    """Random elements of a type: of all bits, and small ones."""
    random, kind, count = np.random.default_rng(5), dtype.numpy, 4096
    if dtype is DType.BOOL:
        return random.integers(0, 2, count).astype(bool)
    bits = random.integers(0, 1 << (8 * kind.itemsize), count, np.dtype(f"u{kind.itemsize}"))
    if not dtype.is_float:
        low = max(np.iinfo(kind).min, -300)
        small = random.integers(low, min(np.iinfo(kind).max, 300), count)
        return np.concatenate([bits.view(kind), small.astype(kind)])
    near = random.normal(size=count) * 10 ** random.uniform(-6, 12, count)
    near[::2] = np.rint(near[::2])
    near[: 2 * len(LIMITS)] = [*LIMITS, *(-limit for limit in LIMITS)]
    with np.errstate(all="ignore"):
        return np.concatenate([bits.view(kind), near.astype(kind)])


def operands(name: str, dtype: DType) -> list[np.ndarray]:
    """Operands with zeros, ones and ends of the range among them."""
    x = values(dtype)
    y = np.random.default_rng(8).permutation(x)
    if dtype is not DType.BOOL:
        y[::7], y[1::5] = 0, np.array(-1).astype(dtype.numpy)
        x[:64:2] = np.iinfo(dtype.numpy).min
    if name == "power":
        return [x, np.abs(y) % 70]
    if name == "reciprocal":
        return [np.where(x == 0, 1, x).astype(dtype.numpy)]
    return [x] if name in ONE else [x, y]


@everywhere
def test_integers_compute_as_in_numpy(machine, lanes):
    named = [(name, dtype) for dtype in INTEGERS for name in (*ONE, *TWO)]
    for name, dtype in [*named, *((name, DType.BOOL) for name in OF_BOOLEANS)]:
        inputs = operands(name, dtype)
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(*inputs)
        actual = library(machine, lanes)(f"{name}_{dtype.text}", wanted.dtype, *inputs)
        np.testing.assert_array_equal(actual, wanted, f"{name} {dtype.text}")


@everywhere
@pytest.mark.parametrize("target", TYPES, ids=[type_.text for type_ in TYPES])
def test_casts_are_numpys(machine, lanes, target):
    for source in TYPES:
        inputs, name = values(source), f"cast_{source.text}_{target.text}"
        actual = library(machine, lanes)(name, target.numpy, inputs)
        with np.errstate(all="ignore"):
            wanted = inputs.astype(target.numpy)
            agree = (actual == wanted) | ((actual != actual) & (wanted != wanted))
        assert agree.all(), [name, *(each[~agree][:5] for each in (inputs, actual, wanted))]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_kernels_call_nothing(machine):
    text = assembly([*integer_kernels(16), *cast_kernels(16)], machine)
    assert len(text.splitlines()) > 1000
    assert not re.findall(r"^\s+(?:callq?|bl|blr|jmpq?\s+\*\S+)\s.*", text, re.MULTILINE)
