"""Native kernels: functions of LLVM IR with one calling convention.

    void NAME(ptr arguments, i64 first, i64 last)

`arguments` points to slots of 8 bytes: addresses and sizes, in the kernel's own order. A call does
the units of work `first` to `last` - 1; units are independent, so that threads share them, and the
result does not depend on how they are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Type, Value, module_text
from compiler.codegen.native.machine import Machine
from compiler.ir.dims import Size
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

SLOT = 8
"""Bytes of an argument."""


@dataclass(frozen=True)
class NativeKernel:
    """A kernel's functions, its entry first, and the number of its units of work.

    `flops` and `nbytes` are its cost: arithmetic operations, and bytes read and written once. One
    that was `stored` has its name and its text instead of functions.
    """

    functions: Sequence[Function]
    units: Size
    flops: Size = 0
    nbytes: Size = 0
    stored: tuple[str, str] | None = None

    @property
    def work(self) -> Size:
        """Operations plus bytes, by which calls are shared among threads."""
        return self.flops + self.nbytes

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.functions[0].name if self.stored is None else self.stored[0]

    def text(self) -> str:
        """The LLVM IR of the kernel as a module of its own."""
        return self._text

    @cached_property
    def _text(self) -> str:
        return module_text(self.functions) if self.stored is None else self.stored[1]


OnKernel: TypeAlias = Callable[[str, str, Machine], object]
"""Receives the name and the IR text of a kernel, and the machine that it is for."""


@dataclass
class KernelTexts:
    """The kernels of a module: IR texts by name. Kernels of equal text are one.

    `make_name` makes a name unique in the module, `finish` changes a text before it is kept, and
    `on_kernel` is called with each kernel that is kept.
    """

    machine: Machine
    make_name: Callable[[str], str]
    finish: Callable[[str], str]
    on_kernel: OnKernel | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _known: dict[int, tuple[NativeKernel, str]] = field(
        default_factory=dict[int, tuple[NativeKernel, str]]
    )

    def name(self, kernel: NativeKernel) -> str:
        """The name of a kernel in the module; its text is kept."""
        if id(kernel) not in self._known:
            self._known[id(kernel)] = kernel, self._kept(kernel)
        return self._known[id(kernel)][1]

    def _kept(self, kernel: NativeKernel) -> str:
        text = self.finish(kernel.text())
        anonymous = text.replace(f"@{kernel.name}(", "@(")
        if anonymous not in self._names:
            name = self._names[anonymous] = self.make_name(kernel.name)
            self.texts[name] = text.replace(f"@{kernel.name}(", f"@{name}(")
            if self.on_kernel is not None:
                self.on_kernel(name, self.texts[name], self.machine)
        return self._names[anonymous]


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
