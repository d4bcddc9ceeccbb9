"""Blocks of a server's program as programs of their own, which is how servers run them."""

from __future__ import annotations

from compiler.ir.program import MAIN_BLOCK
from fluid import pruning
from fluid.framework import Program

__all__ = ["block_program"]


def block_program(server: Program, index: int) -> Program:
    """A program whose main block has the ops of a block of a server, and the variables they use.

    What blocks hand to each other is persistable: run them in one scope, in the order of
    `listen_and_serv`'s `optimize_blocks`. Raises IndexError where there is no such block.
    """
    program = server.clone()
    main, chosen = program.blocks[MAIN_BLOCK], program.block(index)
    main.ops, chosen.ops = chosen.ops, []
    main.vars |= chosen.vars
    for op in main.ops:
        op.block = main
    for var in main.vars.values():
        var.block = main
    for block in program.blocks:
        if block.parent_idx == index:
            block.parent_idx = MAIN_BLOCK
    pruning.drop_ops(program, lambda op: False)
    ops = [op for block in program.blocks for op in block.ops]
    used = {name for op in ops for name in [*op.reads(), *op.writes()]}
    main.vars = {name: var for name, var in main.vars.items() if name in used}
    program.touch()
    return program
