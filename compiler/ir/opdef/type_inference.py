"""Checks an op of a program and gives its outputs their types, as soon as it is written down.

Here sizes may be unknown (-1); what an op infers from an unknown size is unknown as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from compiler.errors import BadAttribute, CompileError, MissingSlot, ShapeError, did_you_mean
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef.definition import GradOp, OpDef, Slot, find, listed
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, VarDesc, VarKind
from compiler.ir.types import DType, TensorType, from_fluid, to_fluid
from compiler.limits import MAX_BYTES, MAX_RANK


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
        if name not in declared and given[name] and not _is_idle(op, name):
            raise MissingSlot(
                f"{op.type} has no {side.lower()} slot {name!r}; it has: {', '.join(declared)}",
                source=op.source,
                hint=did_you_mean(name, declared),
            )


def _is_idle(op: OpDesc, slot: str) -> bool:
    """True for a slot of a gradient op that the forward op has, and its gradient does without.

    Programs saved by the reference have some, such as the mean of a batch norm.
    """
    cls = find(op.type)
    return issubclass(cls, GradOp) and slot.removesuffix(GRAD) in cls.forward.slots


def infer_op(block: Block, op: OpDesc) -> None:
    """Give the variables an op writes the types and LoD levels it infers from those it reads.

    Errors of the op carry its text and the user's line.
    """
    defn = bind(op)
    given = {slot: names for slot, names in op.inputs.items() if names and slot in defn.slots}
    types = {slot: _types(block, names, defn.slots[slot]) for slot, names in given.items()}
    inferred = infer_types(defn, types | _companions(block, op, defn, types), op, declared=True)
    for slot, names in op.outputs.items():
        declared = _said(inferred, slot)
        for index, name in enumerate(names):
            _store(block, name, declared[index] if index < len(declared) else None)
    _store_levels(block, op, defn, inferred)
    _store_kinds(block, op, defn, inferred)
    _keep_sparse(block, op, defn)


def _said(inferred: Mapping[str, Any], slot: str) -> list[TensorType | None]:
    return listed(inferred.get(slot))


def infer_types(
    defn: OpDef, types: Mapping[str, Any], op: OpDesc, declared: bool = False
) -> dict[str, Any]:
    """What `defn.infer_types` says, with the op's text and line on every error.

    With `declared` what `defn.declared_types` does, for a program that is only recorded.

    Raises ShapeError besides where an output has a size that no tensor has, and for a gradient op
    where its forward op could not have had such inputs, attributes and outputs.
    """
    try:
        _check_place(defn, types)
        _check_forward(defn, types)
        inferred = defn.declared_types(types) if declared else defn.infer_types(types)
        _check_sizes(defn, inferred)
        return inferred
    except CompileError as error:
        raise type(error)(
            error.message, op=error.op or op_text(op), source=op.source, hint=error.hint
        ) from None
    except Exception as error:  # arithmetic on sizes and attributes that an op did not expect
        text = _unfit(defn, types)
        raise ShapeError(text, op=op_text(op), source=op.source) from error


def _check_sizes(defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """ShapeError for an output with too many axes, a negative size, or too many bytes."""
    for slot, said in inferred.items():
        for type in (each for each in listed(said) if isinstance(each, TensorType)):
            if type.rank > MAX_RANK:
                raise ShapeError(f"{defn.kind}: {slot} has {type.rank} axes, more than {MAX_RANK}")
            numbers: list[Any] = [size for size in type.shape if not isinstance(size, Dim)]
            if not all(isinstance(size, int) and size >= 0 for size in numbers):
                raise ShapeError(f"{defn.kind}: {slot} would be {type}, expected sizes from 0 up")
            if prod(numbers) * type.dtype.itemsize > MAX_BYTES:
                raise ShapeError(f"{defn.kind}: {slot} would be {type}, larger than any memory")


def _check_place(defn: OpDef, types: Mapping[str, Any]) -> None:
    """BadAttribute where an op that draws by a key draws at a place that the keys have not."""
    place, key = defn.attributes.get("place"), types.get("Key")
    if not isinstance(place, int) or not isinstance(key, TensorType) or not key.shape:
        return
    count = key.numel
    if place < 0 or (isinstance(count, int) and place >= count):
        raise BadAttribute(
            f"{defn.kind}: attribute 'place' is {place}, expected a key of the {count} in Key"
        )


def _check_forward(defn: OpDef, types: Mapping[str, Any]) -> None:
    """Infer the forward op of a gradient op, where the gradient op reads all that it read.

    ShapeError where a gradient is of another shape than the output that it is of.
    """
    if not isinstance(defn, GradOp):
        return
    slots = defn.forward.inputs()
    needed = [slot for slot in slots.values() if not slot.optional]
    if not slots.keys() <= defn.inputs().keys() or not all(types.get(s.name) for s in needed):
        return
    inferred = defn.origin.infer_types({slot: types.get(slot) for slot in slots})
    for slot, said in inferred.items():
        pairs = zip(listed(said), listed(types.get(slot + GRAD)), strict=False)
        for output, gradient in pairs:
            if output is not None and gradient is not None and _misfit(output, gradient):
                raise ShapeError(f"{defn.kind}: {slot}{GRAD} is {gradient}, expected {output}")


def _misfit(output: TensorType, gradient: TensorType) -> bool:
    """True where a gradient has another number of axes than its variable, or another size."""
    sizes = zip(output.shape, gradient.shape, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
    return output.rank != gradient.rank or differ


def _unfit(defn: OpDef, types: Mapping[str, Any]) -> str:
    """That an op cannot take what it is given: the types by slot, attributes unless as usual."""
    slots = {slot: listed(types.get(slot)) for slot, each in defn.inputs().items() if not each.of}
    given = [f"{slot}={'+'.join(str(t or 'nothing') for t in ts)}" for slot, ts in slots.items()]
    said = defn.attributes.items()
    given += [f"{name}={value!r:.60}" for name, value in said if value != defn.attrs[name].default]
    return f"{defn.kind} cannot be computed with {', '.join(given) or 'no inputs'}"


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
    """False for readers, lists of feeds and the like, of which no op asks the type.

    An array that nothing was written to yet has none either.
    """
    var = block.lookup(name)
    if var is not None and var.kind in (VarKind.TENSOR_ARRAY, VarKind.RANK_TABLE):
        return var.dims is not None
    return var is None or var.holds_tensor


def var_type(block: Block, name: str) -> TensorType:
    """The type of a variable; CompileError where it is not declared or has no shape."""
    var = block.lookup(name)
    if var is None:
        raise CompileError(f"variable {name!r} is not declared in this block or around it")
    if var.dims is None:
        raise CompileError(f"variable {name!r} has no shape yet")
    type = from_fluid(var.dims, var.element)
    return replace(type, is_array=var.kind is VarKind.TENSOR_ARRAY)


def _store(block: Block, name: str, inferred: TensorType | None) -> None:
    var = block.lookup(name)
    if var is not None and inferred is not None and var.kind is not VarKind.SELECTED_ROWS:
        var.dims, var.element = to_fluid(inferred.shape), inferred.dtype


# ---- what goes with a variable: its LoD, and whether it is sparse ----


def _companions(
    block: Block, op: OpDesc, defn: OpDef, types: Mapping[str, Any]
) -> dict[str, list[TensorType]]:
    """Types of the LoD an op reads: at this stage only the number of levels is known."""
    found: dict[str, list[TensorType]] = {}
    for slot in defn.inputs().values():
        if slot.companion == "lod":
            names = op.inputs.get(slot.of) or op.inputs.get(slot.of + GRAD) or []
            levels = [_levels(block, name) for name in names]
            many = defn.slots.get(slot.of, Slot()).many
            count = len(names) if many else max([*levels, int(slot.needed)], default=0)
            if count and (slot.needed or all(levels)):
                found[slot.name] = [TensorType(DType.INT64, (UNKNOWN,))] * count
    return found


def _levels(block: Block, name: str) -> int:
    var = block.lookup(name)
    return 0 if var is None else var.lod_level


def _store_levels(block: Block, op: OpDesc, defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """Outputs have the levels the op says, or those of what they are like."""
    said = {slot.of: slot.name for slot in defn.outputs().values() if slot.companion == "lod"}
    for slot, names in op.outputs.items():
        for var in (found for name in names if (found := block.lookup(name)) is not None):
            if slot in said:
                levels = len(_said(inferred, said[slot])) if inferred.get(said[slot]) else 0
                var.lod_level = min(levels, 1) if defn.slots[slot].many else levels
            elif not var.lod_level:
                var.lod_level = _shared_level(block, op, defn, var)


def _shared_level(block: Block, op: OpDesc, defn: OpDef, var: VarDesc) -> int:
    first = next((slot for slot in defn.inputs() if op.inputs.get(slot)), "")
    slot = first if defn.lod_like is None else defn.lod_like
    like = block.lookup(next(iter(op.inputs.get(slot, [])), ""))
    if like is None or like.dims is None or var.dims is None or var.persistable:
        return 0
    return like.lod_level if like.dims[:1] == var.dims[:1] else 0


def _store_kinds(block: Block, op: OpDesc, defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """A gradient the op makes sparse is declared so, in the shape of the whole."""
    for slot in defn.outputs().values():
        if slot.companion == "rows" and inferred.get(slot.name) is not None:
            whole = block.lookup(next(iter(op.inputs.get(slot.of.removesuffix(GRAD), [])), ""))
            for var in (block.lookup(name) for name in op.outputs.get(slot.of, [])):
                if var is not None:
                    var.kind = VarKind.SELECTED_ROWS
                    var.dims = var.dims if whole is None else whole.dims


def _keep_sparse(block: Block, op: OpDesc, defn: OpDef) -> None:
    """What an op makes of sparse variables is sparse too, where it has a form for rows."""
    kind = defn.for_rows()
    slots = [s for s in find(kind).slots.values() if s.companion == "rows"] if kind else []
    read = [name for slot in slots for name in op.inputs.get(slot.of, ())]
    if not read or not all(_is_sparse(block, name) for name in read):
        return
    for var in (block.lookup(name) for slot in slots for name in op.outputs.get(slot.of, ())):
        if var is not None:
            var.kind = VarKind.SELECTED_ROWS


def _is_sparse(block: Block, name: str) -> bool:
    var = block.lookup(name)
    return var is not None and var.kind is VarKind.SELECTED_ROWS
