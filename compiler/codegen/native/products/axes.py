"""Axes of a contraction: how many steps each has, and how far each operand moves at a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from compiler.codegen.native.llvm_ir import Type
from compiler.ir.dims import Size, product
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Axis:
    """An axis: its count, and the elements each operand moves at a step.

    An operand that is not named does not move.
    """

    count: Size
    strides: Mapping[str, Size] = field(default_factory=dict[str, Size])

    def stride(self, operand: str) -> Size:
        """The elements an operand moves at a step."""
        return self.strides.get(operand, 0)


@dataclass(frozen=True)
class EpilogueOperand:
    """An array that an epilogue reads or writes.

    `strides` are its elements between neighbours on each axis of the output, 0 where it is
    broadcast; None if it has the output's layout.
    """

    name: str
    type: Type
    strides: tuple[Size, ...] | None = None


def merged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Join neighbouring axes that every operand passes in one regular step; drop those of one step.

    >>> [axis.count for axis in merged([Axis(4, {"a": 15}), Axis(3, {"a": 5}), Axis(5, {"a": 1})])]
    [60]
    """
    result: list[Axis] = []
    for axis in axes:
        if axis.count == 1:
            continue
        if result and _continue(result[-1], axis):
            axis = Axis(product((result.pop().count, axis.count)), axis.strides)
        result.append(axis)
    return tuple(result) or (Axis(1),)


def _continue(outer: Axis, inner: Axis) -> bool:
    """Whether each operand's step on the outer axis is all of the inner one."""
    names = {*outer.strides, *inner.strides}
    return all(product((inner.count, inner.stride(name))) == outer.stride(name) for name in names)


def contiguous(shape: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of an array without gaps, in elements.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(product(shape[place + 1 :]) for place in range(len(shape)))
