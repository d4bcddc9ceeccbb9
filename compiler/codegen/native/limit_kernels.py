"""Kernels that measure what a CPU reaches: multiply-adds in registers, and copies of memory."""

from __future__ import annotations

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, I64, POINTER, Value
from compiler.codegen.native.machine import Machine

SUMS, STEPS = 12, 4096
"""Independent sums of a unit of `arithmetic`, as many as hide the latency, and its iterations."""
BLOCK = 4096
"""Bytes that a unit of `copying` copies."""


def arithmetic(machine: Machine) -> NativeKernel:
    """y[u] = a vector, after STEPS rounds of SUMS multiply-adds of float32 vectors.

    Its argument is y; it has two operations for each multiply-add and element.
    """
    function, (y,), first, last = entry("arithmetic", [POINTER])
    vector = machine.vector(F32)
    half = function.constant(vector, 0.5)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        def step(_: Value, values: list[Value]) -> list[Value]:
            return [function.fma(value, half, half) for value in values]

        ones = [function.constant(vector, 1.0 + place) for place in range(SUMS)]
        total, *others = function.loop(0, STEPS, 1, step, ones)
        for term in others:
            total = function.add(total, term)
        function.store(total, function.address(y, number, machine.vector_bytes))
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1, 2 * SUMS * STEPS * machine.lanes(F32), machine.vector_bytes)


def copying(machine: Machine) -> NativeKernel:
    """Copies x to y; a unit is a block of BLOCK bytes. Its arguments are x and y."""
    function, (x, y), first, last = entry("copying", [POINTER, POINTER])
    vector, nbytes = machine.vector(F32), machine.vector_bytes

    def unit(number: Value, _: list[Value]) -> list[Value]:
        source, target = (function.address(pointer, number, BLOCK) for pointer in (x, y))

        def step(place: Value, _: list[Value]) -> list[Value]:
            for part in range(4):
                at = function.add(place, function.constant(I64, part))
                value = function.load(vector, function.address(source, at, nbytes))
                function.store(value, function.address(target, at, nbytes))
            return []

        function.loop(0, BLOCK // nbytes, 4, step)
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1, 0, 2 * BLOCK)
