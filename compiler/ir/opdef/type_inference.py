"""Checks and shape inference for an op when it is appended to a program.

Sizes may be unknown (-1); sizes inferred from unknown sizes are unknown too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

from compiler.errors import BadAttribute, CompileError, MissingSlot, ShapeError, did_you_mean
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef.definition import GradOp, OpDef, Slot, find, listed
from compiler.ir.opdef.gradient_operands import check_gradient_operands
from compiler.ir.opdef.size_comparison import Requirement, differ, is_less, undecided
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, VarDesc, VarKind
from compiler.ir.types import DType, TensorType, from_fluid, to_fluid
from compiler.support.limits import MAX_BYTES, MAX_RANK

MOST_NAMES = 12
"""Names of a slot that messages list."""

_FED_DTYPES = (DType.INT64, DType.FP32, DType.INT32, DType.FP64)
"""The dtypes that feeds may have instead of the declared one, in the order in which inference tries
them.
"""


def check_slots(op: OpDesc) -> None:
    """Check an op's slots against its declaration.

    Raises UnknownOp for an unregistered type, and MissingSlot for a slot that is required but
    empty, unknown, or holds several names but takes one.
    """
    cls = find(op.type)
    _check_side(op, "Input", cls.inputs(), op.inputs)
    _check_side(op, "Output", cls.outputs(), op.outputs)


def _check_side(
    op: OpDesc, side: str, declared: Mapping[str, Slot], given: Mapping[str, Sequence[str]]
) -> None:
    for name, slot in declared.items():
        count = len(given.get(name, ()))
        if not count and not slot.optional:
            raise MissingSlot(f"{side} {name} not found: {op.type} needs it", source=op.source)
        if count > 1 and not slot.many:
            raise MissingSlot(
                f"{side} {name} of {op.type} takes one variable, not {list(given[name])}",
                source=op.source,
            )
    for name in given:
        if name not in declared and given[name] and not _is_unused_grad_slot(op, name):
            raise MissingSlot(
                f"{op.type} has no {side.lower()} slot {name!r}; it has: {', '.join(declared)}",
                source=op.source,
                hint=did_you_mean(name, declared),
            )


def _is_unused_grad_slot(op: OpDesc, slot: str) -> bool:
    """Return whether a gradient op's slot exists in the forward op but is unused by the gradient.

    Programs saved by the reference have such slots, for example the mean of a batch norm.
    """
    cls = find(op.type)
    return issubclass(cls, GradOp) and slot.removesuffix(GRAD) in cls.forward.slots


def infer_op(block: Block, op: OpDesc) -> None:
    """Set the types and LoD levels of an op's outputs, inferred from its inputs.

    Errors carry the op as text and the user's line.
    """
    defn = bind(op)
    inferred = _infer(block, op, defn)
    for name, type in _by_name(op, inferred):
        _store(block, name, type)
    _store_levels(block, op, defn, inferred)
    _store_kinds(block, op, defn, inferred)
    _propagate_sparse(block, op, defn)


def inferred_outputs(block: Block, op: OpDesc) -> dict[str, TensorType | None]:
    """Return the types of an op's outputs by name, None where the op infers none; raises as
    `infer_op`.
    """
    return dict(_by_name(op, _infer(block, op, bind(op))))


def _infer(block: Block, op: OpDesc, defn: OpDef) -> dict[str, Any]:
    inputs = {slot: names for slot, names in op.inputs.items() if names and slot in defn.slots}
    types = {slot: _types(block, names, defn.slots[slot]) for slot, names in inputs.items()}
    companions = _companions(block, op, defn, types)
    try:
        return infer_types(defn, types | companions, op, declared=True)
    except ShapeError:
        fed = [slot for slot in sorted(inputs) if any(is_fed(block, n) for n in inputs[slot])]
        for replaced in _types_if_fed(defn, types, companions, fed):
            with suppress(CompileError):
                return infer_types(defn, replaced, op, declared=True)
        raise


def _types_if_fed(
    defn: OpDef, types: Mapping[str, Any], companions: Mapping[str, Any], fed: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Iterate over the types of inputs with other dtypes and LoD levels for what is fed.

    What `layers.data` declares for a feed need not be what is fed. What does not fit then raises
    when the program is compiled for the feeds.
    """
    single = {name: found[:1] for name, found in companions.items()}
    if fed and single != companions:
        yield {**types, **single}
    subsets = (subset for count in range(1, len(fed) + 1) for subset in combinations(fed, count))
    for slots in subsets:
        for dtype in _FED_DTYPES:
            replaced = {
                slot: [replace(type, dtype=dtype) for type in listed(types[slot])] for slot in slots
            }
            held = {slot: defn.slots[slot].hold(found) for slot, found in replaced.items()}
            yield {**types, **companions, **held}


