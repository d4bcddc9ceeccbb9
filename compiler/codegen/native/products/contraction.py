"""A contraction: one description of products, convolutions and their gradients.

    out[batch…, rows…, column] = Σ over sums of a[batch…, rows…, sums…] * b[batch…, sums…, column]

Each axis says how far each operand moves at a step, so a convolution is the contraction whose
image moves both with its rows and with its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import Function, Type, Value
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.dots import Dot
from compiler.codegen.native.products.place import ResultAddresses
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass

Finish: TypeAlias = "Callable[[Function, list[Value], ResultAddresses], Sequence[Value]]"
"""Computes in registers the vectors to store from a vector of sums, one for each output."""


def as_summed(function: Function, values: list[Value], place: ResultAddresses) -> Sequence[Value]:
    """Store the sums as they are."""
    return values


@dataclass(frozen=True)
class Contraction:
    """A contraction of left operand "a" and right operand "b".

    `panels` names the operand that is stored as panels: "b", as `packing` writes it, or none; a
    right operand in rows moves by 1 with `columns`.
    `rows` are outermost first; tiles cover the last two. `types` are the operands' elements, in
    the order of the kernel's slots. `offsets` are elements before an operand's first one.
    `start` names the operand whose elements the sums begin from, or is "" for zero.
    `outputs` are what `finish` returns. `part_of`, unless 0, is the count of the first axis of the
    sum, which is divided among the last batch axis; that axis of the sum counts one part.

    With a `dot` a step of the last axis of the sum is a word of neighbouring elements, `element` is
    the type of the sums, and the last word has only `tail` elements unless that is 0.
    """

    label: str
    element: Type
    batch: Sequence[Axis]
    rows: Sequence[Axis]
    sums: Sequence[Axis]
    columns: Axis
    types: Mapping[str, Type]
    panels: str = ""
    offsets: Mapping[str, Size] = field(default_factory=dict[str, Size])
    start: str = ""
    finish: Finish = as_summed
    outputs: Sequence[str] = ("out",)
    part_of: Size = 0
    dot: Dot | None = None
    tail: Size = 0

    @property
    def pack(self) -> int:
        """Elements of the operands in a step of the sum."""
        return self.dot.pack if self.dot else 1

    @property
    def axes(self) -> Iterator[Axis]:
        """All axes."""
        yield from (*self.batch, *self.rows, *self.sums, self.columns)

    @property
    def open_sizes(self) -> tuple[Dim, ...]:
        """The open counts, strides and offsets, in the order of the kernel's slots."""
        sizes = [size for axis in self.axes for size in (axis.count, *axis.strides.values())]
        sizes += [*self.offsets.values(), self.part_of, self.tail]
        return tuple(dict.fromkeys(size for size in sizes if isinstance(size, Dim)))


@dataclass(frozen=True)
class Call:
    """A kernel and what its slots hold: names of operands, then sizes."""

    kernel: NativeKernel
    arguments: tuple[str | Size, ...]


@dataclass(frozen=True)
class Steps:
    """Kernels in order.

    `prepare` depends on the weights alone: once if they are constant, else before `calls`.
    `scratch` are the elements of arrays that the caller gives besides the operands, by name;
    "packed" is what `prepare` leaves for `calls`.
    """

    calls: tuple[Call, ...]
    prepare: tuple[Call, ...] = ()
    scratch: Mapping[str, Size] = field(default_factory=dict[str, Size])

    def then(self, other: Steps) -> Steps:
        """These kernels, then others."""
        calls, prepare = (*self.calls, *other.calls), (*self.prepare, *other.prepare)
        return Steps(calls, prepare, {**self.scratch, **other.scratch})
