"""The step that begins training on several machines: all values come from trainer 0."""

from __future__ import annotations

from collections.abc import Collection

from fluid.framework import Program
from runtime.scope import Scope

__all__ = ["broadcast_program"]


def broadcast_program(program: Program, names: Collection[str], scope: Scope) -> Program:
    """A program that broadcasts those persistable variables that the scope has, from rank 0."""
    made = Program()
    block, known = made.global_block(), program.global_block().vars
    for name in sorted(set(names) & set(scope.names()) & known.keys()):
        found = scope.find_var(name)
        if found is None or not found.get_tensor()._is_initialized():
            continue
        if not known[name].holds_tensor:
            continue
        tensor = found.get_tensor()
        block.create_var(name=name, shape=tensor.shape(), dtype=known[name].dtype, persistable=True)
        block._insert_op(len(block.ops), "c_broadcast", {"X": name}, {"Out": name}, {"root": 0})
    return made
