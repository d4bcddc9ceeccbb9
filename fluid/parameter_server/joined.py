"""Blocks of a server as one program, which is compiled to one Module."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compiler.ir.program import MAIN_BLOCK
from fluid.framework import Program
from fluid.recording import pruning

__all__ = ["joined_program"]


def joined_program(
    server: Program, blocks: Sequence[int], gradients: Collection[str] = ()
) -> Program:
    """A program whose main block has the ops of some blocks of a server, in their order.

    Blocks inside of these stay; `gradients` do not outlive a run. Raises IndexError where there is
    no such block.
    """
    program = server.clone()
    main = program.blocks[MAIN_BLOCK]
    main.ops = []
    for index in blocks:
        chosen = program.block(index)
        main.vars |= chosen.vars
        main.ops += chosen.ops
        chosen.ops = []
    for op in main.ops:
        op.block = main
    for var in main.vars.values():
        var.block = main
        if var.name in gradients:
            var.persistable = False
    for block in program.blocks:
        if block.parent_idx in blocks:
            block.parent_idx = MAIN_BLOCK
    pruning.drop_ops(program, lambda op: False)
    ops = [op for block in program.blocks for op in block.ops]
    used = {name for op in ops for name in [*op.reads(), *op.writes()]}
    main.vars = {name: var for name, var in main.vars.items() if name in used}
    program.touch()
    return program
