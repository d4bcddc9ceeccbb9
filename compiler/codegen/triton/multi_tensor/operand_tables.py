"""The operand table of structurally equal kernels: a column per operand, a row per part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.kernel.random import keys_from
from compiler.codegen.module_writer import ModuleWriter, NumpyOperand
from compiler.codegen.triton.helpers import HELPERS
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.values import RESERVED
from compiler.codegen.writer import Names
from compiler.ir.dims import Size
from compiler.ir.opdef.global_reductions import KEY, Whole
from compiler.plan import PlannedOp, PlannedValue, StorageKind
from compiler.support.dataclass import dataclass

ALIGNED = 16
"""Bytes of the widest vector load of a thread."""

_TAKEN = frozenset("table places sums finished place row block entry size lane own".split())
"""Names that a multi-tensor kernel uses itself."""


@dataclass(frozen=True)
class Column:
    """An operand by its name in the kernel, and its operand in each part.

    `is_number` is true for a scalar next to tensors of any size.
    """

    operand: NumpyOperand
    parts: tuple[NumpyOperand, ...]
    is_number: bool

    @property
    def pointer(self) -> str:
        """The kernel's name for its address."""
        return f"{self.operand.name}_ptr"

    def address_text(self, place: int) -> str:
        """The expression that loads its address from index `place` of the part's row."""
        kind = f"tl.pointer_type({TYPES[self.operand.type.dtype]})"
        text = f"tl.load(entry + {place}).to({kind})"
        aligned = not self.is_number and all(map(_is_aligned, self.parts))
        return f"tl.multiple_of({text}, {ALIGNED})" if aligned else text


def _is_aligned(operand: NumpyOperand) -> bool:
    """True if it is aligned to a vector, as state and buffers are."""
    offset = operand.region.offset
    return operand.steady and isinstance(offset, int) and offset % ALIGNED == 0


class OperandTable:
    """Finds the operands of a model part, the first with tensors, and those of the others."""

    def __init__(self, writer: ModuleWriter, parts: Sequence[Sequence[PlannedOp]]) -> None:
        self.writer = writer
        self.parts = parts
        self.model = next((part for part in parts if width(part) != 1), parts[0])
        self.width = width(self.model)
        self.all: list[Column] = []
        self._known: dict[str, Column] = {}
        self._names = Names({*HELPERS, *RESERVED, *_TAKEN})

    def operand(self, value: PlannedValue) -> NumpyOperand:
        """The operand for a value of the model, named after its slot."""
        return self.column(value).operand

    def column(self, value: PlannedValue) -> Column:
        """The column for a value of the model."""
        operand = self.writer.operand(value)
        if operand.name not in self._known:
            self._known[operand.name] = self._column(value, operand)
            self.all.append(self._known[operand.name])
        return self._known[operand.name]

    def _column(self, value: PlannedValue, operand: NumpyOperand) -> Column:
        number, slot, index = _slot_of(self.model, value)
        counterparts = [(part[number], _slots(part[number])[slot][index]) for part in self.parts]
        parts = tuple(self.writer.operand(counterpart) for _, counterpart in counterparts)
        scalars = value.type.numel == 1 and not (self.width == 1 and self.is_whole)
        if slot == KEY:
            positions = [op.defn.attributes["place"] for op, _ in counterparts]
            parts = tuple(map(keys_from, parts, positions))
            operand, scalars = parts[0], True
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", slot).replace("@", "_").lower()
        return Column(replace(operand, name=self._names.make(words)), parts, scalars)

    @property
    def rows(self) -> list[Column]:
        """All columns: tensors, the first of which determines the size, then scalars."""
        return sorted(self.all, key=lambda column: column.is_number)

    @property
    def numbers(self) -> frozenset[str]:
        """The names of scalars in the kernel."""
        return frozenset(column.operand.name for column in self.all if column.is_number)

    @property
    def is_whole(self) -> bool:
        """True if parts are ops with global reductions."""
        return isinstance(self.model[0].defn, Whole)


def width(part: Sequence[PlannedOp]) -> Size:
    """The number of elements of a part's tensors; 1 if it has only scalars."""
    counts = (v.type.numel for op in part for v in op.values if v not in op.inputs.get(KEY, ()))
    return next((count for count in counts if count != 1), 1)


def _slots(op: PlannedOp) -> dict[str, tuple[PlannedValue, ...]]:
    return {**op.inputs, **op.outputs}


def _slot_of(part: Sequence[PlannedOp], value: PlannedValue) -> tuple[int, str, int]:
    """The last op of a part with a value (or its state), the slot, and the index in the slot."""
    return next(
        (number, slot, index)
        for number, op in reversed(list(enumerate(part)))
        for slot, values in _slots(op).items()
        for index, var in enumerate(values)
        if var == value or (var.place is StorageKind.PARAM and var.storage == value.storage)
    )
