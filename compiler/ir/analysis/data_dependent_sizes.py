"""Type inference that treats numbered data-dependent sizes as distinct symbols.

`?1` and `?2` may be equal at run time, but the compiler cannot know: they are treated as different
symbols, as sizes named by the user are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import CompileError
from compiler.ir.dims import renamed
from compiler.ir.graph import Op
from compiler.ir.opdef import PointwiseGrad, broadcast, listed
from compiler.ir.types import TensorType


def infer_with_distinct_sizes(op: Op) -> dict[str, list[TensorType | None]] | None:
    """Infer output types by slot; None if two distinct unknowns would have to be equal.

    Unnumbered unknowns stay unknown.
    """
    names = {name: f"size_{name[1:]}" for name in numbers_of(op)}
    back = {name: number for number, name in names.items()}
    slot_types = {
        slot: [_rename_symbols(var.type, names) for var in vars] for slot, vars in op.inputs.items()
    }
    input_types = {slot: op.defn.slots[slot].hold(types) for slot, types in slot_types.items()}
    try:
        if names and isinstance(op.defn, PointwiseGrad):
            broadcast(op.kind, list(op.defn.views(input_types).values()))
        inferred: dict[str, Any] = op.defn.infer_types(input_types)
    except (CompileError, ArithmeticError, TypeError):
        return None
    return {
        slot: [type and _rename_symbols(type, back) for type in listed(t)]
        for slot, t in inferred.items()
    }


def numbers_of(op: Op) -> list[str]:
    """List the numbered unknowns in the types of an op's inputs."""
    names = (name for var in op.reads() for name in var.type.names if name.startswith("?"))
    return [name for name in dict.fromkeys(names) if name != "?"]


def _rename_symbols(type: TensorType, names: Mapping[str, str]) -> TensorType:
    """Rename the symbols of a type."""
    return type.with_shape([renamed(size, names) for size in type.shape])
