"""The first step of training on several machines: all values are broadcast from trainer 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fluid.framework import Program
from runtime.tensors.scope import Scope

__all__ = ["broadcast_program"]


def broadcast_program(
    program: Program,
    names: Collection[str],
    scope: Scope,
    rank: int,
    owners: Mapping[str, int],
) -> Program:
    """A program that broadcasts the persistable variables the scope has, from rank 0.

    It is specific to a rank: variables owned by another rank (`owners`) are not kept.
    """
    broadcasts = Program()
    block, variables = broadcasts.global_block(), program.global_block().vars
    for name in sorted(set(names) & set(scope.names()) & variables.keys()):
        variable = scope.find_var(name)
        if variable is None or not variable.get_tensor().is_initialized():
            continue
        if not variables[name].holds_tensor:
            continue
        tensor = variable.get_tensor()
        shape, dtype = tensor.shape(), variables[name].dtype
        is_kept = not rank or owners.get(name, rank) == rank
        block.create_var(name=name, shape=shape, dtype=dtype, persistable=is_kept)
        if not is_kept:
            attrs = {"shape": shape, "dtype": int(dtype), "value": 0.0}
            block.insert_op(len(block.ops), "fill_constant", {}, {"Out": name}, attrs)
        block.insert_op(len(block.ops), "c_broadcast", {"X": name}, {"Out": name}, {"root": 0})
    return broadcasts
