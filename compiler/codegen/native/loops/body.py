"""A kernel prepared for emission: simplified stores, split axes, and what each part depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import cast

from compiler.codegen.kernel.analysis import reduced_loop
from compiler.codegen.kernel.body import KernelBody, Source, Store
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.loops.forms import (
    Form,
    LoopAxis,
    exact_quotient,
    split_axes,
)
from compiler.codegen.native.loops.rewrite import parts_of, simplified
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.errors import CompileError
from compiler.ir.dims import Size
from compiler.ir.region import strides
from compiler.ir.types import DType, Shape, TensorType
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

Axes = frozenset[LoopAxis]
"""The axes that an expression depends on."""


class NotLowered(CompileError):
    """A kernel that has no loops in LLVM IR; the message says why."""


@dataclass
class Body:
    """A kernel's stores and expressions over its axes."""

    kernel: KernelBody
    known: dict[Expr, Axes] = field(default_factory=dict[Expr, Axes])
    addresses: dict[object, Form] = field(default_factory=dict[object, Form])

    def __post_init__(self) -> None:
        self.stores, self.ends = simplified(self.kernel)
        self.parts = parts_of(self.stores, self.ends)
        self.forms = split_axes(self.kernel, self.parts)

    @cached_property
    def grid(self) -> list[LoopAxis]:
        """The axes of the grid with more than one element, outermost first."""
        return [axis for axes in self.forms.axes for axis in axes if axis.size != 1]

    def loop_axes(self, loop: int) -> list[LoopAxis]:
        """The axes of a loop with more than one iteration, outermost first."""
        return [axis for axis in self.forms.loops[loop] if axis.size != 1]

    def numbers_parts(self, axis: LoopAxis) -> bool:
        """True for the axis of a split reduction's parts: each has iterations of its own."""
        return any(other.outer is axis for axes in self.forms.loops for other in axes)

    # ---- addresses ----

    def address(self, operand: NumpyOperand, indices: Sequence[Term], shape: Shape) -> Form:
        """The form of an element's place in its operand's memory, in elements."""
        key = (operand.name, tuple(map(id, indices)), shape)
        if key not in self.addresses:
            self.addresses[key] = self._address(operand, indices, shape)
        return self.addresses[key]

    def _address(self, operand: NumpyOperand, indices: Sequence[Term], shape: Shape) -> Form:
        itemsize = operand.type.dtype.itemsize
        byte_strides = strides(TensorType(operand.type.dtype, shape), operand.region)
        if operand.region.is_strided and not byte_strides:
            raise NotLowered(f"{operand.name} has gaps that a view of shape {shape} cannot skip")
        if not byte_strides:
            pairs = self.kernel.joined(indices, shape)
            return self.forms.ravelled([i for i, _ in pairs], [n for _, n in pairs])
        steps = [exact_quotient(stride, itemsize) for stride in byte_strides]
        if None in steps:
            raise NotLowered(
                f"{operand.name} has rows at {byte_strides} bytes of elements of {itemsize}"
            )
        return self.forms.ravelled(indices, cast("list[Size]", steps))

    def load_address(self, part: Expr) -> Form:
        """The form of a load."""
        source = cast(Source, part.extra)
        return self.address(source.operand, part.args[: len(source.shape)], source.shape)

    def guard(self, part: Expr) -> tuple[Term, Term] | None:
        """The condition of a load and what it yields where that is false."""
        condition = part.args[len(cast(Source, part.extra).shape) :]
        return (condition[0], condition[1]) if condition else None

    def store_address(self, store: Store) -> Form:
        """The form of a store."""
        return self.address(store.operand, store.indices, store.shape)

    def is_read(self, form: Form) -> bool:
        """True if numbers in memory decide a place, rather than sizes alone."""
        return any(
            atom in self._read_axes if isinstance(atom, LoopAxis) else _reads(atom)
            for atom, _ in form.terms
        )

    @cached_property
    def _read_axes(self) -> Axes:
        """The axes of loops whose number of iterations is read from memory."""
        ends = (loop for loop, end in self.ends.items() if _reads(end))
        return frozenset(axis for loop in ends for axis in self.forms.loops[loop])

    # ---- dependencies ----

    def axes(self, term: Term) -> Axes:
        """The axes that an expression depends on."""
        if not isinstance(term, Expr):
            return frozenset()
        if term not in self.known:
            self.known[term] = self._axes(term)
        return self.known[term]

    def form_axes(self, form: Form) -> Axes:
        """The axes that a form depends on."""
        axes = frozenset[LoopAxis]()
        for atom, _ in form.terms:
            axes |= _with_part(atom) if isinstance(atom, LoopAxis) else self.axes(atom)
        return axes

    def _axes(self, part: Expr) -> Axes:
        if part.dtype is DType.INT64:
            form = self.forms.of(part)
            if not form.coefficient(part):
                return self.form_axes(form)
        own = self.all_axes(self.operands(part))
        if part.fn == "load":
            return own | self.form_axes(self.load_address(part))
        if part.fn == "scan":
            return own | frozenset(self.loop_axes(reduced_loop(part)))
        if part.fn == "reduce":
            loop = reduced_loop(part)
            looped = self.loop_axes(loop)
            own = own.union(self.axes(self.ends.get(loop, 0)), *map(_with_part, looped))
            return own - frozenset(looped)
        return own

    def all_axes(self, terms: Sequence[Term]) -> Axes:
        """The axes that any of several terms depends on."""
        return frozenset[LoopAxis]().union(*map(self.axes, terms))

    def operands(self, part: Expr) -> list[Expr]:
        """The expressions whose values a part is computed from, beside its indices and its loop."""
        if part.fn == "load":
            atoms = [a for a, _ in self.load_address(part).terms if isinstance(a, Expr)]
            return [*atoms, *(e for e in self.guard(part) or () if isinstance(e, Expr))]
        if part.fn in ("reduce", "scan"):
            return [arg for arg in part.args[:1] if isinstance(arg, Expr)]
        if part.dtype is DType.INT64 and not self.forms.of(part).coefficient(part):
            return [a for a, _ in self.forms.of(part).terms if isinstance(a, Expr)]
        return part.parts()

    def store_axes(self, store: Store) -> Axes:
        """The axes that a store's place, value or condition depends on."""
        where = 0 if store.where is None else store.where
        return self.all_axes([store.value, where]) | self.form_axes(self.store_address(store))


def _reads(term: Term) -> bool:
    """True if an expression loads a number from memory."""
    return isinstance(term, Expr) and any(part.fn == "load" for part in all_parts([term]))


def _with_part(axis: LoopAxis) -> Axes:
    """An axis, and the one that numbers the part of it that is looped over."""
    return frozenset({axis} if axis.outer is None else {axis, axis.outer})
