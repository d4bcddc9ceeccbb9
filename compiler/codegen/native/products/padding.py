"""Copies of images with zeros around them, by one kernel for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Call
from compiler.codegen.native.products.index import Indices, named
from compiler.ir.dims import Size, product
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Margins:
    """The steps of zeros before and behind each spatial axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def any(self) -> bool:
        """Whether there is a margin at all."""
        return any(self.before) or any(self.after)

    def around(self, size: Sequence[Size]) -> tuple[Size, ...]:
        """The size with its margins."""
        return tuple(
            before + extent + after
            for before, extent, after in zip(self.before, size, self.after, strict=True)
        )


def pad_call(
    machine: Machine, element: Type, images: Size, size: Sequence[Size], inner: Size,
    margins: Margins, names: tuple[str, str],
) -> Call:  # fmt: skip
    """The call that copies images[images, size…, inner] into the middle of zeros.

    `names` are the two arrays. A unit of work is a row of the result: all its `inner` elements
    along the last axis.
    """
    around = margins.around(size)
    outer: list[Size] = []
    for place, extent in enumerate(size[:-1]):
        outer += [extent, around[place], margins.before[place]]
    row = [product([count, inner]) for count in (margins.before[-1], size[-1], margins.after[-1])]
    nbytes = product([element.nbytes, images, product(around), inner, 2])
    kernel = NativeKernel(
        [_pad_function(machine, element, len(size) - 1)], product([images, *around[:-1]]), 0, nbytes
    )
    return Call(kernel, (*names, *row, *outer))


@lru_cache
def _pad_function(machine: Machine, element: Type, axes: int) -> Function:
    """The function for images with a number of axes before the last one."""
    slots = [POINTER, POINTER, *[I64] * (3 + 3 * axes)]
    function, values, first, last = entry(f"pad_rows_of_{axes + 1}d", slots)
    rows = _Rows(function, machine, element, values)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        rows.emit(number)
        return []

    function.loop_if_any(first, last, 1, unit)
    return named(function)


class _Rows:
    """Emits one row of the padded images."""

    def __init__(
        self, function: Function, machine: Machine, element: Type, values: Sequence[Value]
    ) -> None:
        self.function = function
        self.machine = machine
        self.element = element
        self.indices = Indices(function, {})
        self.source, self.padded, self.left, self.length, self.right, *outer = values
        self.outer = [outer[place : place + 3] for place in range(0, len(outer), 3)]

    def emit(self, number: Value) -> None:
        """The row of a number: a row of the image between zeros, or zeros."""
        indices, size = self.indices, self.element.nbytes
        total = indices.add(indices.add(self.left, self.length), self.right)
        row = indices.move(self.padded, number, total, size)
        inside, place = self._inside(number)

        def middle() -> list[Value]:
            self._fill(row, self.left)
            start = indices.move(row, 1, self.left, size)
            self._copy(indices.move(self.source, place, self.length, size), start, self.length)
            self._fill(indices.move(start, 1, self.length, size), self.right)
            return []

        def outside() -> list[Value]:
            self._fill(row, self.function.index(total))
            return []

        if inside is None:
            middle()
        else:
            self.function.choose(inside, middle, outside)

    def _inside(self, number: Value) -> tuple[Value | None, Value]:
        """Whether a padded row holds one of the image, and that row's number."""
        f, inside = self.function, None
        image, *places = self.indices.digits(number, [1 << 62, *(axis[1] for axis in self.outer)])
        row = image
        for (size, _, before), place in zip(self.outer, places, strict=True):
            at = f.index(self.indices.sub(place, before))
            row = self.indices.add(self.indices.mul(row, size), at)
            within = f.compare("ult", at, size)
            inside = within if inside is None else f.binary("and", inside, within)
        return inside, f.index(row)

    def _fill(self, to: Value, count: Value) -> None:
        self._each(to, count, lambda type, _: zero(type))

    def _copy(self, source: Value, to: Value, count: Value) -> None:
        """Copy elements, a vector at a time."""
        self._each(to, count, lambda type, place: self.function.load(type, self._at(source, place)))

    def _at(self, pointer: Value, place: Value) -> Value:
        return self.function.address(pointer, place, self.element.nbytes)

    def _each(self, to: Value, count: Value, value: Callable[[Type, Value], Value]) -> None:
        """Store vectors, then what is left one by one."""
        type, f = self.machine.vector(self.element), self.function
        whole = f.binary("and", count, f.constant(I64, -type.lanes))

        def step(type: Type) -> Callable[[Value, list[Value]], list[Value]]:
            def body(place: Value, _: list[Value]) -> list[Value]:
                f.store(value(type, place), self._at(to, place))
                return []

            return body

        f.loop_if_any(0, whole, type.lanes, step(type))
        f.loop_if_any(whole, count, 1, step(self.element))
