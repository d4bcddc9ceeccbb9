"""Scopes of the loop nest: which values are known in which loop, and where instructions go.

Every value is computed in the outermost loop whose axes it depends on. If inner loops are open
already, its instructions go to the place that was marked before the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.native.kernel import SLOT
from compiler.codegen.native.llvm_ir import (
    I64,
    POINTER,
    Function,
    Place,
    Type,
    Value,
    constant,
    lane_numbers,
)
from compiler.codegen.native.loops.body import Axes, Body, NotLowered
from compiler.codegen.native.loops.forms import Atom, Axis, Form
from compiler.codegen.native.machine import Machine
from compiler.codegen.trace import Expr
from compiler.ir.dims import Dim, Size

UNIT_LEVEL = 1
"""The number of the loop over units, in which everything is computed but arguments."""


@dataclass
class Level:
    """A loop that is open, the values computed in it, and the place before its inner loop."""

    values: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    place: Place = field(default_factory=lambda: Place("", ""))


@dataclass
class Scopes:
    """The state of emission: the function, its arguments, and the open loops.

    `copies` are the iterations of unrolled axes that are emitted together, as offsets of axes;
    `copy` is the current one. `lane` is the axis along which values are vectors of `lanes`, 0 for
    scalars, and `lane_width` as many as there are where there are any; `mask` says which lanes are
    in bounds, None for all.
    """

    body: Body
    machine: Machine
    f: Function
    levels: list[Level] = field(default_factory=lambda: [Level()])
    bound: dict[Axis, tuple[int, Value]] = field(default_factory=dict[Axis, "tuple[int, Value]"])
    copies: list[dict[Axis, int]] = field(default_factory=lambda: [{}])
    copy: dict[Axis, int] = field(default_factory=dict[Axis, int])
    lane: Axis | None = None
    lanes: int = 0
    lane_width: int = 0
    mask: Value | None = None
    operands: dict[str, NumpyOperand] = field(default_factory=dict[str, NumpyOperand])
    sizes: dict[Dim, Value] = field(default_factory=dict[Dim, Value])

    @property
    def kernel(self) -> KernelBody:
        """The kernel that is lowered."""
        return self.body.kernel

    # ---- levels ----

    @contextmanager
    def level(self, *axes: tuple[Axis, Value]) -> Generator[None]:
        """Open a loop whose index is the value of some axes; the place before it is marked."""
        self.levels.append(Level())
        for axis, value in axes:
            self.bound[axis] = len(self.levels) - 1, value
        yield
        for axis, _ in axes:
            del self.bound[axis]
        self.levels.pop()

    def mark(self) -> None:
        """Mark the end of the current block as the place before inner loops."""
        self.levels[-1].place = self.f.mark()

    def depth(self, axes: Axes) -> int:
        """The number of the innermost open loop among some axes."""
        unbound = [axis.name for axis in axes if axis not in self.bound]
        if unbound:
            raise NotLowered(f"a value is needed outside its loop {unbound[0]}")
        return max((self.bound[axis][0] for axis in axes), default=UNIT_LEVEL)

    def hoisted(self, key: Hashable, axes: Axes, make: Callable[[], Value]) -> Value:
        """The value of a key, made in the loop of its axes unless it is known there."""
        return self.at_depth(self.depth(axes), (key, self.offsets(axes)), make)

    def at_depth(self, depth: int, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key at the level of a depth."""
        level = self.levels[min(depth, len(self.levels) - 1)]
        if key not in level.values:
            if level is self.levels[-1]:
                level.values[key] = make()
            else:
                with self.f.at(level.place):
                    level.values[key] = make()
        return level.values[key]

    def offsets(self, axes: Axes) -> tuple[tuple[Axis, int], ...]:
        """The offsets in the current copy of the axes that are unrolled."""
        return tuple(each for each in self.copy.items() if each[1] and each[0] in axes)

    def each_copy(self) -> Iterator[dict[Axis, int]]:
        """Make each of the unrolled iterations the current one."""
        outer = self.copy
        for copy in self.copies:
            self.copy = copy
            yield copy
        self.copy = outer

    # ---- arguments ----

    def pointer(self, operand: NumpyOperand) -> Value:
        """The address of an operand's first element."""
        if operand.name not in self.operands:
            raise KeyError(operand.name)
        slot = list(self.operands).index(operand.name)
        return self.at_depth(0, ("pointer", operand.name), lambda: self._argument(slot, POINTER))

    def size(self, size: Size) -> Value:
        """A size as a number."""
        if isinstance(size, int):
            return constant(I64, size)
        if size not in self.sizes:
            slot = len(self.operands) + len(self.sizes)
            with self.f.at(self.levels[0].place):
                self.sizes[size] = self._argument(slot, I64)
        return self.sizes[size]

    def _argument(self, slot: int, type: Type) -> Value:
        return self.f.load(type, self.f.address(self.f.parameters[0], slot * SLOT))

    # ---- forms ----

    def expanded(self, form: Form) -> Form:
        """A form in which axes of chunks are those of units times the chunk, and of iterations."""
        total = Form((), form.offset)
        for atom, factor in form.terms:
            total = total.plus(Form(((atom, 1),)), factor)
            while isinstance(atom, Axis) and atom.outer is not None:
                factor = factor * atom.chunk
                atom = atom.outer
                total = total.plus(Form(((atom, 1),)), factor)
        return total

    def by_depth(self, form: Form) -> Iterator[tuple[int, list[tuple[Atom, Size]]]]:
        """The terms of a form that lanes share, by the loop that they change in."""
        found: dict[int, list[tuple[Atom, Size]]] = {}
        for atom, factor in form.terms:
            axes = frozenset({atom}) if isinstance(atom, Axis) else self.body.axes(atom)
            if not self.is_vector(axes) or atom is self.lane:
                found.setdefault(self.depth(axes), []).append((atom, factor))
        yield from sorted(found.items())

    def is_vector(self, axes: Axes) -> bool:
        """True if an expression of these axes has a value for each lane."""
        return bool(self.lanes) and self.lane in axes

    def fixed_offset(self, form: Form) -> Size:
        """The constant of a form, with that of the current copy's offsets."""
        total = form.offset
        for axis, offset in self.copy.items():
            if offset:
                total = total + form.coefficient(axis) * offset
        return total

    def iteration(self, axis: Axis) -> Value:
        """The index of an axis's loop, without the offset of the current copy."""
        return self.bound[axis][1]

    def atom(self, atom: Atom) -> Value:
        """An axis or an expression as an i64 that lanes share."""
        return self.iteration(atom) if isinstance(atom, Axis) else self.as_index(atom)

    def as_index(self, part: Expr) -> Value:
        """An integer expression as an i64 scalar."""
        raise NotImplementedError

    def index(self, form: Form) -> Value:
        """A form as an i64: of the first lane, if it changes between lanes."""
        form = self.expanded(form)
        total, key = constant(I64, 0), ("index",)
        for depth, terms in self.by_depth(form):
            key = (*key, *terms, *self._copied(terms))
            total = self._sum_at(depth, key, total, terms)
        offset = self.fixed_offset(form)
        if isinstance(offset, int) and offset == 0:
            return total
        number = self.size(offset)
        key = (*key, offset)
        return self.at_depth(self._last_depth(form), key, lambda: self.plus(total, number))

    def _last_depth(self, form: Form) -> int:
        return max((depth for depth, _ in self.by_depth(form)), default=UNIT_LEVEL)

    def _sum_at(
        self, depth: int, key: Hashable, before: Value, terms: Sequence[tuple[Atom, Size]]
    ) -> Value:
        """The sum of some terms and of those of outer loops, in a loop."""
        scaled = [self.atom(atom) for atom, _ in terms]

        def make() -> Value:
            total = before
            for value, (_, factor) in zip(scaled, terms, strict=True):
                total = self.plus(total, self.times(value, self.size(factor)))
            return total

        return self.at_depth(depth, key, make)

    def _copied(self, terms: Sequence[tuple[Atom, Size]]) -> tuple[tuple[Axis, int], ...]:
        """The offsets that the values of terms have in the current copy."""
        found = [self.offsets(self.body.axes(a)) for a, _ in terms if isinstance(a, Expr)]
        return tuple(n for each in found for n in each)

    def plus(self, a: Value, b: Value) -> Value:
        """A + b; nothing is added to or of zero."""
        if b.name == "0":
            return a
        return b if a.name == "0" else self.f.binary("add nsw", a, b)

    def times(self, a: Value, b: Value) -> Value:
        """A * b; nothing is multiplied by one."""
        return a if b.name == "1" else self.f.binary("mul nsw", a, b)

    def address(self, operand: NumpyOperand, form: Form) -> Value:
        """The address of an element: of the first lane, if it changes between lanes."""
        itemsize, form = operand.type.dtype.itemsize, self.expanded(form)
        pointer, key = self.pointer(operand), ("address", operand.name)
        for depth, terms in self.by_depth(form):
            key = (*key, *terms, *self._copied(terms))
            pointer = self._address_at(depth, key, pointer, terms, itemsize)
        offset = self.fixed_offset(form)
        if isinstance(offset, Dim):
            number, pointer_ = self.size(offset), pointer
            return self.at_depth(
                self._last_depth(form), (*key, offset),
                lambda: self.f.address(pointer_, number, itemsize),
            )  # fmt: skip
        return self.f.address(pointer, offset, itemsize)

    def _address_at(
        self, depth: int, key: Hashable, before: Value, terms: Sequence[tuple[Atom, Size]],
        itemsize: int,
    ) -> Value:  # fmt: skip
        """An address with the terms of one loop added; one term is scaled by the instruction."""
        atom, factor = terms[0]
        if len(terms) == 1 and isinstance(factor, int) and factor > 0:
            value, size = self.atom(atom), factor * itemsize
            return self.at_depth(depth, key, lambda: self.f.address(before, value, size))
        total = self._sum_at(depth, ("sum", key), constant(I64, 0), terms)
        return self.at_depth(depth, key, lambda: self.f.address(before, total, itemsize))

    def lane_index(self, form: Form, element: Type) -> Value:
        """The terms of a form that change between lanes, as a vector of integers from lane 0."""
        type = element.vector(self.lanes)
        total: Value | None = None
        for atom, factor in form.terms:
            if atom is self.lane:
                value = lane_numbers(type)
            elif isinstance(atom, Expr) and self.is_vector(self.body.axes(atom)):
                value = self.as_lanes(atom, element)
            else:
                continue
            if factor != 1:
                size = self.size(factor) if element == I64 else self.narrowed(factor, element)
                value = self.f.mul(value, self.f.splat(size, self.lanes))
            total = value if total is None else self.f.add(total, value)
        return total or constant(type, 0)

    def narrowed(self, size: Size, element: Type) -> Value:
        """A size as a number of a narrower type, without the bits above."""
        if isinstance(size, int):
            half = 1 << (element.bits - 1)
            return constant(element, (size + half) % (2 * half) - half)
        return self.f.convert("trunc", self.size(size), element)

    def as_lanes(self, part: Expr, element: Type) -> Value:
        """An integer expression as a vector of a type."""
        raise NotImplementedError
