"""wgmma: products that four warps compute together, of matrices in shared memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import require, where
from tools.ptx.errors import BarrierFault, PtxError, unsupported
from tools.ptx.group import WARP, Group, Mask
from tools.ptx.instructions import Immediate, Instruction, Operand, Register, Vector
from tools.ptx.matrices.descriptors import WARPGROUP, Shape
from tools.ptx.matrices.flight import Product
from tools.ptx.matrices.tensor_cores import COLUMN, KINDS, ROW, left_factor, readers
from tools.ptx.values import Step, reader

_SHAPE = re.compile(r"m64n(\d+)k(\d+)$")
_SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",),
}  # fmt: skip
_WAITS = ("fence", "commit_group", "wait_group")

Elements = Callable[[], Array]
"""The elements of a factor as [warpgroup, row, K]."""
Start = Callable[[Group, Array], Elements]
"""What is read of a factor when its product starts; the rest is when it is computed."""


@dataclass(frozen=True)
class Form:
    """Columns and K of a product, the types of its factors and of the sum, and what is negated."""

    columns: int
    depth: int
    result: str
    first: str
    second: str
    saturates: bool
    signs: tuple[int, ...]
    across: tuple[bool, ...]
    """Whether A and B in shared memory are transposed: elements along K are not adjacent."""


def warpgroup(instruction: Instruction) -> Step:
    """Wgmma in all its parts."""
    name, *rest = instruction.modifiers
    if name in _WAITS and rest == ["sync", "aligned"]:
        return _order(instruction, name)
    if name != "mma_async":
        raise unsupported(instruction)
    return _multiply(instruction)


def _order(instruction: Instruction, name: str) -> Step:
    most = instruction.operands[0] if instruction.operands else None
    if (name == "wait_group") != isinstance(most, Immediate) or len(instruction.operands) > 1:
        raise unsupported(instruction, "its operands")

    def run(group: Group, mask: Mask) -> None:
        _runs(group, instruction, mask)
        if name == "commit_group":
            group.products.commit()
        elif isinstance(most, Immediate):
            group.products.wait(group.registers, most.value)

    return run


def _runs(group: Group, instruction: Instruction, mask: Mask) -> Array:
    """Which warpgroups take part. Raises BarrierFault if a part of one does not."""
    if group.pitch % WARPGROUP:
        raise PtxError(f"{where(group, instruction, 0, 0)}: a block of {group.threads} threads")
    lanes = (np.ones(group.lanes, bool) if mask is None else mask).reshape(-1, WARPGROUP)
    whole: Array = np.logical_and.reduce(lanes, 1)
    parts = lanes.any(1) & ~whole
    if parts.any():
        place = where(group, instruction, int(parts.argmax()) * WARPGROUP, 0)
        text = f"{place}: only a part of the warpgroup takes part"
        raise BarrierFault(text, op=instruction.text, source=instruction.place)
    return whole


def _multiply(instruction: Instruction) -> Step:
    to, left, right, scale, *numbers = instruction.operands
    form = _form(instruction, isinstance(left, Vector), numbers)
    slots = _slots(instruction, to, form)
    first = _first(instruction, left, form)
    second = _in_memory(instruction, right, form.columns, form.second, form.across[-1])
    adds = reader(scale, "?")

    def run(group: Group, mask: Mask) -> None:
        runs = _runs(group, instruction, mask)
        keeps = group.spread(adds(group))[::WARPGROUP, None, None]
        a, b = first(group, runs), second(group, runs)

        def compute(bits: list[Array]) -> Sequence[Array]:
            product = np.matmul(a(), b().transpose(0, 2, 1)) * np.prod(form.signs)
            return _bits(product + np.where(keeps, _sum(bits, form), 0), form)

        lanes = np.repeat(runs, WARPGROUP)
        group.products.begin(group.registers, Product(slots, lanes, compute))

    return run


def _form(instruction: Instruction, in_registers: bool, numbers: Sequence[Operand | None]) -> Form:
    _, *order, shape, result, first, second = [*instruction.modifiers, *[""] * 7][:7]
    more = instruction.modifiers[7:]
    match = _SHAPE.match(shape)
    same = second == first or {first, second} <= {"s8", "u8"}
    is_expected = order == ["sync", "aligned"] and result in _RESULTS.get(first, ())
    if not (match and is_expected and same) or more not in ((), ("satfinite",)):
        raise unsupported(instruction)
    columns, depth, size = int(match[1]), int(match[2]), _SIZES[first]
    if depth * size != 32 or columns % 8 or not 8 <= columns <= 256:
        raise unsupported(instruction, "its shape")
    if more and result != "s32":
        raise unsupported(instruction)
    immediates = [number.value for number in numbers if isinstance(number, Immediate)]
    signs, across = _options(instruction, size, in_registers, immediates, len(numbers))
    return Form(columns, depth, result, first, second, bool(more), signs, across)


def _options(
    instruction: Instruction, size: int, in_registers: bool, given: Sequence[int], count: int
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The signs of A and B (of floats), and which are transposed (of 16 bits, in memory)."""
    signs = 2 if size > 1 else 0
    turns = (1 if in_registers else 2) if size == 2 else 0
    if len(given) != count or count != signs + turns:
        raise unsupported(instruction, "its operands")
    turned = given[signs:] or [0, 0]
    if not {*given[:signs]} <= {1, -1} or not {*turned} <= {0, 1}:
        raise unsupported(instruction, "its operands")
    return tuple(given[:signs]), tuple(bit == 1 for bit in turned)


