"""Native kernels: functions of LLVM IR with one calling convention.

    void NAME(ptr arguments, i64 first, i64 last)

`arguments` points to slots of 8 bytes: addresses and sizes, in the kernel's own order. A call does
the units of work `first` to `last` - 1; units are independent, so that threads share them, and the
result does not depend on how they are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Type, Value, module_text
from compiler.ir.dims import Size

SLOT = 8
"""Bytes of an argument."""


@dataclass(frozen=True)
class NativeKernel:
    """A kernel's functions, its entry first, and the number of its units of work.

    `flops` and `nbytes` are its cost: arithmetic operations, and bytes read and written once.
    """

    functions: Sequence[Function]
    units: Size
    flops: Size = 0
    nbytes: Size = 0

    @property
    def work(self) -> Size:
        """Operations plus bytes, by which calls are shared among threads."""
        return self.flops + self.nbytes

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.functions[0].name

    def text(self) -> str:
        """The LLVM IR of the kernel as a module of its own."""
        return module_text(self.functions)


def entry(name: str, arguments: Sequence[Type]) -> tuple[Function, list[Value], Value, Value]:
    """Begin an entry function; returns it, its arguments, and the first and last unit.

    `arguments` are the types of the slots: POINTER or I64.
    """
    function = Function(name, [("arguments", POINTER), ("first", I64), ("last", I64)])
    slots, first, last = function.parameters
    values = [
        function.load(type, function.address(slots, place * SLOT))
        for place, type in enumerate(arguments)
    ]
    return function, values, first, last
