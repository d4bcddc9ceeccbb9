"""Emits loads, stores and additions to memory.

Here alone addresses meet memory: contiguous lanes are loaded as a vector, an address that all lanes
share once, all others by gathers. A condition is a mask, or for a scalar chooses between the
address and that of a number of the function's own, so that nothing is read where it is false.

An element whose index was read from memory is compared with its operand's size: out of bounds, it
reads as 0 and is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from compiler.codegen.kernel.body import Source, Store
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.llvm_ir import (
    I1,
    I32,
    I64,
    POINTER,
    Value,
    constant,
    lane_numbers,
    zero,
)
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import Form, exact_quotient
from compiler.codegen.native.loops.indices import IndexEmitter
from compiler.codegen.native.loops.types import (
    convert,
    from_memory,
    index_type,
    literal,
    stored_type,
    to_memory,
)
from compiler.codegen.trace import Expr, Term
from compiler.ir.dims import Size, is_multiple
from compiler.ir.region import end
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass


@dataclass
class Access:
    """Elements of an operand: the address of the first lane, the indices of others behind it.

    `further` is None for contiguous lanes or a single address; `mask` is None if all lanes are
    live.
    """

    address: Value
    further: Value | None
    mask: Value | None
    itemsize: int
    is_single: bool


class ConvertedValues(Protocol):
    """Computes the conditions of accesses, and what a load yields where its condition is false."""

    def condition(self, term: Term, lanes: int) -> Value | None:
        """A condition as bits; None if it is always true."""
        ...

    def converted(self, term: Term, dtype: DType, lanes: int) -> Value:
        """A term cast to a dtype, in registers of that dtype."""
        ...


class MemoryEmitter:
    """Emits accesses to memory."""

    def __init__(self, body: Body, indices: IndexEmitter, values: ConvertedValues) -> None:
        self.body = body
        self.indices = indices
        self.arguments = indices.arguments
        self.scopes = indices.scopes
        self.values = values
        self.f = indices.f

    # ---- loads ----

    def load(self, part: Expr) -> Value:
        """Load an element, or one for each lane."""
        source, form = cast(Source, part.extra), self.body.load_address(part)
        dtype, guard = source.operand.type.dtype, self.body.guard(part)
        lanes = self.scopes.lanes_of(self.body.axes(part))
        where = None if guard is None else self.values.condition(guard[0], lanes)
        access = self._access(source.operand, form, where, lanes)
        if access.mask is None:
            return from_memory(self.f, self._load_all(access, dtype, lanes), dtype)
        other = literal(stored_type(dtype).vector(lanes), 0)
        found = from_memory(self.f, self._load_some(access, other, lanes), dtype)
        if where is None or guard is None:
            return found
        return self.f.select(access.mask, found, self.values.converted(guard[1], dtype, lanes))

    def _load_all(self, access: Access, dtype: DType, lanes: int) -> Value:
        type = stored_type(dtype).vector(lanes)
        if access.further is not None:
            pointers = self.f.addresses(access.address, access.further, access.itemsize)
            return self.f.gather(type, pointers, constant(I1.vector(lanes), 1), zero(type))
        if not access.is_single:
            return self.f.load(type, access.address)
        return self.f.splat(self.f.load(type.scalar, access.address), lanes)

    def _load_some(self, access: Access, other: Value, lanes: int) -> Value:
        """Load where the mask holds."""
        mask = cast(Value, access.mask)
        if access.further is not None:
            pointers = self.f.addresses(access.address, access.further, access.itemsize)
            return self.f.gather(other.type, pointers, mask, other)
        if not access.is_single:
            return self.f.masked_load(other.type, access.address, mask, other)
        some = self.f.reduce("or", mask) if lanes else mask
        safe = self.f.select(some, access.address, self._spare())
        return self.f.splat(self.f.load(other.type.scalar, safe), lanes)

    def _spare(self) -> Value:
        """The address of 8 bytes that no operand has."""

        def make() -> Value:
            place = self.f.value(POINTER, "alloca i64, align 8")
            self.f.store(constant(I64, 0), place)
            return place

        return self.scopes.at_depth(0, "spare", make)

    # ---- stores ----

    def store(self, store: Store, value: Value, lanes: int) -> None:
        """Store a value, or add it to what is there."""
        dtype = store.operand.type.dtype
        where = None if store.where is None else self.values.condition(store.where, lanes)
        access = self._access(store.operand, self.body.store_address(store), where, lanes)
        if store.atomic:
            self._add(access, value, dtype, lanes)
        elif not lanes:
            self._where(access.mask, lambda: self._put(access, to_memory(self.f, value, dtype)))
        else:
            self._put_lanes(access, to_memory(self.f, value, dtype))

    def _where(self, mask: Value | None, body: Callable[[], None]) -> None:
        if mask is None:
            body()
        else:
            self.f.when(mask, body)

    def _put(self, access: Access, value: Value) -> None:
        self.f.store(value, access.address)

    def _put_lanes(self, access: Access, value: Value) -> None:
        if access.further is None and not access.is_single:
            if access.mask is None:
                self.f.store(value, access.address)
            else:
                self.f.masked_store(value, access.address, access.mask)
            return
        lanes = value.type.lanes
        further = access.further or zero(I64.vector(lanes))
        pointers = self.f.addresses(access.address, further, access.itemsize)
        self.f.scatter(value, pointers, access.mask or constant(I1.vector(lanes), 1))

    def _add(self, access: Access, value: Value, dtype: DType, lanes: int) -> None:
        """Add to memory, in the order of lanes."""
        if lanes and access.further is None and not access.is_single:
            zeros = literal(stored_type(dtype).vector(lanes), 0)
            old = self._load_some(access, zeros, lanes) if access.mask else None
            before = from_memory(self.f, old or self._load_all(access, dtype, lanes), dtype)
            self._put_lanes(access, to_memory(self.f, self.f.add(before, value), dtype))
            return
        for lane in range(max(lanes, 1)):
            self._add_one(access, value, dtype, lane, lanes)

    def _add_one(self, access: Access, value: Value, dtype: DType, lane: int, lanes: int) -> None:
        f, address, mask = self.f, access.address, access.mask
        if lanes:
            value = f.extract(value, lane)
            mask = None if mask is None else f.extract(mask, lane)
        if access.further is not None:
            index = convert(f, f.extract(access.further, lane), DType.INT64, I64)
            address = f.address(address, index, access.itemsize)
        if mask is not None:
            address = f.select(mask, address, self._spare())
        before = from_memory(f, f.load(stored_type(dtype), address), dtype)
        f.store(to_memory(f, f.add(before, value), dtype), address)

    # ---- addresses ----

    def _access(self, operand: NumpyOperand, form: Form, where: Value | None, lanes: int) -> Access:
        """The address of elements, and which of them exist."""
        further, is_single = self._further(operand, form, lanes)
        mask, live = where, self.scopes.lanes.mask
        if lanes and live is not None:
            mask = live if where is None else self.f.binary("and", live, where)
        if self.body.is_read(form):
            mask = self._within(operand, form, further, mask, lanes)
        itemsize = operand.type.dtype.itemsize
        return Access(self.indices.address(operand, form), further, mask, itemsize, is_single)

    def _further(self, operand: NumpyOperand, form: Form, lanes: int) -> tuple[Value | None, bool]:
        """The indices of lanes behind the first one, if they are not contiguous; if all are 0."""
        lane = self.scopes.lanes.axis
        if not lanes or lane is None:
            return None, True
        own = [
            atom
            for atom, _ in form.terms
            if isinstance(atom, Expr) and self.scopes.is_vector(self.body.axes(atom))
        ]
        step = form.coefficient(lane)
        if not own and isinstance(step, int) and step in (0, 1):
            return None, step == 0
        span = _span(operand)
        nbytes = span * operand.type.dtype.itemsize if isinstance(span, int) else None
        return self.indices.lane_index(form, index_type(nbytes)), False

    def _within(
        self, operand: NumpyOperand, form: Form, further: Value | None, mask: Value | None,
        lanes: int,
    ) -> Value:  # fmt: skip
        """The lanes that are live and in bounds; an index that was read may have any 64 bits."""
        if lanes and further is None and self._is_aligned(form):
            inside = self._aligned_within(operand, form, lanes)
            return inside if mask is None else self.f.binary("and", mask, inside)
        f, index = self.f, self.f.splat(self.indices.index(form), lanes)
        if lanes:
            index = f.add(index, self.indices.lane_index(form, I64))
        inside = f.compare("ult", index, f.splat(self.arguments.size(_count(operand)), lanes))
        return inside if mask is None else f.binary("and", mask, inside)

    def _is_aligned(self, form: Form) -> bool:
        """True for contiguous lanes whose first index is a multiple of their number."""
        lanes = self.scopes.lanes
        if lanes.axis is None or form.coefficient(lanes.axis) != 1:
            return False
        form = self.indices.expanded(form)
        others = [factor for atom, factor in form.terms if atom is not lanes.axis]
        return all(is_multiple(each, lanes.count) for each in (*others, form.offset))

    def _aligned_within(self, operand: NumpyOperand, form: Form, lanes: int) -> Value:
        """The lanes in bounds, of which the first index is negative only if all are.

        Their number is a scalar, compared with those of lanes in 32 bits.
        """
        f, first, count = self.f, self.indices.index(form), self.arguments.size(_count(operand))
        left = f.sub(count, first)
        is_some = f.compare("ult", left, constant(I64, lanes))
        some = f.select(is_some, left, constant(I64, lanes))
        inside = f.compare("ult", first, count)
        number = f.convert("trunc", f.select(inside, some, constant(I64, 0)), I32)
        type = I32.vector(lanes)
        return f.compare("ult", lane_numbers(type), f.splat(number, lanes))


def _span(operand: NumpyOperand) -> Size:
    """The elements from the first to the last one of an operand, with gaps, or more."""
    region = operand.region
    if not region.is_strided:
        return operand.type.numel
    return region.pitch * operand.type.numel


def _count(operand: NumpyOperand) -> Size:
    """The elements from the first to the last one of an operand, with gaps."""
    nbytes = end(operand.type, operand.region) - operand.region.offset
    count = exact_quotient(nbytes, operand.type.dtype.itemsize)
    assert count is not None, "a region holds whole elements"
    return count
