"""Blocks of a server's program as programs of their own, which is how servers run them."""

from __future__ import annotations

from fluid.framework import Program
from fluid.parameter_server.joined import joined_program

__all__ = ["block_program"]


def block_program(server: Program, index: int) -> Program:
    """A program whose main block has the ops of a block of a server, and the variables they use.

    What blocks hand to each other is persistable: run them in one scope, in the order of
    `listen_and_serv`'s `optimize_blocks`. Raises IndexError where there is no such block.
    """
    return joined_program(server, [index])
