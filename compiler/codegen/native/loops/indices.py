"""Emits indices and addresses: affine forms, whose terms are added in the loops they change in."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.llvm_ir import I64, Type, Value, constant, lane_numbers
from compiler.codegen.native.loops.arguments import Arguments
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import Atom, Form, LoopAxis
from compiler.codegen.native.loops.scopes import UNIT_LEVEL, Scopes
from compiler.codegen.trace import Expr
from compiler.ir.dims import Dim, Size


class IntegerValues(Protocol):
    """Computes the integer expressions that occur in indices."""

    def as_index(self, part: Expr) -> Value:
        """An integer expression as an i64 scalar."""
        ...

    def as_lanes(self, part: Expr, element: Type) -> Value:
        """An integer expression as a vector of a type."""
        ...


class IndexEmitter:
    """Emits the forms of a kernel's indices and addresses."""

    def __init__(
        self, body: Body, scopes: Scopes, arguments: Arguments, values: IntegerValues
    ) -> None:
        self.body = body
        self.scopes = scopes
        self.arguments = arguments
        self.values = values
        self.f = scopes.f

    def expanded(self, form: Form) -> Form:
        """A form in which axes of chunks are those of units times the chunk, and of iterations."""
        total = Form((), form.offset)
        for atom, factor in form.terms:
            total = total.plus(Form(((atom, 1),)), factor)
            while isinstance(atom, LoopAxis) and atom.outer is not None:
                factor = factor * atom.chunk
                atom = atom.outer
                total = total.plus(Form(((atom, 1),)), factor)
        return total

    def _by_depth(self, form: Form) -> Iterator[tuple[int, list[tuple[Atom, Size]]]]:
        """The terms of a form that lanes share, by the loop that they change in."""
        found: dict[int, list[tuple[Atom, Size]]] = {}
        for atom, factor in form.terms:
            axes = frozenset({atom}) if isinstance(atom, LoopAxis) else self.body.axes(atom)
            if not self.scopes.is_vector(axes) or atom is self.scopes.lanes.axis:
                found.setdefault(self.scopes.depth(axes), []).append((atom, factor))
        yield from sorted(found.items())

    def _fixed_offset(self, form: Form) -> Size:
        """The constant of a form, with that of the current copy's offsets."""
        total = form.offset
        for axis, offset in self.scopes.copy.items():
            if offset:
                total = total + form.coefficient(axis) * offset
        return total

    def atom(self, atom: Atom) -> Value:
        """An axis or an expression as an i64 that lanes share."""
        return (
            self.scopes.iteration(atom)
            if isinstance(atom, LoopAxis)
            else self.values.as_index(atom)
        )

    def index(self, form: Form) -> Value:
        """A form as an i64: of the first lane, if it changes between lanes."""
        form = self.expanded(form)
        total, key = constant(I64, 0), ("index",)
        for depth, terms in self._by_depth(form):
            key = (*key, *terms, *self._copied(terms))
            total = self._sum_at(depth, key, total, terms)
        offset = self._fixed_offset(form)
        if isinstance(offset, int) and offset == 0:
            return total
        number = self.arguments.size(offset)
        key = (*key, offset)
        return self.scopes.at_depth(self._last_depth(form), key, lambda: self.plus(total, number))

    def _last_depth(self, form: Form) -> int:
        return max((depth for depth, _ in self._by_depth(form)), default=UNIT_LEVEL)

    def _sum_at(
        self, depth: int, key: Hashable, before: Value, terms: Sequence[tuple[Atom, Size]]
    ) -> Value:
        """The sum of some terms and of those of outer loops, in a loop."""
        scaled = [self.atom(atom) for atom, _ in terms]

        def make() -> Value:
            total = before
            for value, (_, factor) in zip(scaled, terms, strict=True):
                total = self.plus(total, self.times(value, self.arguments.size(factor)))
            return total

        return self.scopes.at_depth(depth, key, make)

    def _copied(self, terms: Sequence[tuple[Atom, Size]]) -> tuple[tuple[LoopAxis, int], ...]:
        """The offsets that the values of terms have in the current copy."""
        found = [self.scopes.offsets(self.body.axes(a)) for a, _ in terms if isinstance(a, Expr)]
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
        pointer, key = self.arguments.pointer(operand), ("address", operand.name)
        for depth, terms in self._by_depth(form):
            key = (*key, *terms, *self._copied(terms))
            pointer = self._address_at(depth, key, pointer, terms, itemsize)
        offset = self._fixed_offset(form)
        if isinstance(offset, Dim):
            number, pointer_ = self.arguments.size(offset), pointer
            return self.scopes.at_depth(
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
            return self.scopes.at_depth(depth, key, lambda: self.f.address(before, value, size))
        total = self._sum_at(depth, ("sum", key), constant(I64, 0), terms)
        return self.scopes.at_depth(depth, key, lambda: self.f.address(before, total, itemsize))

    def lane_index(self, form: Form, element: Type) -> Value:
        """The terms of a form that change between lanes, as a vector of integers from lane 0."""
        lanes = self.scopes.lanes
        type = element.vector(lanes.count)
        total: Value | None = None
        for atom, factor in form.terms:
            if atom is lanes.axis:
                value = lane_numbers(type)
            elif isinstance(atom, Expr) and self.scopes.is_vector(self.body.axes(atom)):
                value = self.values.as_lanes(atom, element)
            else:
                continue
            if factor != 1:
                size = (
                    self.arguments.size(factor)
                    if element == I64
                    else self._narrowed(factor, element)
                )
                value = self.f.mul(value, self.f.splat(size, lanes.count))
            total = value if total is None else self.f.add(total, value)
        return total or constant(type, 0)

    def _narrowed(self, size: Size, element: Type) -> Value:
        """A size as a number of a narrower type, without the bits above."""
        if isinstance(size, int):
            half = 1 << (element.bits - 1)
            return constant(element, (size + half) % (2 * half) - half)
        return self.f.convert("trunc", self.arguments.size(size), element)
