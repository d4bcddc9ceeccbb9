"""Checks an op of a program and gives its outputs their types, as soon as it is written down.

Here sizes may be unknown (-1); what an op infers from an unknown size is unknown as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import CompileError, MissingSlot, did_you_mean
from compiler.ir.opdef import OpDef, Slot, find, listed
from compiler.ir.program import EMPTY, Block, OpDesc
from compiler.ir.types import TensorType, from_fluid, to_fluid


def check_slots(op: OpDesc) -> None:
    """Hold an op's slots against its declaration.

    Raises UnknownOp for a type nobody registered and MissingSlot for a slot that is needed and
    empty, unknown, or holds several names where it takes one.
    """
    cls = find(op.type)
    _check_side(op, "Input", cls.inputs(), op.inputs)
    _check_side(op, "Output", cls.outputs(), op.outputs)


def _check_side(
    op: OpDesc, side: str, declared: Mapping[str, Slot], given: Mapping[str, Sequence[str]]
) -> None:
    for name, slot in declared.items():
        if not given.get(name) and not slot.optional:
            raise MissingSlot(f"{side} {name} not found: {op.type} needs it", source=op.source)
        if len(given.get(name, ())) > 1 and not slot.many:
            raise MissingSlot(
                f"{side} {name} of {op.type} takes one variable, not {list(given[name])}",
                source=op.source,
            )
    for name in given:
        if name not in declared and given[name]:
            raise MissingSlot(
                f"{op.type} has no {side.lower()} slot {name!r}; it has: {', '.join(declared)}",
                source=op.source,
                hint=did_you_mean(name, declared),
            )


def infer_op(block: Block, op: OpDesc) -> None:
    """Give the variables an op writes the types it infers from those it reads.

    Errors of the op carry its text and the user's line.
    """
    defn = bind(op)
    given = {slot: names for slot, names in op.inputs.items() if names}
    types = {slot: _types(block, names, defn.slots[slot]) for slot, names in given.items()}
    for slot, inferred in infer_types(defn, types, op).items():
        names = op.outputs.get(slot, [])
        for name, each in zip(names, listed(inferred), strict=False):
            _store(block, name, each)


def infer_types(defn: OpDef, types: Mapping[str, Any], op: OpDesc) -> dict[str, Any]:
    """What `defn.infer_types` says, with the op's text and line on every error."""
    try:
        return defn.infer_types(types)
    except CompileError as error:
        raise type(error)(
            error.message, op=error.op or op_text(op), source=op.source, hint=error.hint
        ) from None


def bind(op: OpDesc) -> OpDef:
    """The op's definition with its attributes bound; BadAttribute carries the user's line."""
    try:
        return find(op.type)(op.attrs)
    except CompileError as error:
        raise type(error)(error.message, source=op.source, hint=error.hint) from None


def op_text(op: OpDesc) -> str:
    """An op in one short line, for messages: `(Out=h) = mul(X=x, Y=w)`.

    >>> op_text(OpDesc("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["h"]}))
    '(Out=h) = mul(X=x, Y=w)'
    """
    return f"({_slots(op.outputs)}) = {op.type}({_slots(op.inputs)})"


def _slots(slots: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{slot}={'+'.join(names)}" for slot, names in slots.items() if names)


def _types(block: Block, names: Sequence[str], slot: Slot) -> Any:
    types = [var_type(block, name) for name in names if name != EMPTY and _is_tensor(block, name)]
    return slot.hold(types)


def _is_tensor(block: Block, name: str) -> bool:
    """False for readers, lists of feeds and the like, of which no op asks the type."""
    var = block.lookup(name)
    return var is None or var.holds_tensor


def var_type(block: Block, name: str) -> TensorType:
    """The type of a variable; CompileError where it is not declared or has no shape."""
    var = block.lookup(name)
    if var is None:
        raise CompileError(f"variable {name!r} is not declared in this block or around it")
    if var.dims is None:
        raise CompileError(f"variable {name!r} has no shape yet")
    return from_fluid(var.dims, var.element)


def _store(block: Block, name: str, inferred: TensorType | None) -> None:
    var = block.lookup(name)
    if var is not None and inferred is not None:
        var.dims, var.element = to_fluid(inferred.shape), inferred.dtype