def is_fed(block: Block, name: str) -> bool:
    """Return whether a value is fed without a check of its dtype, or computed from such a value."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        name = pending.pop()
        var = block.lookup(name)
        if name in seen or var is None or var.persistable:
            continue
        seen.add(name)
        writers = [op for op in block.ops if name in op.writes()]
        if not writers and name not in block.vars and block.parent is not None:
            return is_fed(block.parent, name)
        if not writers and not var.need_check_feed and var.kind is VarKind.TENSOR:
            return True
        pending += [read for op in writers for read in op.reads()]
    return False


def _by_name(op: OpDesc, inferred: Mapping[str, Any]) -> Iterator[tuple[str, TensorType | None]]:
    for slot, names in op.outputs.items():
        types = _inferred_types(inferred, slot)
        for index, name in enumerate(names):
            yield name, types[index] if index < len(types) else None


def _inferred_types(inferred: Mapping[str, Any], slot: str) -> list[TensorType | None]:
    return listed(inferred.get(slot))


def infer_types(
    defn: OpDef, types: Mapping[str, Any], op: OpDesc, declared: bool = False
) -> dict[str, Any]:
    """Call `defn.infer_types` and add the op's text and line to every error.

    With `declared` calls `defn.declared_types`, for a program that is being recorded.

    Raises ShapeError also if an output has an invalid size, and for a gradient op if its forward op
    could not have had such inputs, attributes and outputs.
    """
    try:
        _check_key_index(defn, types)
        _check_companions(defn, types)
        if isinstance(defn, GradOp):
            check_gradient_operands(defn, types)
        inferred = defn.declared_types(types) if declared else defn.infer_types(types)
        _check_sizes(defn, inferred)
        return inferred
    except CompileError as error:
        raise type(error)(
            error.message, op=error.op or op_text(op), source=op.source, hint=error.hint
        ) from None
    except Exception as error:  # the op's arithmetic on unexpected sizes or attributes
        text = _rejected_inputs(defn, types)
        raise ShapeError(text, op=op_text(op), source=op.source) from error


def size_requirements(defn: OpDef, types: Mapping[str, Any]) -> list[Requirement]:
    """Return what an op requires of sizes that are not known yet, to be computed with such inputs.

    Raises ShapeError as `infer_types`, without the op and its line.
    """
    with undecided() as requirements:
        _check_companions(defn, types)
        if isinstance(defn, GradOp):
            check_gradient_operands(defn, types)
        defn.infer_types(types)
    return list(requirements)


def _check_sizes(defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """Raise ShapeError for an output with too many axes, a negative size, or too many bytes."""
    for slot, output in inferred.items():
        for type in (
            tensor_type for tensor_type in listed(output) if isinstance(tensor_type, TensorType)
        ):
            if type.rank > MAX_RANK:
                raise ShapeError(f"{defn.kind}: {slot} has {type.rank} axes, more than {MAX_RANK}")
            numbers: list[Any] = [size for size in type.shape if not isinstance(size, Dim)]
            if not all(isinstance(size, int) and size >= 0 for size in numbers):
                raise ShapeError(f"{defn.kind}: {slot} would be {type}, expected sizes from 0 up")
            if prod(numbers) * type.dtype.itemsize > MAX_BYTES:
                raise ShapeError(f"{defn.kind}: {slot} would be {type}, larger than any memory")


def _check_key_index(defn: OpDef, types: Mapping[str, Any]) -> None:
    """Raise BadAttribute if an op's RNG key index is out of bounds of the key tensor."""
    place, key = defn.attributes.get("place"), types.get("Key")
    if not isinstance(place, int) or not isinstance(key, TensorType) or not key.shape:
        return
    count = key.numel
    if place < 0 or (isinstance(count, int) and place >= count):
        raise BadAttribute(
            f"{defn.kind}: attribute 'place' is {place}, expected an index into the {count} keys"
        )


