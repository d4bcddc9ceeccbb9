"""Which variables of a program are data, checked when fed, or without gradient."""

from __future__ import annotations

from collections.abc import Mapping

from fluid.recording.block import BlockProgram

__all__ = ["copy_data_marks"]


def copy_data_marks(
    program: BlockProgram, source: BlockProgram, origins: Mapping[int, int] | None
) -> None:
    """Mark as data, checked, or without gradient what is so in another program.

    `origins` has, for each block, the index of the block there; by default its own. Raises
    ValueError for a variable that the other program does not have.
    """
    for block in program.blocks:
        known_block = source.blocks[block.idx if not origins else origins[block.idx]]
        for var in block.vars.values():
            known = known_block.var(var.name)
            var.is_data |= known.is_data
            var.need_check_feed |= known.need_check_feed
            var.stop_gradient |= known.stop_gradient
    program.touch()
