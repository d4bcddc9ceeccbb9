"""Checks of LoD offsets: before the first op that reads them, a step compares them with the rows.

Kernels and reference implementations take for granted that offsets start at 0, never decrease and
end at the number of rows, or of sequences of the next inner level. Offsets that an op derives from
valid ones are valid for its output; all others (feeds, state, results of ordinary ops, values that
loops carry) are checked once they are read with these rows.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from compiler.codegen.module_writer import Home, ModuleWriter
from compiler.errors import CompileError
from compiler.ir.opdef import Slot
from compiler.ir.program import GRAD
from compiler.ir.types import Array
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind
from compiler.support.dataclass import dataclass


def expect_offsets(
    offsets: Array,
    end: int,
    what: str,
    items: str,
    checked: list[bytes | None] | None = None,
    may_end_early: bool = False,
) -> None:
    """Raise ValueError unless offsets, int64 [count + 1], start at 0, never decrease, and end at
    `end`, the number of `items`; `what` names the offsets. They `may_end_early`, before `end`.

    The bytes of valid ones are stored in `checked`: steps with the same offsets only compare them.
    """
    falls = (offsets[1:] < offsets[:-1]).any()
    ends = len(offsets) and (offsets[-1] == end or (may_end_early and offsets[-1] < end))
    if not ends or falls or offsets[0] != 0:
        raise ValueError(
            f"the LoD offsets {what!r} {fault_of(offsets)}: expected offsets that start at 0, "
            f"never decrease and end at {end}, the number of {items}"
        )
    if checked is not None:
        checked[0] = offsets.tobytes()


def fault_of(offsets: Array) -> str:
    """What is wrong with offsets, or where they end."""
    if not len(offsets):
        return "are empty"
    if offsets[0] != 0:
        return f"start at {offsets[0]}"
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        return f"fall from {offsets[falls[0]]} to {offsets[falls[0] + 1]} at index {falls[0] + 1}"
    return f"end at {offsets[-1]}"


@dataclass(frozen=True)
class Divided:
    """LoD offsets with what they divide: the rows of a value, or the sequences of a level."""

    offsets: PlannedValue
    inner: PlannedValue
    is_level: bool
    may_end_early: bool = False


@dataclass(frozen=True)
class End:
    """The number at which offsets must end, as text; the number of `items`.

    `key` is equal for equal numbers, and `homes` is the storage that determines it, if only an
    array does.
    """

    text: str
    items: str
    key: Hashable
    homes: tuple[Home, ...] = ()


def check_offsets(writer: ModuleWriter, step: Step) -> None:
    """Write checks of the offsets that a step reads and that are not known to be valid.

    Those of feeds that a body reads are checked before it, once.
    """
    for op in step.ops:
        for offsets in offsets_read(op):
            _check(writer, op, offsets, _end(writer, offsets))
        for inner in op.body:
            _check_feeds(writer, inner)


def _check_feeds(writer: ModuleWriter, step: Step) -> None:
    for op in step.ops:
        for offsets in offsets_read(op):
            end = _end(writer, offsets)
            if _is_fed(offsets, end):
                _check(writer, op, offsets, end)
        for inner in op.body:
            _check_feeds(writer, inner)


def note_written_offsets(writer: ModuleWriter, step: Step) -> None:
    """Forget offsets that a step overwrote, and note those that its ops derived as valid."""
    _forget(writer, (_home(value) for op in step.ops for value in _outputs(op)))
    for op in (op for op in step.ops if op.defn.derives_offsets):
        for written in offsets_written(op):
            _note(writer, written.offsets, _end(writer, written))


@contextmanager
def offsets_of_iterations(writer: ModuleWriter, op: PlannedOp) -> Generator[None]:
    """Inside, only offsets are known that are valid in every iteration of an op's body."""
    _forget(writer, map(_home, op.given))
    _forget(writer, (_home(value) for step in op.body for value in _written(step)))
    before = {**writer.valid_offsets}
    yield
    writer.valid_offsets = before


def _note(writer: ModuleWriter, offsets: PlannedValue, end: End) -> None:
    writer.valid_offsets[offsets.storage, end.key] = (_home(offsets), *end.homes)


