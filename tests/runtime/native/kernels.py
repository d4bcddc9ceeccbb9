"""Small kernels for the tests of native code."""

from __future__ import annotations

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, I32, I64, POINTER, VOID, Function, Value


def rows(name: str, element: object = None) -> NativeKernel:
    """y[u, i] = element(x[u, i]) for rows u, the units; arguments: x, y, the length of a row."""
    function, (x, y, length), first, last = entry(name, [POINTER, POINTER, I64])
    compute = element or (lambda f, value: f.add(value, value))

    def row(unit: Value, _: list[Value]) -> list[Value]:
        start = function.mul(unit, length)

        def column(number: Value, _: list[Value]) -> list[Value]:
            place = function.add(start, number)
            value = function.load(F32, function.address(x, place, 4))
            result = compute(function, value)  # type: ignore[operator]
            function.store(result, function.address(y, place, 4))
            return []

        function.loop_if_any(0, length, 1, column)
        return []

    function.loop_if_any(first, last, 1, row)
    return NativeKernel([function], 1)


def double() -> NativeKernel:
    """Y = 2 x."""
    return rows("double")


def scale(factor: float) -> NativeKernel:
    """Y = factor x."""

    def times(f: Function, value: Value) -> Value:
        return f.mul(value, f.constant(F32, factor))

    return rows("scale", times)


def sums() -> NativeKernel:
    """y[u] = sum of row u of x, in order; units are rows."""
    function, (x, y, length), first, last = entry("sums", [POINTER, POINTER, I64])

    def row(unit: Value, _: list[Value]) -> list[Value]:
        start = function.mul(unit, length)

        def column(number: Value, carried: list[Value]) -> list[Value]:
            place = function.add(start, number)
            value = function.load(F32, function.address(x, place, 4))
            return [function.add(carried[0], value)]

        zero = function.constant(F32, 0.0)
        (total,) = function.loop_if_any(0, length, 1, column, [zero])
        function.store(total, function.address(y, unit, 4))
        return []

    function.loop_if_any(first, last, 1, row)
    return NativeKernel([function], 1)


def record_mode() -> NativeKernel:
    """Store the control register of floats (MXCSR) as int32; x86-64 only."""
    function, (y,), _, _ = entry("record_mode", [POINTER])
    function.call("llvm.x86.sse.stmxcsr", VOID, y)
    return NativeKernel([function], 1)


def count_calls() -> NativeKernel:
    """y[u] += 1 as int32 for each unit: shows units that ran twice or never."""
    function, (y,), first, last = entry("count_calls", [POINTER])

    def unit(number: Value, _: list[Value]) -> list[Value]:
        place = function.address(y, number, 4)
        function.store(function.add(function.load(I32, place), function.constant(I32, 1)), place)
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1)


def record_thread() -> NativeKernel:
    """Store an address of the thread's stack and MXCSR for each unit, slowly; x86-64 only."""
    function, (stacks, modes), first, last = entry("record_thread", [POINTER, POINTER])
    here = function.value(POINTER, "alloca i64, align 8")

    def unit(number: Value, _: list[Value]) -> list[Value]:
        def pause(_: Value, __: list[Value]) -> list[Value]:
            function.call("llvm.x86.sse2.pause", VOID)
            return []

        function.loop(0, 100, 1, pause)
        function.call("llvm.x86.sse.stmxcsr", VOID, function.address(modes, number, 4))
        stack = function.value(I64, f"ptrtoint {here} to i64")
        function.store(stack, function.address(stacks, number, 8))
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1)


def pauses() -> NativeKernel:
    """Do nothing counts[u] times in unit u, int64; x86-64 only."""
    function, (counts,), first, last = entry("pauses", [POINTER])

    def unit(number: Value, _: list[Value]) -> list[Value]:
        def pause(_: Value, __: list[Value]) -> list[Value]:
            function.call("llvm.x86.sse2.pause", VOID)
            return []

        function.loop(0, function.load(I64, function.address(counts, number, 8)), 1, pause)
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1)
