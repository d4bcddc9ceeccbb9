"""mma.sync: products of small matrices that the lanes of a warp hold together.

Products and their sums are computed in float64 and rounded to the accumulator's type once; a GPU
rounds in between, in an order that is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import require_whole_warps
from tools.ptx.errors import unsupported
from tools.ptx.float_steps import half_value
from tools.ptx.group import WARP, Group, Mask
from tools.ptx.instructions import Instruction, Operand, Vector
from tools.ptx.values import Read, Step, Write, reader, writer

_LANE = np.arange(WARP)
ROW, COLUMN = _LANE >> 2, _LANE & 3
"""The row, and the place in it, of a lane in a matrix of 8 rows."""


@dataclass(frozen=True)
class Kind:
    """How a type of factors lies in 32-bit registers: elements in each, and what they mean."""

    per_register: int
    values: Callable[[Array], Array]


def _halves(brain: bool) -> Callable[[Array], Array]:
    def values(bits: Array) -> Array:
        parts = np.stack([bits & np.uint32(0xFFFF), bits >> np.uint32(16)], -1).astype("u2")
        return half_value(parts, brain).astype("f8")

    return values


def _bytes(kind: str) -> Callable[[Array], Array]:
    return lambda bits: np.ascontiguousarray(bits)[..., None].view(kind).astype("i8")


def _tf32(bits: Array) -> Array:
    return (bits & np.uint32(0xFFFFE000)).view("f4").astype("f8")[..., None]


KINDS = {
    "f16": Kind(2, _halves(False)),
    "bf16": Kind(2, _halves(True)),
    "tf32": Kind(1, _tf32),
    "s8": Kind(4, _bytes("i1")),
    "u8": Kind(4, _bytes("u1")),
}
_SHAPES = {
    "m16n8k8": ("f16", "bf16", "tf32"), "m16n8k16": ("f16", "bf16", "s8", "u8"),
    "m16n8k4": ("tf32",), "m16n8k32": ("s8", "u8"),
}  # fmt: skip


def multiply(instruction: Instruction) -> Step:
    """mma.sync of a 16×k by a k×8 matrix, added to a 16×8 one."""
    shape, first, second, result = _form(instruction)
    depth = int(shape.partition("k")[2])
    groups = [operand.parts for operand in instruction.operands if isinstance(operand, Vector)]
    per = KINDS[first].per_register
    counts = [16 * depth // WARP // per, 8 * depth // WARP // per]
    words = 2 if result == "f16" else 4
    if [len(group) for group in groups] != [words, *counts, words]:
        raise unsupported(instruction, "its operands")
    writes = [writer(part) for part in groups[0]]
    wraps = not instruction.has("satfinite")
    left, right, added = (readers(group) for group in groups[1:])

    def run(group: Group, mask: Mask) -> None:
        require_whole_warps(group, instruction, mask)
        a = left_factor(group, left, KINDS[first], depth)
        b = right_factor(group, right, KINDS[second], depth)
        total = np.matmul(a, b) + _accumulator(group, added, result)
        _store(group, mask, writes, total if wraps else _saturated(total), result)

    return run


def _form(instruction: Instruction) -> tuple[str, str, str, str]:
    """Shape and the types of the factors and of the result. Refuses forms that are not known."""
    pairs = enumerate(instruction.modifiers)
    required = [modifier for place, modifier in pairs if (place, modifier) != (5, "satfinite")]
    sync, aligned, shape, rows, columns, *types = [*required, *[""] * 9][:9]
    is_expected = (sync, aligned, rows, columns) == ("sync", "aligned", "row", "col")
    result, first, second, added = types
    saturates = instruction.has("satfinite") and result != "s32"
    if (
        not is_expected
        or len(required) != 9
        or saturates
        or result != added
        or first not in _SHAPES.get(shape, ())
    ):
        raise unsupported(instruction)
    integers = first in ("s8", "u8")
    results = ("s32",) if integers else ("f32", "f16") if first == "f16" else ("f32",)
    if result not in results or (second != first and not (integers and second in ("s8", "u8"))):
        raise unsupported(instruction)
    return shape, first, second, result


def _saturated(total: Array) -> Array:
    """Sums of integers clamped to 32 bits."""
    limits = np.iinfo("i4")
    return np.clip(total, limits.min, limits.max)


def readers(parts: Sequence[Operand | None]) -> list[Read]:
    """Read registers of 32 bits."""
    return [reader(part, "u4") for part in parts]


def left_factor(group: Group, reads: Sequence[Read], kind: Kind, depth: int) -> Array:
    """The left factor as [warp, 16, depth]."""
    count = kind.per_register
    whole = np.zeros((group.lanes // WARP, 16, depth), "f8" if count < 4 else "i8")
    for place, read in enumerate(reads):
        parts = kind.values(group.warps(read(group)))
        column = count * COLUMN + 4 * count * (place >> 1)
        for index in range(count):
            whole[:, ROW + 8 * (place & 1), column + index] = parts[..., index]
    return whole


def right_factor(group: Group, reads: Sequence[Read], kind: Kind, depth: int) -> Array:
    """The right factor as [warp, depth, 8]."""
    count = kind.per_register
    whole = np.zeros((group.lanes // WARP, depth, 8), "f8" if count < 4 else "i8")
    for place, read in enumerate(reads):
        parts = kind.values(group.warps(read(group)))
        row = count * COLUMN + 4 * count * place
        for index in range(count):
            whole[:, row + index, ROW] = parts[..., index]
    return whole


def _accumulator(group: Group, reads: Sequence[Read], result: str) -> Array:
    """What is added, as [warp, 16, 8]."""
    whole = np.zeros((group.lanes // WARP, 16, 8), "i8" if result == "s32" else "f8")
    for place, value in enumerate(_singles(group, reads, result)):
        whole[:, ROW + 8 * (place >> 1), 2 * COLUMN + (place & 1)] = value
    return whole


def _singles(group: Group, reads: Sequence[Read], result: str) -> list[Array]:
    values = [group.warps(read(group)) for read in reads]
    if result != "f16":
        return [value.view("i4" if result == "s32" else "f4") for value in values]
    halves = [_halves(False)(value) for value in values]
    return [half[..., side] for half in halves for side in (0, 1)]


def _store(group: Group, mask: Mask, writes: Sequence[Write], whole: Array, result: str) -> None:
    kind = {"f16": "f2", "s32": "i4", "f32": "f4"}[result]
    results = [
        whole[:, ROW + 8 * (place >> 1), 2 * COLUMN + (place & 1)].reshape(-1).astype(kind)
        for place in range(4)
    ]
    if result == "f16":
        bits = [half.view("u2").astype("u4") for half in results]
        results = [bits[0] | bits[1] << np.uint32(16), bits[2] | bits[3] << np.uint32(16)]
    for write, value in zip(writes, results, strict=True):
        write(group, mask, value)