def _check_companions(defn: OpDef, types: Mapping[str, Any]) -> None:
    """Raise ShapeError unless sparse values have a row index each, and offsets are vectors."""
    for slot in (slot for slot in defn.inputs().values() if slot.companion in ("lod", "rows")):
        for type in (
            tensor_type for tensor_type in listed(types.get(slot.name)) if tensor_type is not None
        ):
            if type.rank != 1 or (slot.companion == "lod" and is_less(type.shape[0], 1)):
                raise ShapeError(f"{defn.kind}: {slot.name} is {type}, expected a vector")
        if slot.companion == "rows" and types.get(slot.name):
            pairs = zip(listed(types[slot.name]), listed(types.get(slot.of)), strict=False)
            for rows, values in pairs:
                if rows and values and (not values.rank or differ(rows.shape[0], values.shape[0])):
                    actual = f"{slot.of} is {values} and {slot.name} {rows}"
                    raise ShapeError(f"{defn.kind}: {actual}, expected an index for each row")


def _rejected_inputs(defn: OpDef, types: Mapping[str, Any]) -> str:
    """Describe inputs that an op cannot take: types by slot, non-default attributes."""
    slots = {
        slot: listed(types.get(slot)) for slot, declared in defn.inputs().items() if not declared.of
    }
    described = [
        f"{slot}={'+'.join(str(t or 'nothing') for t in ts)}" for slot, ts in slots.items()
    ]
    attributes = defn.attributes.items()
    described += [
        f"{name}={value!r:.60}" for name, value in attributes if value != defn.attrs[name].default
    ]
    return f"{defn.kind} cannot be computed with {', '.join(described) or 'no inputs'}"


def bind(op: OpDesc) -> OpDef:
    """Return the op's definition with its attributes bound; BadAttribute has the user's line."""
    try:
        return find(op.type)(op.attrs)
    except CompileError as error:
        raise type(error)(error.message, source=op.source, hint=error.hint) from None


def op_text(op: OpDesc) -> str:
    """Format an op as one short line for messages: `(Out=h) = mul(X=x, Y=w)`.

    >>> op_text(OpDesc("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["h"]}))
    '(Out=h) = mul(X=x, Y=w)'
    """
    return f"({_slots(op.outputs)}) = {op.type}({_slots(op.inputs)})"


