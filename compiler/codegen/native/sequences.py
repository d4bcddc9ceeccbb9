"""What a frame of native code writes: sequences of commands, and the lines of a step between them.

A command is a call of a kernel with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.writer import Writer
from compiler.escape import one_line
from compiler.ir.dims import Size

Argument: TypeAlias = "NumpyOperand | Size"
"""An argument of a command: an array, by its address, or a size."""


@dataclass(frozen=True)
class Call:
    """A call of a kernel in a step; `name` is the kernel's in the module.

    It is made for each of `repeats` blocks, of which the kernel's cost is that of one.
    """

    step: int
    name: str
    kernel: NativeKernel
    repeats: Size = 1


@dataclass
class Commands:
    """A sequence that is being written: its commands as text, and what each run gives it."""

    lines: list[str]
    given: list[str]
    step: int | None = None
    """The step of the last command, whose ops have been named."""

    def argument(self, argument: Argument) -> str:
        """The text of an argument; arrays that are new in every step are numbered."""
        if not isinstance(argument, NumpyOperand) or argument.steady:
            return str(argument)
        if argument.name not in self.given:
            self.given.append(argument.name)
        place, dtype = self.given.index(argument.name), argument.type.dtype.numpy.name
        return f"native.feed({place}, {dtype!r})"


class StepWriter(Writer):
    """Writes the step; the sequence begun is ended before any other line."""

    def __init__(self, depth: int, end: Callable[[], None]) -> None:
        super().__init__(depth)
        self._end = end

    def line(self, text: str = "") -> None:
        """Write one line after the sequence begun, if there is one."""
        self._end()
        super().line(text)


def tuple_text(items: Sequence[str]) -> str:
    """A tuple of expressions."""
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def site(arguments: Sequence[Argument | str], comments: Sequence[str]) -> str:
    """Where a command is from, as errors name it: its arguments, and its ops with their lines."""
    names = [repr(str(each)) for each in arguments]
    return f"({tuple_text(names)}, {tuple_text([repr(one_line(each)) for each in comments])})"
