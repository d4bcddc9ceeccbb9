"""Undo of `memory_optimize`, which renames variables to those whose memory they reuse.

The op that writes such a variable records it in the attribute `op_reuses`: from there on the shared
name denotes this variable, until another op writes it. All variables get their own names back
before compilation, so that a value is found by its name whether or not the program was rewritten,
and results cannot depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import CompileError
from compiler.ir.program import Block, OpDesc, Program, VarDesc
from compiler.support.dataclass import dataclass

REUSES = "op_reuses"
"""The op attribute that lists the variables its outputs reuse: the fields of a `Reuse` each."""
ROLE_VAR = "op_role_var"


@dataclass(frozen=True)
class Reuse:
    """A variable renamed to `storage`, with its original declaration."""

    storage: str
    name: str
    dims: tuple[int, ...]
    lod_level: int = 0
    stop_gradient: bool = False

    def words(self) -> list[str]:
        """Return the fields as strings for the attribute."""
        sizes = ",".join(map(str, self.dims))
        return [self.storage, self.name, sizes, str(self.lod_level), str(int(self.stop_gradient))]


_WORDS = 5
_NUMBERS = re.compile(r"(-?\d+(?:,-?\d+)*) (\d+) ([01])")


def reuses(op: OpDesc) -> list[Reuse]:
    """List the reuses of an op's outputs; CompileError if the attribute is malformed."""
    words = op.attrs.get(REUSES, ())
    return [_reuse(op, words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]


def _reuse(op: OpDesc, words: Sequence[Any]) -> Reuse:
    match = _NUMBERS.fullmatch(" ".join(map(str, words[2:])))
    if len(words) != _WORDS or match is None:
        raise CompileError(f"{op.type}: {words!r:.60} in its attribute {REUSES!r} is malformed")
    sizes, level, stop = match.groups()
    dims = tuple(map(int, sizes.split(",")))
    return Reuse(str(words[0]), str(words[1]), dims, int(level), stop == "1")


def record_reuse(op: OpDesc, reuse: Reuse) -> None:
    """Record on an op that one of its outputs reuses the memory of another variable."""
    op.attrs[REUSES] = [*op.attrs.get(REUSES, ()), *reuse.words()]


def has_reuses(program: Program) -> bool:
    """Return whether any variable of a program was renamed to share memory."""
    return any(REUSES in op.attrs for block in program.blocks for op in block.ops)


def with_original_names(program: Program) -> Program:
    """Return the program, or a copy with all original names if some variables were renamed."""
    if not has_reuses(program):
        return program
    result = Program()
    for block in program.blocks:
        copy = result.add_block(block.parent_idx) if block.idx else result.blocks[0]
        copy.forward_block_idx = block.forward_block_idx
        copy.vars = dict(block.vars)
        copy.ops = [OpDesc(o.type, o.inputs, o.outputs, o.attrs, o.source) for o in block.ops]
    restore_original_names(result)
    return result


def restore_original_names(program: Program) -> None:
    """Restore and redeclare all original variable names, in place.

    A gradient block sees the names that are valid at the end of its forward block.
    """
    ends: dict[int, dict[str, str]] = {}
    for block in program.blocks:
        meant = dict(ends.get(block.forward_block_idx, {}))
        for op in block.ops:
            _restore(block, op, meant)
        ends[block.idx] = meant
    program.touch()


def _restore(block: Block, op: OpDesc, meant: dict[str, str]) -> None:
    """Rename the operands of an op; `meant` maps shared names to variables and is updated."""
    read = set(op.reads())
    renamed = slots_renamed(op.inputs, meant)
    for name in [name for name in op.writes() if name in meant and name not in read]:
        del meant[name]
    for reuse in reuses(op):
        _declare(block, reuse)
        meant[reuse.storage] = reuse.name
    op.inputs, op.outputs = renamed, slots_renamed(op.outputs, meant)
    if ROLE_VAR in op.attrs:
        op.attrs[ROLE_VAR] = [meant.get(name, name) for name in op.attrs[ROLE_VAR]]
    op.attrs.pop(REUSES, None)


def _declare(block: Block, reuse: Reuse) -> None:
    like = block.lookup(reuse.storage) or VarDesc(reuse.storage)
    fields: dict[str, Any] = {"shape": reuse.dims, "dtype": like.element, "kind": like.kind}
    fields |= {"lod_level": reuse.lod_level, "stop_gradient": reuse.stop_gradient}
    block.add_var(reuse.name, **fields)


def slots_renamed(
    slots: Mapping[str, Sequence[str]], names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Rename variables in slots.

    >>> slots_renamed({"X": ["a", "b"]}, {"a": "c"})
    {'X': ['c', 'b']}
    """
    return {
        slot: [names.get(name, name) for name in slot_names] for slot, slot_names in slots.items()
    }
