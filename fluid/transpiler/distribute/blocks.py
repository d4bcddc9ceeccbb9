"""Blocks of a server's program as separate programs, in which form servers run them."""

from __future__ import annotations

from fluid.framework import Program
from fluid.parameter_server.joined import joined_program

__all__ = ["block_program"]


def block_program(server: Program, index: int) -> Program:
    """A program whose main block has the ops of a block of a server, and the variables they use.

    Values passed between blocks are persistable: run the programs in one scope, in the order of
    `listen_and_serv`'s `optimize_blocks`. Raises IndexError for an invalid block index.
    """
    return joined_program(server, [index])
