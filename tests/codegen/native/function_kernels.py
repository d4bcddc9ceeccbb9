"""Elementwise functions as kernels over arrays, compiled many at a time, and errors in ulps."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.codegen.native.functions import ELEMENTS
from compiler.codegen.native.llvm_ir import (
    I8,
    I64,
    POINTER,
    VOID,
    Function,
    Value,
    constant,
    module_text,
    zero,
)
from compiler.codegen.native.machine import Machine
from compiler.ir.types import DType
from tests.support.compiled_kernels import assembly_of, linked

_FLUSHED, _USUAL = 0x9FC0, 0x1F80
"""MXCSR with and without flush-to-zero and denormals-are-zero."""

Body = Callable[..., Value]
"""Emits a function of the operands that follow the `Function`."""


def elementwise(
    name: str, body: Body, operands: Sequence[DType], lanes: int, flushed: bool = False
) -> Function:
    """A kernel `(operand addresses…, result address, count)` over a multiple of `lanes` elements.

    `flushed` computes as the executor does, with denormal numbers as zeros.
    """
    slots = [(f"x{place}", POINTER) for place in range(len(operands))]
    f = Function(name, [*slots, ("y", POINTER), ("n", I64)])
    *inputs, result, n = f.parameters
    if flushed:
        _set_mxcsr(f, _FLUSHED)

    def step(i: Value, _: object) -> list[Value]:
        values = [_load(f, p, i, t, lanes) for p, t in zip(inputs, operands, strict=True)]
        _store(f, body(f, *values), result, i)
        return []

    f.loop(0, n, max(lanes, 1), step)
    if flushed:
        _set_mxcsr(f, _USUAL)
    return f


def _load(f: Function, pointer: Value, i: Value, dtype: DType, lanes: int) -> Value:
    type = ELEMENTS[dtype].vector(lanes)
    if dtype is DType.BOOL:
        stored = f.load(I8.vector(lanes), f.address(pointer, i))
        return f.compare("ne", stored, zero(stored.type))
    return f.load(type, f.address(pointer, i, type.nbytes))


def _store(f: Function, value: Value, pointer: Value, i: Value) -> None:
    stored = f.convert("zext", value, I8) if value.type.element == "i1" else value
    f.store(stored, f.address(pointer, i, stored.type.nbytes))


def _set_mxcsr(f: Function, state: int) -> None:
    place = f.value(POINTER, "alloca i32")
    f.store(constant(ELEMENTS[DType.INT32], state), place)
    f.call("llvm.x86.sse.ldmxcsr", VOID, place)


def assembly(functions: Sequence[Function], machine: Machine) -> str:
    """The assembly of functions."""
    return assembly_of(module_text(functions), machine)


class Library:
    """Compiled elementwise kernels, called on arrays by name."""

    def __init__(self, functions: Sequence[Function], machine: Machine) -> None:
        names = tuple(function.name for function in functions)
        self._library = linked(module_text(functions), names, machine)

    def __call__(self, name: str, dtype: Any, *operands: np.ndarray) -> np.ndarray:
        """Compute a function of arrays; the result has elements of `dtype`."""
        result = np.empty(len(operands[0]), dtype)
        whole = [np.ascontiguousarray(operand) for operand in operands]
        addresses = [each.ctypes.data for each in (*whole, result)]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses), ctypes.c_int64)
        kind(self._library.addresses[name])(*addresses, len(result))
        return result


def whole_vectors(values: np.ndarray) -> np.ndarray:
    """The values and copies of the last, up to a multiple of 64."""
    return np.concatenate([values, np.repeat(values[-1:], -len(values) % 64)])


def all_exponents(dtype: Any, each: int) -> np.ndarray:
    """Numbers of every exponent and both signs, of `each` significands.

    The first two significands are the least and the greatest, so that zeros, infinities, NaN,
    and the least and greatest denormal and normal numbers are among them.
    """
    kind = np.dtype(dtype)
    mantissa = np.finfo(kind).nmant
    integer = np.dtype(f"u{kind.itemsize}")
    exponents = np.arange(1 << (8 * kind.itemsize - 1 - mantissa), dtype=integer)
    random = np.random.default_rng(7)
    significands = random.integers(0, 1 << mantissa, (len(exponents), each), integer)
    significands[:, :2] = 0, (1 << mantissa) - 1
    bits = (exponents[:, None] << integer.type(mantissa) | significands).ravel()
    positive = bits.view(kind)
    return whole_vectors(np.concatenate([positive, -positive]))


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The errors of results in units in the last place of the exact ones, which are more precise.

    An error is infinite where exactly one is NaN, or one overflows and the other does not.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(found.dtype)
        size = np.where(np.isfinite(rounded), np.abs(rounded), 1).astype(found.dtype)
        error = np.abs(found.astype(exact.dtype) - exact) / np.spacing(size).astype(exact.dtype)
    limits = np.isinf(found) | np.isinf(rounded)
    error = np.where(limits, np.where(found == rounded, 0, np.inf), error)
    both, either = np.isnan(found) & np.isnan(exact), np.isnan(found) | np.isnan(exact)
    return np.where(both, 0, np.where(either, np.inf, error))


def same(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """True where results are equal to the bit, or both NaN."""
    equal = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    return equal | (np.isnan(found) & np.isnan(wanted))