def _slots(slots: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{slot}={_joined(names)}" for slot, names in slots.items() if names)


def _joined(names: Sequence[str]) -> str:
    """Join the names of a slot; of many only the first, and how many there are."""
    rest = len(names) - MOST_NAMES
    return "+".join(names) if rest <= 1 else "+".join([*names[:MOST_NAMES], f"… ({rest} more)"])


def _types(block: Block, names: Sequence[str], slot: Slot) -> Any:
    types = [var_type(block, name) for name in names if name != EMPTY and _is_tensor(block, name)]
    return slot.hold(types)


def _is_tensor(block: Block, name: str) -> bool:
    """Return whether a variable has a tensor type: not for readers, feed lists and the like.

    A tensor array that nothing was written to yet has none either.
    """
    var = block.lookup(name)
    if var is not None and var.kind in (VarKind.TENSOR_ARRAY, VarKind.RANK_TABLE):
        return var.dims is not None
    return var is None or var.holds_tensor


def var_type(block: Block, name: str) -> TensorType:
    """Return the type of a variable; CompileError if it is not declared or has no shape."""
    var = block.lookup(name)
    if var is None:
        raise CompileError(f"variable {name!r} is not declared in this or an enclosing block")
    if var.dims is None:
        raise CompileError(f"variable {name!r} has no shape yet")
    type = from_fluid(var.dims, var.element)
    return replace(type, is_array=var.kind is VarKind.TENSOR_ARRAY)


def _store(block: Block, name: str, inferred: TensorType | None) -> None:
    var = block.lookup(name)
    if var is not None and inferred is not None and var.kind is not VarKind.SELECTED_ROWS:
        var.dims, var.element = to_fluid(inferred.shape), inferred.dtype


# ---- LoD levels and sparseness of variables ----


def _companions(
    block: Block, op: OpDesc, defn: OpDef, types: Mapping[str, Any]
) -> dict[str, list[TensorType]]:
    """Return placeholder types of the LoD inputs: only the number of levels is known."""
    companions: dict[str, list[TensorType]] = {}
    for slot in defn.inputs().values():
        if slot.companion == "lod":
            names = op.inputs.get(slot.of) or op.inputs.get(slot.of + GRAD) or []
            levels = [_levels(block, name) for name in names]
            many = defn.slots.get(slot.of, Slot()).many
            count = len(names) if many else max([*levels, int(slot.needed)], default=0)
            if count and (slot.needed or all(levels)):
                companions[slot.name] = [TensorType(DType.INT64, (UNKNOWN,))] * count
    return companions


def _levels(block: Block, name: str) -> int:
    var = block.lookup(name)
    return 0 if var is None else var.lod_level


def _store_levels(block: Block, op: OpDesc, defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """Set the LoD levels of outputs: inferred ones, else those of the shared input."""
    slots = defn.outputs()
    lods = {slot.of: slot.name for slot in slots.values() if slot.companion == "lod"}
    for slot, names in op.outputs.items():
        for var in (desc for name in names if (desc := block.lookup(name)) is not None):
            if slot in lods:
                types = inferred.get(lods[slot])
                levels = len(listed(types)) if types else 0
                var.lod_level = min(levels, 1) if defn.slots[slot].many else levels
            elif not var.lod_level and (slot not in slots or slots[slot].shares_lod):
                any_rows = slot in slots and slots[slot].shares_level
                var.lod_level = _shared_level(block, op, defn, var, any_rows)


def _shared_level(block: Block, op: OpDesc, defn: OpDef, var: VarDesc, any_rows: bool) -> int:
    first = next((slot for slot in defn.inputs() if op.inputs.get(slot)), "")
    slot = first if defn.lod_source is None else defn.lod_source
    like = block.lookup(next(iter(op.inputs.get(slot, [])), ""))
    if like is None or like.dims is None or var.dims is None or var.persistable:
        return 0
    return like.lod_level if any_rows or like.dims[:1] == var.dims[:1] else 0


def _store_kinds(block: Block, op: OpDesc, defn: OpDef, inferred: Mapping[str, Any]) -> None:
    """Declare sparse gradients as SelectedRows with the shape of the whole parameter, and what an
    op computes of tensor arrays as arrays.
    """
    if defn.array_variant() and all(_is_array(block, name) for name in op.reads()):
        for var in (block.lookup(name) for name in op.writes()):
            if var is not None:
                var.kind = VarKind.TENSOR_ARRAY
    for slot in defn.outputs().values():
        if slot.companion == "rows" and inferred.get(slot.name) is not None:
            whole = block.lookup(next(iter(op.inputs.get(slot.of.removesuffix(GRAD), [])), ""))
            for var in (block.lookup(name) for name in op.outputs.get(slot.of, [])):
                if var is not None:
                    var.kind = VarKind.SELECTED_ROWS
                    var.dims = var.dims if whole is None else whole.dims


def _propagate_sparse(block: Block, op: OpDesc, defn: OpDef) -> None:
    """Declare outputs as sparse if all inputs are and the op has a variant for rows."""
    kind = defn.sparse_variant()
    slots = [s for s in find(kind).slots.values() if s.companion == "rows"] if kind else []
    read = [name for slot in slots for name in op.inputs.get(slot.of, ())]
    if not read or not all(_is_sparse(block, name) for name in read):
        return
    for var in (block.lookup(name) for slot in slots for name in op.outputs.get(slot.of, ())):
        if var is not None:
            var.kind = VarKind.SELECTED_ROWS


def _is_array(block: Block, name: str) -> bool:
    var = block.lookup(name)
    return var is not None and var.kind is VarKind.TENSOR_ARRAY


def _is_sparse(block: Block, name: str) -> bool:
    var = block.lookup(name)
    return var is not None and var.kind is VarKind.SELECTED_ROWS