def _forget(writer: ModuleWriter, written: Iterable[Home]) -> None:
    gone, known = {*written}, writer.valid_offsets
    writer.valid_offsets = {k: homes for k, homes in known.items() if gone.isdisjoint(homes)}


def offsets_read(op: PlannedOp) -> Iterator[Divided]:
    """The LoD offsets that an op uses; CompileError if it lacks a value that they divide."""
    if not op.defn.uses_offsets:
        return
    for slot in op.defn.inputs().values():
        if slot.companion == "lod" and (levels := op.inputs.get(slot.name)):
            gradients = op.inputs.get(slot.of + GRAD) or op.outputs.get(slot.of + GRAD)
            yield from _divided(op, slot, levels, op.inputs.get(slot.of) or gradients or ())


def offsets_written(op: PlannedOp) -> Iterator[Divided]:
    """The LoD offsets that an op writes, as those that it reads."""
    for slot in op.defn.outputs().values():
        if slot.companion == "lod" and (levels := op.outputs.get(slot.name)):
            yield from _divided(op, slot, levels, op.outputs.get(slot.of, ()))


def _divided(
    op: PlannedOp, slot: Slot, levels: tuple[PlannedValue, ...], owners: tuple[PlannedValue, ...]
) -> Iterator[Divided]:
    """The levels of a slot: nested ones of one value, or in a `many` slot one of each value.

    Those of tensor arrays are arrays too, whose items are checked once they are read from them.
    """
    if all(level.type.is_array for level in levels):
        return
    is_list = op.defn.slots.get(slot.of, Slot()).many
    inner = owners if is_list else (*levels[1:], *owners[:1])
    if len(inner) != len(levels):
        what = f"{slot.name} has {len(levels)} LoD levels, and {slot.of} {len(owners)} values"
        raise CompileError(f"{op.kind}: {what}", op=op.text, source=op.source)
    for index, (offsets, divided) in enumerate(zip(levels, inner, strict=True)):
        if not divided.type.is_array:
            is_level = not is_list and index < len(levels) - 1
            yield Divided(offsets, divided, is_level, slot.may_end_early and not is_level)


def _end(writer: ModuleWriter, divided: Divided) -> End:
    """The number at which offsets must end; it is read from an array if no size is known."""
    inner, less = divided.inner, 1 if divided.is_level else 0
    items = f"sequences of {inner.label!r}" if divided.is_level else f"rows of {inner.label!r}"
    size = writer.known_size(inner.type.shape[0])
    if size is not None:
        return End(str(size - less), items, size - less)
    text = f"{writer.operand(inner)}.shape[0]" + f" - {less}" * bool(less)
    return End(text, items, (inner.storage, less), (_home(inner),))


def _is_fed(divided: Divided, end: End) -> bool:
    return divided.offsets.place is StorageKind.FEED and not end.homes


def _check(writer: ModuleWriter, op: PlannedOp, divided: Divided, end: End) -> None:
    """Write the check of offsets, unless they are known to be valid."""
    offsets = divided.offsets
    if (offsets.storage, end.key) in writer.valid_offsets:
        return
    early = divided.may_end_early
    _note(writer, offsets, replace(end, key=(end.key, "early")) if early else end)
    name = writer.operand(offsets).name
    arguments = f"{name}, {end.text}, {offsets.label!r}, {end.items!r}"
    is_fed = _is_fed(divided, end)
    with writer.checks(op, is_fed):
        if not is_fed:
            keyword = ", may_end_early=True" if early else ""
            writer.line(f"{writer.function(expect_offsets)}({arguments}{keyword})")
            return
        checked = writer.names.make("checked")
        writer.setup.line(f"{checked} = [None]")
        writer.line(f"if {name}.tobytes() != {checked}[0]:")
        writer.line(f"    {writer.function(expect_offsets)}({arguments}, {checked})")


def _home(value: PlannedValue) -> Home:
    return value.place, value.home


def _outputs(op: PlannedOp) -> Iterator[PlannedValue]:
    return (value for values in op.outputs.values() for value in values)


def _written(step: Step) -> Iterator[PlannedValue]:
    """The values that a step writes, also in the bodies of its ops."""
    for op in step.ops:
        yield from _outputs(op)
        for inner in op.body:
            yield from _written(inner)
