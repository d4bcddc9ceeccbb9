"""Transposition of a square block in vector registers, by shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.images.vectors import Piece
from compiler.codegen.native.llvm_ir import Function, Type, Value, zero
from compiler.codegen.native.machine import Machine

_LANE = 16
"""Bytes within which shuffles of x86 are cheap; a register of NEON."""


def block_size(machine: Machine, element: Type) -> int:
    """The rows and columns of a block: a register, or 16 bytes of elements of 1 or 2 bytes."""
    nbytes = machine.vector_bytes if element.nbytes >= 4 else _LANE
    return nbytes // element.nbytes


def part(machine: Machine, element: Type, count: int) -> Piece:
    """The first `count` elements of a row of a block."""
    type = element.scalar.vector(block_size(machine, element))
    masked_loads = machine.has_masks or (machine.name == "avx2" and element.nbytes >= 4)
    return Piece(type, count, machine.has_masks, masked_loads)


def transpose_block(f: Function, rows: Sequence[Value], columns: int) -> list[Value]:
    """Return the first `columns` columns of a block; missing rows are zero."""
    type = rows[0].type
    size, lane = type.lanes, _LANE // type.nbytes
    rows = [*rows, *[zero(type)] * (size - len(rows))]
    groups = [_within_lanes(f, rows[start : start + lane]) for start in range(0, size, lane)]
    by_column: dict[int, Value] = {}
    for place in range(min(lane, columns)):
        across = _across_lanes(f, [group[place] for group in groups])
        by_column |= {number * lane + place: vector for number, vector in enumerate(across)}
    return [by_column[column] for column in range(columns)]


def _within_lanes(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Transpose the square in each 16 bytes of as many rows as that has elements."""
    rows, half = list(rows), len(rows) // 2
    for _ in range(half.bit_length()):
        pairs = [(rows[k], rows[k + half]) for k in range(half)]
        rows = [_interleave(f, a, b, high) for a, b in pairs for high in (False, True)]
    return rows


def _interleave(f: Function, a: Value, b: Value, high: bool) -> Value:
    """Interleave the low or high halves of the 16-byte parts of two vectors."""
    lanes, part = a.type.lanes, _LANE // a.type.nbytes
    first = part // 2 if high else 0
    order = [
        start + first + k // 2 + (lanes if k % 2 else 0)
        for start in range(0, lanes, part)
        for k in range(part)
    ]
    return f.shuffle(a, b, order)


def _across_lanes(f: Function, vectors: Sequence[Value]) -> list[Value]:
    """Transpose a square of 16-byte parts: 1, 2 or 4 vectors of as many parts."""
    if len(vectors) == 1:
        return list(vectors)
    if len(vectors) == 2:
        a, b = vectors
        return [_parts(f, a, b, (0, 2)), _parts(f, a, b, (1, 3))]
    a, b, c, d = vectors
    low, high = (0, 1, 4, 5), (2, 3, 6, 7)
    halves = [(_parts(f, a, b, half), _parts(f, c, d, half)) for half in (low, high)]
    even, odd = (0, 2, 4, 6), (1, 3, 5, 7)
    return [_parts(f, x, y, parity) for x, y in halves for parity in (even, odd)]


def _parts(f: Function, a: Value, b: Value, order: Sequence[int]) -> Value:
    """Select 16-byte parts of two vectors, numbered through both."""
    part = _LANE // a.type.nbytes
    return f.shuffle(a, b, [number * part + k for number in order for k in range(part)])
