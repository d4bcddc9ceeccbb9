"""The host part of an op's kernels: arrays computed from LoD, sizes, and loops over launches.

LoD offsets are on the host, and determine which rows each time step of a sequence reads. NumPy
functions compute such index arrays before the kernels are launched, and they are copied to the
device; arrays that depend only on feeds are computed once a step and shared between ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.module_writer import NumpyOperand, shape_text
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import Array
from compiler.plan import StorageKind
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class HostArrays:
    """A host array, or a tuple of them, by name; `from_feeds` if it depends on feeds only.

    `at_bind` if it depends on sizes only that are known when the module is bound.
    """

    text: str
    from_feeds: bool
    at_bind: bool = False

    def __getitem__(self, index: int) -> HostArrays:
        """One item of a tuple."""
        return HostArrays(f"{self.text}[{index}]", self.from_feeds, self.at_bind)

    def length(self) -> HostArrays:
        """Its length."""
        return HostArrays(f"len({self.text})", self.from_feeds, self.at_bind)

    def __str__(self) -> str:
        return self.text


def expect_elements(values: Array, count: int) -> Array:
    """Return an array that kernels read; ValueError unless it has as many elements as they visit.

    Lengths and offsets that do not fit the rows of other inputs make it shorter or longer.
    """
    if values.size != count:
        raise ValueError(
            f"lengths or offsets do not fit the rows of its inputs: {values.size} indices were "
            f"computed, expected {count}"
        )
    return values


class HostCode:
    """Writes the host code of an op's step: calls of functions, arrays, and loops."""

    def __init__(self, writer: KernelModuleWriter) -> None:
        self._writer = writer

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], hint: str) -> HostArrays:
        """Call a function of arrays and numbers; once, if its arguments do not change."""
        writer = self._writer
        listed = ", ".join(map(_argument, arguments))
        text, name = f"{writer.function(function)}({listed})", hint or function.__name__
        if self.is_bind_time(arguments):
            return HostArrays(writer.keep(text, True, StorageKind.FEED, name), True, True)
        if self.is_step_invariant(arguments):
            return HostArrays(writer.keep(text, False, StorageKind.FEED, name), True)
        return HostArrays(self.assign(text, name), False)

    def assign(self, text: str, hint: str) -> str:
        """Assign an expression to a new name, which is returned."""
        name = self._writer.names.make(hint)
        self._writer.line(f"{name} = {text}")
        return name

    def sized(self, value: Any, shape: Sequence[Size]) -> str:
        """The text of a host array; if it is computed, its size is compared with the shape."""
        if not isinstance(value, HostArrays):
            return str(value)
        return f"{self._writer.function(expect_elements)}({value}, {product(shape)})"

    def is_step_invariant(self, argument: Any) -> bool:
        """True if a value is the same throughout a step, so that it is computed only once."""
        if isinstance(argument, list | tuple):
            return all(map(self.is_step_invariant, cast("list[Any]", argument)))
        if isinstance(argument, NumpyOperand):
            return argument.storage[0] is StorageKind.FEED
        if isinstance(argument, Dim):
            return not self._writer.loop_sizes & {*argument.names}
        return not isinstance(argument, HostArrays) or argument.from_feeds

    def is_bind_time(self, argument: Any) -> bool:
        """True if a value is computed from constants and bound sizes, so once for a binding."""
        if isinstance(argument, list | tuple):
            return all(map(self.is_bind_time, cast("list[Any]", argument)))
        if isinstance(argument, Dim):
            return {*argument.names} <= self._writer.bound_dims
        if isinstance(argument, HostArrays):
            return argument.at_bind
        return not isinstance(argument, NumpyOperand)

    def size(self, value: HostArrays, hint: str) -> Dim:
        """An integer as a size."""
        return Dim.named(value.text if value.text.isidentifier() else self.assign(str(value), hint))

    def write(self, out: NumpyOperand, value: Any) -> None:
        """Assign an array to an output."""
        if out.type.is_open:
            self._writer.line(f"{out} = {value}")
        else:
            self._writer.line(f"np.copyto({out}, np.reshape({value}, {shape_text(out.shape)}))")

    def loop_sizes(self, hints: Sequence[str]) -> tuple[Dim, ...]:
        """Sizes that differ between the iterations of a loop; `hints` name them."""
        names = [self._writer.names.make(hint) for hint in hints]
        self._writer.loop_sizes |= {*names}
        return tuple(map(Dim.named, names))

    @contextmanager
    def loop(self, values: Any, sizes: Sequence[Dim]) -> Generator[None]:
        """Write the lines inside into a loop over tuples of integers, the sizes of an iteration.

        No loop is written if there are none, as kernels for no elements have none.
        """
        self._writer.line(f"for {', '.join(map(str, sizes))} in {values}:")
        lines = self._writer.body.lines
        head = lines[-1]
        self._writer.enter()
        yield
        self._writer.leave()
        if lines[-1] is head:
            lines.pop()


def _argument(argument: Any) -> str:
    if isinstance(argument, list | tuple):
        argument = cast("list[Any]", argument)
        return f"[{', '.join(map(_argument, argument))}]"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f"float({str(argument)!r})"
    return (
        str(argument) if isinstance(argument, HostArrays | NumpyOperand | Dim) else repr(argument)
    )
