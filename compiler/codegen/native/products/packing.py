"""Packing: the right operand of a contraction as panels, which a tile reads from end to end.

A panel holds its columns for each step of the sum, in the order of the contraction's loops:
`[panel][steps…][vectors of the panel]`. Behind the panels of a tile's width follows one of the
vectors that are left (if the number of columns is open: one panel for each of them); lanes behind
the last column hold anything. One kernel serves all sizes: counts and strides are in its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Type, Value
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Call, Contraction
from compiler.codegen.native.products.copying import COPIES, Copy
from compiler.codegen.native.products.dots import Dot
from compiler.codegen.native.products.index import Indices, named
from compiler.codegen.native.products.tiles import Tiling
from compiler.codegen.native.products.word_packing import CopyWordRows, CopyWords
from compiler.ir.dims import Size, product

AXES = 4
"""Axes of a sum that the kernel has loops for."""

BATCH = 4
"""Axes of a batch that it has."""


def packed_size(machine: Machine, spec: Contraction, depth: Size) -> Size:
    """The elements of a packed right operand: whole vectors of columns for each step."""
    lanes = machine.lanes(spec.element)
    return product([depth, _divide_up(spec.columns.count, lanes), lanes, spec.pack])


def pack_call(
    spec: Contraction, machine: Machine, tiling: Tiling, names: tuple[str, str],
    depth: Size, run: Size,
) -> Call:  # fmt: skip
    """The call that packs the right operand of a contraction; `names` are it and the packed one.

    The axes of `spec` say how far "b" moves in its unpacked layout, and batch axes also how far
    "packed" does. The packed one has `depth` steps of the sum, words of a `run` of elements each.
    A unit of work is a panel.
    """
    lanes = machine.lanes(spec.element)
    columns, width = spec.columns.count, tiling.vectors * lanes
    whole = columns // width
    left = _divide_up(columns - product([whole, width]), lanes)
    panels = whole + min(left, 1) if isinstance(left, int) else whole + left
    rest = left if isinstance(left, int) else 1
    divided = 0 if spec.part_of == 0 else 1  # axes that stay first: their last part may be short
    missing = [Axis(1)] * (AXES - len(spec.sums))
    sums = [*spec.sums[:divided], *missing, *spec.sums[divided:]]
    batch = [Axis(1)] * (BATCH - len(spec.batch)) + list(spec.batch)
    slots: list[Size] = [spec.offsets.get("b", 0), panels, whole, tiling.vectors, rest]
    slots += [columns, spec.columns.stride("b"), spec.part_of]
    slots += [depth, run]
    for axis in batch:
        slots += [axis.count, axis.stride("b"), axis.stride("packed")]
    for axis in sums:
        slots += [axis.count, axis.stride("b")]
    units = product([*(axis.count for axis in batch), panels])
    nbytes = 2 * spec.types["b"].nbytes
    size = product([*(axis.count for axis in (*batch, *sums)), columns, nbytes])
    function = _pack_function(machine, spec.element, _kind(spec), spec.dot)
    return Call(NativeKernel([function], units, 0, size), (*names, *slots))


def _divide_up(size: Size, by: int) -> Size:
    return (size + (by - 1)) // by


def _kind(spec: Contraction) -> str:
    """How the elements of a vector lie: as neighbours, as rows of neighbouring steps, or apart."""
    if spec.columns.stride("b") == 1:
        return "rows"
    if spec.dot:
        return "words"
    return "columns" if spec.sums[-1].stride("b") == 1 else "apart"


@lru_cache
def _pack_function(machine: Machine, element: Type, kind: str, dot: Dot | None) -> Function:
    """The function that packs one kind of right operand."""
    slots = [POINTER, POINTER, *[I64] * (10 + 3 * BATCH + 2 * AXES)]
    name = "_".join(filter(None, ["pack", kind, dot.element.suffix if dot else ""]))
    function, values, first, last = entry(name, slots)
    packer = _Packer(function, _copy(function, machine, element, kind, dot, values), values)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        packer.emit(number)
        return []

    function.loop_if_any(first, last, 1, unit)
    return named(function)


def _copy(
    function: Function, machine: Machine, element: Type, kind: str, dot: Dot | None,
    values: Sequence[Value],
) -> Copy:  # fmt: skip
    """What copies a panel; the length of a run is in its slot."""
    if dot is None:
        return COPIES[kind](function, machine, element)
    words = CopyWordRows if kind == "rows" else CopyWords
    return words(function, machine, dot, values[_RUN])


_DEPTH, _RUN = 10, 11
"""Slots of the steps of the packed operand, and of the elements of a run."""


class _Packer:
    """Emits the copy of one panel."""

    def __init__(self, function: Function, copy: Copy, values: Sequence[Value]) -> None:
        self.function = function
        self.copy = copy
        self.indices = Indices(function, {})
        source, self.packed, offset, self.panels, self.whole, self.vectors, self.rest = values[:7]
        self.source = self.indices.move(source, 1, offset, copy.nbytes)
        self.columns, self.stride, self.part_of = values[7:10]
        self.depth = values[_DEPTH]
        batch, axes = values[12 : 12 + 3 * BATCH], values[12 + 3 * BATCH :]
        self.batch = [batch[place : place + 3] for place in range(0, 3 * BATCH, 3)]
        self.axes = [(axes[place], axes[place + 1]) for place in range(0, 2 * AXES, 2)]

    def emit(self, number: Value) -> None:
        """The panel of a number."""
        f, indices = self.function, self.indices
        counts = [*(axis[0] for axis in self.batch), self.panels]
        *places, panel = map(f.index, indices.digits(number, counts))
        source, packed = self.source, self.packed
        for (_, from_, to), place in zip(self.batch, places, strict=True):
            source = indices.move(source, place, from_, self.copy.nbytes)
            packed = indices.move(packed, place, to, self.copy.nbytes)
        is_whole = f.compare("ult", panel, self.whole)
        vectors = f.select(is_whole, self.vectors, self.rest)
        left = f.index(indices.sub(panel, self.whole))
        column = f.select(
            is_whole, self._column(panel), f.add(self._column(self.whole), self._lanes(left))
        )
        packed = indices.move(packed, column, self.depth, self.copy.step)
        source = indices.move(source, column, self.stride, self.copy.nbytes)
        lanes = f.sub(self.columns, column)
        axes = [(self._first_count(places[-1]), self.axes[0][1]), *self.axes[1:]]
        self.copy.emit(source, packed, axes, vectors, lanes, self.stride)

    def _first_count(self, part: Value) -> Value:
        """Steps of the first axis; the last part of a divided one may have fewer."""
        f, count = self.function, self.axes[0][0]
        left = f.sub(self.part_of, f.mul(part, count))
        is_divided = f.compare("ne", self.part_of, f.constant(I64, 0))
        return f.select(is_divided, f.intrinsic("umin", count, left), count)

    def _column(self, panel: Value) -> Value:
        return self._lanes(self.function.mul(panel, self.vectors))

    def _lanes(self, vectors: Value) -> Value:
        return self.function.mul(vectors, self.function.constant(I64, self.copy.lanes))
