"""Lowers kernels of the kernel IR to LLVM IR for a CPU.

The grid's axes become loops, the outermost of which are shared as units of work. Each reduction is
computed in the outermost loop where it is the same, and each store after the reductions it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from compiler.codegen.kernel.body import KernelBody, Source
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Value, constant
from compiler.codegen.native.loops.arguments import Arguments
from compiler.codegen.native.loops.body import Axes, Body
from compiler.codegen.native.loops.cost import byte_count, operation_count
from compiler.codegen.native.loops.forms import LoopAxis
from compiler.codegen.native.loops.loops import LoopEmitter
from compiler.codegen.native.loops.passes import (
    LoopPass,
    choose_lanes,
    draws_in_pairs,
    is_large,
    passes_of,
)
from compiler.codegen.native.loops.reductions import UNROLLED, PassEmitter, fitting
from compiler.codegen.native.loops.scopes import Scopes
from compiler.codegen.native.loops.units import nest_of
from compiler.codegen.native.loops.values import ValueEmitter
from compiler.codegen.native.machine import Machine
from compiler.codegen.trace import Expr
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

POINTWISE_UNROLLED = threshold(
    "pointwise_vectors", 2, "vectors", "in flight in a kernel without loops", small=2
)


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel as LLVM IR, and its arguments: a slot for each operand, then one for each size."""

    kernel: NativeKernel
    operands: list[NumpyOperand]
    sizes: list[Size]

    @property
    def arguments(self) -> list[NumpyOperand | Size]:
        """What each slot holds."""
        return [*self.operands, *self.sizes]


def lower_one(kernel: KernelBody, machine: Machine) -> LoweredKernel:
    """Lower a kernel to one native kernel of the same name."""
    body = Body(kernel)
    operands = _operands(body)
    parameters = [("arguments", POINTER), ("first", I64), ("last", I64)]
    function = Function(kernel.name, parameters)
    emitter = KernelEmitter(body, machine, function, operands)
    emitter.emit()
    cost = operation_count(body), byte_count(operands.values())
    native = NativeKernel([function], emitter.nest.units, *cost)
    return LoweredKernel(native, list(operands.values()), list(emitter.arguments.sizes))


def _operands(body: Body) -> dict[str, NumpyOperand]:
    """The operands of a kernel in the order of their first use."""
    operands: dict[str, NumpyOperand] = {}
    for part in body.parts:
        if part.fn == "load":
            operand = cast(Source, part.extra).operand
            operands[operand.name] = operand
        elif part.fn == "key":
            operands[cast(NumpyOperand, part.extra).name] = cast(NumpyOperand, part.extra)
    for store in body.stores:
        operands.setdefault(store.operand.name, store.operand)
    return operands


class KernelEmitter:
    """Emits the function of one kernel: the loops of its grid, and its passes inside them."""

    def __init__(
        self, body: Body, machine: Machine, f: Function, operands: Mapping[str, NumpyOperand]
    ) -> None:
        self.body = body
        self.f = f
        self.choice = choose_lanes(body, machine)
        self.passes = passes_of(body)
        self.nest = nest_of(body, self.choice.axis, self.choice.lanes * self._unroll())
        self.scopes = Scopes(f)
        self.arguments = Arguments(self.scopes, operands)
        self.values = ValueEmitter(body, self.scopes, self.arguments)
        self.loops = LoopEmitter(body, machine, self.values.indices, self.choice.lanes)
        self.emitter = PassEmitter(body, self.passes, self.values, self.loops)

    def emit(self) -> None:
        """Emit the function's body: the units, if no symbolic axis is empty."""
        self.scopes.mark()
        open_axes = [axis.size for axis in self.body.grid if isinstance(axis.size, Dim)]
        if not open_axes:
            self._units()
            return
        some = constant(I64, 1)
        for size in open_axes:
            here = self.f.compare("sgt", self.arguments.size(size), constant(I64, 0))
            some = here if some.name == "1" else self.f.binary("and", some, here)
        self.f.when(some, self._units)

    def _units(self) -> None:
        """Emit the loop over units."""
        _, first, last = self.f.parameters
        digits = self.nest.digits

        def unit(index: Value, held: list[Value]) -> list[Value]:
            bound = self._decoded(index)
            with self.scopes.level(*zip(digits, bound, strict=True)):
                self._grid(0)
            return held

        self.f.loop(first, last, 1, unit)

    def _decoded(self, unit: Value) -> list[Value]:
        """The indices of the outer axes from the number of a unit."""
        found: list[Value] = []
        digits = self.nest.digits
        for place, axis in reversed(list(enumerate(digits))):
            if place == 0:
                found.append(unit)
                continue
            size = self.arguments.size(axis.size)
            found.append(self.f.binary("urem", unit, size))
            unit = self.f.binary("udiv", unit, size)
        return found[::-1]

    # ---- the grid ----

    def _grid(self, depth: int) -> None:
        """Emit what the open loops determine, then the loops inside, then stores outside those."""
        for each in self.passes:
            ready = [p for p in each.reductions if self._depth(self.body.axes(p)) == depth]
            if ready:
                self.emitter.reduce(each, ready)
        own = [e for e in self.passes if e.stores and self._store_depth(e) == depth]
        for each in (e for e in own if not e.loops):
            self._prepare(each)
        if depth < len(self.nest.inner):
            self._inner(self.nest.inner[depth], depth)
        for each in own:
            if each.loops:
                self.emitter.store_in_loops(each)
            else:
                self.emitter.store_all(each.stores)

    def _depth(self, axes: Axes) -> int:
        """The number of inner loops of the grid down to the last of some axes."""
        places = (n + 1 for n, axis in enumerate(self.nest.inner) if axis in axes)
        return max(places, default=0)

    def _store_depth(self, each: LoopPass) -> int:
        """The number of inner loops around stores; additions happen in every iteration."""
        if any(store.atomic for store in each.stores):
            return len(self.nest.inner)
        return self._depth(each.axes(self.body))

    def _prepare(self, each: LoopPass) -> None:
        """Compute the values of stores before inner loops may overwrite what they read."""
        for _ in self.scopes.each_copy():
            for store in each.stores:
                for term in (store.value, store.where):
                    if isinstance(term, Expr):
                        self.values.value(term)

    def _inner(self, axis: LoopAxis, depth: int) -> None:
        """Emit the loop over an axis of the grid."""

        def iteration(held: list[Value], count: int = 1) -> list[Value]:
            self._grid(depth + 1)
            return held

        if axis is self.choice.axis:
            self.loops.over_lanes(axis, self._unroll(), iteration, [])
        else:
            self.loops.over([axis], iteration, [])

    def _unroll(self) -> int:
        """How many vectors along the grid's lane axis are in flight."""
        axis = self.choice.axis
        if axis is None:
            return 1
        large = any(map(is_large, self.passes))
        most = (UNROLLED if self.body.kernel.loops else POINTWISE_UNROLLED).value
        most = most // 2 if large and not any(map(draws_in_pairs, self.passes)) else most
        return fitting(most, axis, self.choice.lanes)
