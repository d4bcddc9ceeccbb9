"""Vectors over the channels of an image, and the rest where a vector is not full."""

from __future__ import annotations

from compiler.codegen.native.llvm_ir import I1, Function, Type, Value, constant, zero
from compiler.codegen.native.machine import Machine
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Piece:
    """A vector type, of which the first `count` lanes are read and written.

    `has_masks`: whether the machine stores part of a vector in one instruction; `masked_loads`:
    whether it loads one so.
    """

    type: Type
    count: int
    has_masks: bool = True
    masked_loads: bool = True

    @property
    def is_full(self) -> bool:
        """True if all lanes are in use."""
        return self.count == max(self.type.lanes, 1)

    @property
    def mask(self) -> Value:
        """The lanes in use as a constant of booleans."""
        lanes = (f"i1 {str(lane < self.count).lower()}" for lane in range(self.type.lanes))
        return Value(f"<{', '.join(lanes)}>", self.type.of(I1))

    def load(self, f: Function, pointer: Value) -> Value:
        """Load the lanes in use; the others are zero."""
        if self.is_full:
            return f.load(self.type, pointer)
        if self.masked_loads:
            return f.masked_load(self.type, pointer, self.mask, zero(self.type))
        result = zero(self.type)
        for first, count in powers_of_two(self.count):
            part = f.load(self.type.vector(count), f.address(pointer, first, self.type.nbytes))
            result = _with_part(f, result, part, first)
        return result

    def store(self, f: Function, value: Value, pointer: Value) -> None:
        """Store the lanes in use."""
        if self.is_full:
            f.store(value, pointer)
        elif self.has_masks:
            f.masked_store(value, pointer, self.mask)
        else:
            for first, count in powers_of_two(self.count):
                part = f.shuffle(value, value, range(first, first + count))
                f.store(part, f.address(pointer, first, self.type.nbytes))

    def splat(self, f: Function, scalar: Value) -> Value:
        """The scalar in each lane."""
        return f.splat(scalar, self.type.lanes)

    def constant(self, number: float) -> Value:
        """The number in each lane."""
        return constant(self.type, number)


def powers_of_two(count: int) -> list[tuple[int, int]]:
    """Split a count into descending powers of two; returns their starts and sizes."""
    parts: list[tuple[int, int]] = []
    first = 0
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            parts.append((first, 1 << bit))
            first += 1 << bit
    return parts


def _with_part(f: Function, vector: Value, part: Value, first: int) -> Value:
    """Replace the lanes of a vector from `first` on."""
    lanes, count = vector.type.lanes, part.type.lanes
    wide = f.shuffle(part, part, [*range(count), *[0] * (lanes - count)])
    order = [lanes + lane - first if 0 <= lane - first < count else lane for lane in range(lanes)]
    return f.shuffle(vector, wide, order)


def rest_piece(machine: Machine, element: Type, count: int) -> Piece:
    """A vector for `count` elements, fewer than a register holds.

    A narrower vector if `count` is a power of two, else a register with masks.
    """
    if count & (count - 1) == 0:
        return Piece(element.scalar.vector(count), count)
    masked_loads = machine.has_masks or (machine.name == "avx2" and element.nbytes >= 4)
    return Piece(machine.vector(element), count, machine.has_masks, masked_loads)


@dataclass(frozen=True)
class Channels:
    """The channels of an image as full vectors and a rest; `limit` > 0 bounds their lanes."""

    machine: Machine
    element: Type
    count: int
    limit: int = 0

    @property
    def lanes(self) -> int:
        """Lanes of a full vector."""
        return self.limit or self.machine.lanes(self.element)

    @property
    def full(self) -> int:
        """The number of full vectors."""
        return self.count // self.lanes

    @property
    def vectors(self) -> int:
        """The number of vectors, the rest included."""
        return -(-self.count // self.lanes)

    @property
    def piece(self) -> Piece:
        """A full vector."""
        return Piece(self.element.scalar.vector(self.lanes), self.lanes)

    @property
    def rest(self) -> Piece | None:
        """The vector of the channels behind the last full one."""
        count = self.count % self.lanes
        return rest_piece(self.machine, self.element, count) if count else None
