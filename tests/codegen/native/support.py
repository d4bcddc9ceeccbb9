"""Call kernels from NumPy, and guard the margins of their arrays."""

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.codegen.native.bounds.instrument import with_bounds_checks
from compiler.codegen.native.machine import Machine
from compiler.ir.dims import Dim, evaluate
from runtime.native.bounds import CheckedCode
from tests.support.compiled_kernels import load

MARGIN = 64
"""Elements before and behind each array that no kernel may touch."""


def unlikely(dtype: np.dtype) -> float:
    """What fills memory that no kernel may use: NaN, or a number of integers."""
    return np.iinfo(dtype).min + 5 if np.issubdtype(dtype, np.integer) else np.nan


def guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The whole of a buffer with margins of `unlikely`, and a copy of the array inside it."""
    buffer = np.full(array.size + 2 * MARGIN + 1, unlikely(array.dtype), array.dtype)
    inside = buffer[MARGIN + 1 : MARGIN + 1 + array.size].reshape(array.shape)
    inside[...] = array
    return buffer, inside


def run_call(
    call: Any, machine: Machine, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int],
    shares: Sequence[int] = (),
) -> None:  # fmt: skip
    """Run a call's units, divided at `shares` (fractions in percent), in falling order."""
    function, slots = load(call.kernel, machine), (ctypes.c_int64 * len(call.arguments))()
    for place, argument in enumerate(call.arguments):
        slots[place] = (
            evaluate(argument, sizes)
            if isinstance(argument, Dim | int)
            else arrays[argument].ctypes.data
        )
    units = evaluate(call.kernel.units, sizes)
    cuts = sorted({0, units, *(units * share // 100 for share in shares)})
    for first, last in reversed(list(pairwise(cuts))):
        function(ctypes.addressof(slots), first, last)


def run_steps(
    steps: Any, machine: Machine, arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None, shares: Sequence[int] = (),
) -> dict[str, np.ndarray]:  # fmt: skip
    """Run all calls on guarded copies of the arrays; returns the arrays after it."""
    sizes = sizes or {}
    dtype = next(iter(arrays.values())).dtype
    scratch = {
        name: np.full(evaluate(size, sizes), unlikely(dtype), dtype)
        for name, size in steps.scratch.items()
    }
    pairs = {name: guarded(each) for name, each in {**arrays, **scratch}.items()}
    inside = {name: pair[1] for name, pair in pairs.items()}
    for call in (*steps.prepare, *steps.calls):
        run_call(call, machine, inside, sizes, shares)
    for name, (buffer, array) in pairs.items():
        margins = np.concatenate([buffer[: MARGIN + 1], buffer[MARGIN + 1 + array.size :]])
        kept = np.full_like(margins, unlikely(margins.dtype))
        assert margins.tobytes() == kept.tobytes(), f"the kernel wrote around {name!r}"
    return inside


def run_checked_steps(
    steps: Any, machine: Machine, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Run all calls with checks of bounds; OutOfBounds if one leaves an array."""
    dtype = next(iter(arrays.values())).dtype
    inside = {name: each.copy() for name, each in arrays.items()}
    inside |= {name: np.zeros(evaluate(n, sizes), dtype) for name, n in steps.scratch.items()}
    for call in (*steps.prepare, *steps.calls):
        arguments = [
            evaluate(argument, sizes) if isinstance(argument, Dim | int) else inside[argument]
            for argument in call.arguments
        ]
        name, units = call.kernel.name, evaluate(call.kernel.units, sizes)
        code = CheckedCode({name: with_bounds_checks(call.kernel.text())}, machine.name)
        code([(name, arguments, units)])()
    return inside
