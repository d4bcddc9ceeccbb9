"""What ops infer of sizes that only data decides, where each has a number by which to tell it.

`?1` and `?2` may well be equal, but nobody knows: so they are taken for different ones, as names
that the user gave to sizes would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import CompileError
from compiler.ir.dims import renamed
from compiler.ir.graph import Op
from compiler.ir.opdef import PointwiseGrad, broadcast, listed
from compiler.ir.types import TensorType


def inferred_apart(op: Op) -> dict[str, list[TensorType | None]] | None:
    """The types of an op's outputs by slot; None where sizes would have to be one that may differ.

    Sizes without a number are as unknown as ever.
    """
    names = {name: f"size_{name[1:]}" for name in numbers_of(op)}
    back = {name: number for number, name in names.items()}
    held = {slot: [_by(var.type, names) for var in vars] for slot, vars in op.inputs.items()}
    given = {slot: op.defn.slots[slot].hold(types) for slot, types in held.items()}
    try:
        if names and isinstance(op.defn, PointwiseGrad):
            broadcast(op.kind, list(op.defn.views(given).values()))
        found: dict[str, Any] = op.defn.infer_types(given)
    except (CompileError, ArithmeticError, TypeError):
        return None
    return {slot: [type and _by(type, back) for type in listed(t)] for slot, t in found.items()}


def numbers_of(op: Op) -> list[str]:
    """The numbers of sizes that an op reads."""
    found = (name for var in op.reads() for name in var.type.names if name.startswith("?"))
    return [name for name in dict.fromkeys(found) if name != "?"]


def _by(type: TensorType, names: Mapping[str, str]) -> TensorType:
    """A type whose sizes have other names."""
    return type.with_shape([renamed(size, names) for size in type.shape])
