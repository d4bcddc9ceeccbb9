"""Rules of the conversion: attributes of graph ops, composite ops, and checks of state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from compiler.errors import CompileError
from compiler.ir.graph import Var
from compiler.ir.opdef import Pointwise, Types, find
from compiler.ir.opdef.slots import BOOKKEEPING, GRAPH_ONLY, QUANTIZER_SUFFIXES
from compiler.ir.opdef.type_inference import bind, op_text
from compiler.ir.program import EMPTY, OpDesc
from compiler.ir.types import TensorType


def graph_attributes(op: OpDesc) -> dict[str, Any]:
    """Return the attributes for the graph op; a backward op keeps only those its type declares.

    `variable` is the first name that the op writes or reads, `X_names` lists those in its slot X.
    Programs of the reference copy all attributes of a forward op to its gradient op, even if that
    is another op, as `concat` is for `split`.
    """
    declared, backward = find(op.type).attrs, op.is_backward
    attrs = {
        n: value
        for n, value in op.attrs.items()
        if n in declared or n in BOOKKEEPING or not is_ignored_attribute(n, backward)
    }
    if "variable" in declared:
        names = (name for name in (*op.writes(), *op.reads()) if name != EMPTY)
        return {"variable": next(names, ""), **attrs}
    if GRAPH_ONLY.isdisjoint(declared):
        return attrs
    slots = {
        f"{slot}_names": list(slot_names) for slot, slot_names in (op.inputs | op.outputs).items()
    }
    return {**attrs, **{name: slot_names for name, slot_names in slots.items() if name in declared}}


def is_ignored_attribute(name: str, backward: bool) -> bool:
    """Return whether an unknown attribute is ignored: of a backward op, or added by a quantizer."""
    return backward or name.endswith(QUANTIZER_SUFFIXES)


class ExpandableOp(Protocol):
    """A composite op."""

    def steps(self, op: OpDesc, types: Types) -> list[OpDesc]:
        """Return the ops that it expands to."""
        ...


def expanded(op: OpDesc, inputs: Mapping[str, Sequence[Var]]) -> list[OpDesc]:
    """Return the ops that a composite op expands to; none for any other op."""
    if not find(op.type).is_composite:
        return []
    types = {slot: [var.type for var in vars] for slot, vars in inputs.items()}
    try:
        return cast(ExpandableOp, bind(op)).steps(op, types)
    except CompileError as error:
        raise type(error)(
            error.message, op=op_text(op), source=op.source, hint=error.hint
        ) from None


def deleted_error(name: str, op: OpDesc, deletion: OpDesc) -> CompileError:
    """Build the error for an op that reads a deleted variable."""
    return CompileError(
        f"variable {name!r} was deleted by a delete_var before this op "
        f"({deletion.source or 'unknown line'})",
        op=op_text(op),
        source=op.source,
        hint="call release_memory when the program is complete, or name it in skip_opt_set",
    )


def require_known_size(name: str, type: TensorType) -> TensorType:
    """Return a type for state; CompileError if its size is data-dependent."""
    if type.is_open:
        raise CompileError(
            f"persistable variable {name!r} is {type}: its size must be known before a run",
            hint="declare it with a shape of numbers",
        )
    return type


def clobbers(op: OpDesc, slot: str, previous: Var, inputs: Mapping[str, Sequence[Var]]) -> bool:
    """Return whether an op reads storage that it writes, through a slot not declared in place."""
    cls = find(op.type)
    allowed = cls.slots[slot].inplace
    slots = [s for s, vars in inputs.items() if previous in vars and s != allowed]
    return bool(slots) and not issubclass(cls, Pointwise)
