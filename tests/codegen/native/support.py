"""Call kernels from NumPy, and guard the margins of their arrays."""

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.codegen.native.machine import Machine
from compiler.ir.dims import Dim, evaluate
from tests.codegen.native.compiled_kernels import load

MARGIN = 64
"""Elements before and behind each array that no kernel may touch."""


def guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The whole of a buffer with margins of NaN, and a copy of the array inside it."""
    buffer = np.full(array.size + 2 * MARGIN + 1, np.nan, array.dtype)
    inside = buffer[MARGIN + 1 : MARGIN + 1 + array.size].reshape(array.shape)
    inside[...] = array
    return buffer, inside


def run_call(
    call: Any, machine: Machine, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int],
    shares: Sequence[int] = (),
) -> None:  # fmt: skip
    """Run a call's units, divided at `shares` (fractions in percent), in falling order."""
    function, slots = load(call.kernel, machine), (ctypes.c_int64 * len(call.arguments))()
    for place, each in enumerate(call.arguments):
        slots[place] = (
            evaluate(each, sizes) if isinstance(each, Dim | int) else arrays[each].ctypes.data
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
        name: np.full(evaluate(size, sizes), np.nan, dtype) for name, size in steps.scratch.items()
    }
    pairs = {name: guarded(each) for name, each in {**arrays, **scratch}.items()}
    inside = {name: pair[1] for name, pair in pairs.items()}
    for call in (*steps.prepare, *steps.calls):
        run_call(call, machine, inside, sizes, shares)
    for name, (buffer, array) in pairs.items():
        margins = np.concatenate([buffer[: MARGIN + 1], buffer[MARGIN + 1 + array.size :]])
        assert np.isnan(margins).all(), f"the kernel wrote around {name!r}"
    return inside
