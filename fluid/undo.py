"""A call that fails leaves the programs as they were: what it appended is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fluid.framework import Program

__all__ = ["undone_on_error"]


class _Mark:
    """How far a program has got: variables come at the end, ops anywhere."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.current = program.current_block_idx
        self.reads = len(program._reads)
        self.seeds_given = program._seeds_given
        self.blocks = [(list(block.ops), len(block.vars)) for block in program.blocks]

    def restore(self) -> None:
        """Take back what came since."""
        program = self.program
        program.current_block_idx, program._seeds_given = self.current, self.seeds_given
        del program.blocks[len(self.blocks) :], program._reads[self.reads :]
        for block, (ops, known) in zip(program.blocks, self.blocks, strict=True):
            block.ops = ops
            for name in list(block.vars)[known:]:
                del block.vars[name]
        program.touch()


@contextmanager
def undone_on_error(*programs: Program) -> Iterator[None]:
    """Take back the blocks, variables and ops that came to programs, if an error leaves."""
    marks = [_Mark(program) for program in programs]
    try:
        yield
    except BaseException:
        for mark in marks:
            mark.restore()
        raise