def _slots(instruction: Instruction, to: Operand | None, form: Form) -> tuple[int, ...]:
    """The registers of the sum."""
    parts = to.parts if isinstance(to, Vector) else ()
    slots = tuple(e.slot for e in parts if isinstance(e, Register) and e.width == 4)
    if len(slots) != form.columns // (4 if form.result == "f16" else 2):
        raise unsupported(instruction, f"{len(slots)} registers of the sum")
    return slots


def _first(instruction: Instruction, left: Operand | None, form: Form) -> Start:
    if not isinstance(left, Vector):
        return _in_memory(instruction, left, 64, form.first, form.across[0])
    if len(left.parts) != 4:
        raise unsupported(instruction, f"{len(left.parts)} registers of A")
    reads = readers(left.parts)

    def start(group: Group, runs: Array) -> Elements:
        factor = left_factor(group, reads, KINDS[form.first], form.depth)
        return lambda: factor.reshape(-1, 64, form.depth).astype("f8")

    return start


def _in_memory(
    instruction: Instruction, operand: Operand | None, rows: int, kind: str, across: bool
) -> Start:
    read, shape = reader(operand, "u8"), Shape(rows, _SIZES[kind], not across)

    def start(group: Group, runs: Array) -> Elements:
        descriptors = group.spread(read(group)).reshape(-1, WARPGROUP)
        lanes = np.arange(0, group.lanes, WARPGROUP)
        same = (descriptors == descriptors[:, :1]).all(1) | ~runs
        require(
            group, instruction, lanes, descriptors[:, 0], same, "is not the same in its warpgroup"
        )
        return lambda: _elements(shape.matrix(group, instruction, descriptors[:, 0], runs), kind)

    return start


def _elements(found: Array, kind: str) -> Array:
    """Bytes as [warpgroup, row, K, size], as numbers."""
    words = np.ascontiguousarray(found).reshape(*found.shape[:2], 32).view("u4")
    return KINDS[kind].values(words).reshape(*found.shape[:3]).astype("f8")


def _places(columns: int) -> tuple[Array, Array]:
    """Row of its warp's 16, and column, of each element that a lane holds: [element, lane]."""
    index = np.arange(columns // 2)[:, None]
    return ROW + 8 * (index >> 1 & 1), 8 * (index >> 2) + 2 * COLUMN + (index & 1)


def _sum(bits: list[Array], form: Form) -> Array:
    """The sum in registers as [warpgroup, 64, columns]."""
    words = np.stack(bits).reshape(len(bits), -1, WARP)
    if form.result == "f16":
        halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], 1).astype("u2")
        values = halves.reshape(-1, *words.shape[1:]).view("f2")
    else:
        values = words.view("i4" if form.result == "s32" else "f4")
    whole = np.zeros((words.shape[1], 16, form.columns))
    rows, columns = _places(form.columns)
    whole[:, rows, columns] = values.transpose(1, 0, 2)
    return whole.reshape(-1, 64, form.columns)


def _bits(total: Array, form: Form) -> Sequence[Array]:
    """A sum of [warpgroup, 64, columns] as registers, rounded once."""
    rows, columns = _places(form.columns)
    whole = total.reshape(-1, 16, form.columns)[:, rows, columns].transpose(1, 0, 2)
    values = whole.reshape(len(rows), -1)
    if form.result == "s32":
        return list(_integers(values, form.saturates))
    if form.result == "f32":
        return list(values.astype("f4").view("u4"))
    halves = values.astype("f2").view("u2").astype("u4")
    return list(halves[::2] | halves[1::2] << np.uint32(16))


def _integers(values: Array, saturates: bool) -> Array:
    limits = np.iinfo("i4")
    clipped = np.clip(values, limits.min, limits.max) if saturates else values
    return clipped.astype("i8").astype("u4")
