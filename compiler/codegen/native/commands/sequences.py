"""Native code of a step: sequences of commands, and the lines of a step between them.

A command is a call of a kernel with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.writer import Writer
from compiler.ir.dims import Dim, Size
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line

Argument: TypeAlias = "NumpyOperand | Size"
"""An argument of a command: an array, by its address, or a size."""


@dataclass(frozen=True)
class KernelCall:
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

    def append(
        self, name: str, kernel: NativeKernel, arguments: Sequence[Argument],
        is_late: Callable[[Argument], bool], where: str = "",
    ) -> None:  # fmt: skip
        """Write a command; each run gives its late sizes, and its work if that is late then."""
        late = any(map(is_late, arguments))
        listed = [
            self.number(argument) if is_late(argument) else self.argument(argument)
            for argument in arguments
        ]
        costs = ["0" if is_late(count) else str(count) for count in (kernel.flops, kernel.nbytes)]
        if late and is_late(kernel.work):
            costs = [self.number(kernel.work)]
        self.lines.append(
            f"({name!r}, {tuple_text(listed)}, {kernel.units}, {', '.join(costs)}{where}),"
        )

    def number(self, size: Argument) -> str:
        """The text of a size that each run gives, numbered with the arrays."""
        if str(size) not in self.given:
            self.given.append(str(size))
        return f"native.number({self.given.index(str(size))})"


class RowLoop:
    """The calls in a loop over rows of integers that is being written as lines of Python.

    If it has nothing but calls and their scratch, it is written as one repeated sequence instead,
    whose arguments are computed for all rows at once.
    """

    def __init__(self) -> None:
        self._values, self._names = "", list[str]()
        self._offsets: dict[str, str] = {}
        self.scratch, self.calls, self.checks = list[str](), list[str](), list[str]()
        """What a line of the loop was written for, each."""

    def begin(self, values: object, names: Sequence[str]) -> None:
        """The loop goes over `values`, and gives each of its rows these names."""
        self._values, self._names = str(values), [*names]

    def expect(self, text: str) -> None:
        """A check of sizes is one line of the loop, which takes the sizes of all rows, too."""
        self.checks.append(text)

    def shift(self, text: str, operand: object, offset: Size) -> None:
        """The text of an array stands for the elements of another one from an offset on."""
        self._offsets[text] = f"native.at({operand}, {offset})"

    def allocate(self, name: str, shape: Shape, dtype: str) -> None:
        """Scratch is allocated by one line of the loop."""
        sizes = [f"native.most({size})" if isinstance(size, Dim) else str(size) for size in shape]
        self.scratch.append(f"{name} = np.empty({tuple_text(sizes)}, {dtype!r})")

    def call(self, name: str, arguments: Sequence[Argument], units: Size, work: Size) -> None:
        """A kernel is called by one line of the loop."""
        listed = tuple_text([*map(self._argument, arguments)])
        self.calls.append(f"    ({name!r}, {listed}, {units}, {work}),")

    def repeated(self, lines: Sequence[str]) -> list[str] | None:
        """The lines that do the same as these of the loop at once; None if it has others."""
        code = [line for line in lines if not line.lstrip().startswith("#")]
        written = len(self.scratch) + len(self.calls) + len(self.checks)
        if len(code) != 1 + written or not self.calls:
            return None
        names = ", ".join(self._names) + "," * (len(self._names) == 1)
        head = f"{names} = native.columns({self._values}, {len(self._names)})"
        indent = lines[0][: -len(lines[0].lstrip())]
        comments = [line.lstrip() for line in lines if line not in code]
        repeat = [f"native.repeat({self._names[0]}.size, [", *self.calls, "])"]
        return [indent + line for line in (head, *self.checks, *self.scratch, *comments, *repeat)]

    def _argument(self, argument: Argument) -> str:
        text = str(argument)
        if not isinstance(argument, NumpyOperand):
            return text
        return self._offsets.get(text, f"native.at({text})")


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
    names = [repr(str(argument)) for argument in arguments]
    return f"({tuple_text(names)}, {tuple_text([repr(one_line(comment)) for comment in comments])})"
