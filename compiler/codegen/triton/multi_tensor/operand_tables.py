"""The tensors of kernels that are alike, as columns: in each the same operand of every part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.codegen.bind_and_run import Frame, NumpyOperand
from compiler.codegen.triton.helpers import HELPERS
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.random import keys_from
from compiler.codegen.triton.values import RESERVED
from compiler.codegen.writer import Names
from compiler.ir.dims import Size
from compiler.ir.opdef.global_reductions import KEY, Whole
from compiler.plan import Place, PlannedOp, Value

ALIGNED = 16
"""Bytes of the longest vector that a thread reads at once."""

_TAKEN = frozenset("table places sums turns place row block entry size turn own".split())
"""Names that a kernel for many tensors uses itself."""


@dataclass(frozen=True)
class Column:
    """An operand as the kernel names it, and what stands there in each part.

    `is_number` is true for a single number beside tensors of any size.
    """

    operand: NumpyOperand
    parts: tuple[NumpyOperand, ...]
    is_number: bool

    @property
    def pointer(self) -> str:
        """The kernel's name for its address."""
        return f"{self.operand.name}_ptr"

    def found(self, place: int) -> str:
        """Its address as an expression, from a place of the part's row in the table."""
        kind = f"tl.pointer_type({TYPES[self.operand.type.dtype]})"
        text = f"tl.load(entry + {place}).to({kind})"
        aligned = not self.is_number and all(map(_is_aligned, self.parts))
        return f"tl.multiple_of({text}, {ALIGNED})" if aligned else text


def _is_aligned(operand: NumpyOperand) -> bool:
    """True for what begins at a multiple of a vector, as state and buffers do."""
    offset = operand.region.offset
    return operand.steady and isinstance(offset, int) and offset % ALIGNED == 0


class Columns:
    """Finds the operands of the first part that is no lone number, with those of the others."""

    def __init__(self, frame: Frame, parts: Sequence[Sequence[PlannedOp]]) -> None:
        self.frame = frame
        self.parts = parts
        self.model = next((part for part in parts if width(part) != 1), parts[0])
        self.width = width(self.model)
        self.all: list[Column] = []
        self._known: dict[str, Column] = {}
        self._names = Names({*HELPERS, *RESERVED, *_TAKEN})

    def operand(self, value: Value) -> NumpyOperand:
        """The operand for a value of the model, by the name of its slot."""
        return self.column(value).operand

    def column(self, value: Value) -> Column:
        """The column for a value of the model."""
        mine = self.frame.operand(value)
        if mine.name not in self._known:
            self._known[mine.name] = self._column(value, mine)
            self.all.append(self._known[mine.name])
        return self._known[mine.name]

    def _column(self, value: Value, mine: NumpyOperand) -> Column:
        number, slot, index = _place_of(self.model, value)
        theirs = [(part[number], _sides(part[number])[slot][index]) for part in self.parts]
        parts = tuple(self.frame.operand(each) for _, each in theirs)
        lone = value.type.numel == 1 and not (self.width == 1 and self.is_whole)
        if slot == KEY:
            places = [op.defn.attributes["place"] for op, _ in theirs]
            parts = tuple(map(keys_from, parts, places))
            mine, lone = parts[0], True
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", slot).replace("@", "_").lower()
        return Column(replace(mine, name=self._names.make(words)), parts, lone)

    @property
    def rows(self) -> list[Column]:
        """All columns: tensors, the first of which tells the size, then numbers."""
        return sorted(self.all, key=lambda column: column.is_number)

    @property
    def numbers(self) -> frozenset[str]:
        """What the kernel calls its single numbers."""
        return frozenset(column.operand.name for column in self.all if column.is_number)

    @property
    def is_whole(self) -> bool:
        """True where parts are ops that need sums first."""
        return isinstance(self.model[0].defn, Whole)


def width(part: Sequence[PlannedOp]) -> Size:
    """How many elements the tensors of a part have; 1 where it works on numbers alone."""
    counts = (v.type.numel for op in part for v in op.values if v not in op.inputs.get(KEY, ()))
    return next((count for count in counts if count != 1), 1)


def _sides(op: PlannedOp) -> dict[str, tuple[Value, ...]]:
    return {**op.inputs, **op.outputs}


def _place_of(part: Sequence[PlannedOp], value: Value) -> tuple[int, str, int]:
    """The last op of a part that has a value (or its state), the slot, and the place in it."""
    return next(
        (number, slot, index)
        for number, op in reversed(list(enumerate(part)))
        for slot, values in _sides(op).items()
        for index, each in enumerate(values)
        if each == value or (each.place is Place.PARAM and each.storage == value.storage)
    )
