"""The types that a program gives to its persistable variables.

In the reference a variable has the type of what was written to it last, whatever its declaration:
`assign` of an int64 to float32 state makes it int64. Compiled state has one static type, so such
variables need a route of their own (`resized_state`, `branch_selection`, `redeclared_state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from compiler.errors import CompileError
from compiler.ir.opdef import find
from compiler.ir.opdef.type_inference import inferred_outputs, var_type
from compiler.ir.types import TensorType
from fluid.framework import Block, Operator, Program

__all__ = ["retyped_state"]


def retyped_state(program: Program) -> set[str]:
    """The persistable variables that ops of a program write in another type than they have before.

    Types are compared as recorded; dynamic sizes are equal to each other.
    """
    main = program.global_block()
    types = {name: {_declared(main, name)} for name in _candidates(program)}
    if types:
        for block, op in _ops(program):
            if not types.keys().isdisjoint(op.writes()):
                for name, type in _written_types(block, op):
                    if name in types:
                        types[name].add(type)
    return {name for name, found in types.items() if len(found - {None}) > 1}


def _ops(program: Program) -> Iterator[tuple[Block, Operator]]:
    return ((block, op) for block in program.blocks for op in block.ops)


def _candidates(program: Program) -> set[str]:
    """Dense state that an op may give another type: read before it is written, or written twice.

    Ops that update state in place keep its type.
    """
    variables = program.global_block().vars
    writes: Counter[str] = Counter()
    read: set[str] = set()
    early: set[str] = set()
    for block, op in _ops(program):
        read.update(op.reads())
        written = _written_anew(op)
        early.update(name for name in written if block.idx or name in read)
        writes.update(written)
    return {
        name
        for name, count in writes.items()
        if (count > 1 or name in early)
        and (var := variables.get(name)) is not None
        and var.persistable
        and var.holds_tensor
    }


def _written_anew(op: Operator) -> list[str]:
    """The names that an op writes to slots that are not updated in place."""
    if op.type in ("feed", "fetch"):
        return []
    slots = find(op.type).slots
    return [
        name
        for slot, names in op.outputs.items()
        if slot in slots and not slots[slot].inplace
        for name in names
    ]


def _written_types(block: Block, op: Operator) -> Iterator[tuple[str, TensorType | None]]:
    try:
        yield from inferred_outputs(block, op).items()
    except CompileError:  # compiling the program reports it
        return


def _declared(block: Block, name: str) -> TensorType | None:
    return None if block.vars[name].dims is None else var_type(block, name)
