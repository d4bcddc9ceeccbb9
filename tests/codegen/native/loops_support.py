"""Build kernel bodies over NumPy arrays and run them as machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.module_writer import ModuleWriter, NumpyOperand
from compiler.codegen.native.bounds.instrument import with_bounds_checks
from compiler.codegen.native.loops.lower import LoweredKernel, lower_one
from compiler.codegen.native.machine import Machine
from compiler.ir.dims import Size, evaluate
from compiler.ir.region import WHOLE, Region
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import StorageKind
from runtime.native.bounds import CheckedCode
from tests.support.compiled_kernels import load

GUARD = 128
"""Bytes of a guard zone before and after an array."""


def operand(
    name: str, shape: Sequence[Size], dtype: DType = DType.FP32, region: Region = WHOLE
) -> NumpyOperand:
    """An operand of a kernel, in a buffer of its own."""
    type = TensorType(dtype, tuple(shape))
    return NumpyOperand(
        cast(ModuleWriter, None), name, type, True, (StorageKind.BUFFER, name, region)
    )


class Case:
    """A kernel under construction: `case.ref("X", shape)` is an operand in it."""

    def __init__(self, shape: Sequence[Size], kernel: KernelBody | None = None) -> None:
        self.k = KernelBody("case", shape) if kernel is None else kernel
        self.indices = self.k.indices

    def ref(
        self, name: str, shape: Sequence[Size], dtype: DType = DType.FP32, region: Region = WHOLE,
        view: Shape | None = None,
    ) -> Ref:  # fmt: skip
        """An operand in the kernel, viewed in a shape."""
        created = operand(name, shape, dtype, region)
        return Ref(self.k, created, tuple(shape) if view is None else view)


class Guarded:
    """An array between guard zones that must not change."""

    def __init__(self, values: np.ndarray) -> None:
        base = values if values.base is None else np.ascontiguousarray(values)
        self.bytes = np.full(base.nbytes + 2 * GUARD, 0xFF, np.uint8)
        flat = self.bytes[GUARD : GUARD + base.nbytes]
        self.array = flat.view(base.dtype).reshape(base.shape)
        self.array[...] = base

    def check(self, name: str) -> None:
        """Fail if a guard zone was written."""
        for side in (self.bytes[:GUARD], self.bytes[len(self.bytes) - GUARD :]):
            assert (side == 0xFF).all(), f"{name}: written out of bounds"


def call(
    lowered: LoweredKernel, machine: Machine, arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int], division: int = 1,
) -> None:  # fmt: skip
    """Run a lowered kernel, its units divided into some calls."""
    entry = load(lowered.kernel, machine)
    slots = [arrays[each.name].ctypes.data for each in lowered.operands]
    slots += [evaluate(size, dims) for size in lowered.sizes]
    words = (ctypes.c_int64 * max(len(slots), 1))(*slots)
    units = evaluate(lowered.kernel.units, dims)
    step = max(1, -(-units // division))
    for first in range(0, units, step):
        entry(ctypes.addressof(words), first, min(first + step, units))


def run_checked(
    kernel: KernelBody, machine: Machine, arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Run a kernel that checks bounds on copies of arrays; OutOfBounds if it leaves one."""
    lowered, result = lower_one(kernel, machine), {n: array.copy() for n, array in arrays.items()}
    arguments = [result[each.name] for each in lowered.operands]
    sizes = [evaluate(size, dims or {}) for size in lowered.sizes]
    name, units = lowered.kernel.name, evaluate(lowered.kernel.units, dims or {})
    code = CheckedCode({name: with_bounds_checks(lowered.kernel.text())}, machine.name)
    code([(name, [*arguments, *sizes], units)])()
    return result


def run(
    kernel: KernelBody, machine: Machine, arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Run a kernel on copies of arrays between guard zones; the same bits however it is divided."""
    lowered = lower_one(kernel, machine)
    results: list[dict[str, np.ndarray]] = []
    for division in (1, 3, 1000):
        guarded = {name: Guarded(array) for name, array in arrays.items()}
        call(lowered, machine, {n: g.array for n, g in guarded.items()}, dims or {}, division)
        for name, each in guarded.items():
            each.check(name)
        results.append({name: each.array for name, each in guarded.items()})
    for other in results[1:]:
        for name, array in results[0].items():
            assert array.tobytes() == other[name].tobytes(), f"{name} depends on the division"
    return results[0]
