"""Which variables of a program are data, checked when fed, or without gradient."""

from __future__ import annotations

from collections.abc import Mapping

from fluid.recording.block import BlockProgram

__all__ = ["copy_data_marks"]


def copy_data_marks(
    program: BlockProgram,
    other: BlockProgram,
    pruned_origin_block_id_map: Mapping[int, int] | None = None,
) -> None:
    """Mark as data, checked, or without gradient what is so in another program.

    The map has, for each block, the index of the block there; by default its own. Raises TypeError
    for no program, ValueError for a variable that the other program does not have.
    """
    if not isinstance(other, BlockProgram):  # pyright: ignore[reportUnnecessaryIsInstance] - users
        raise TypeError(f"the source must be a Program, not {type(other).__name__}")
    origins = pruned_origin_block_id_map or {block.idx: block.idx for block in program.blocks}
    for block in program.blocks:
        source = other.blocks[origins[block.idx]]
        for var in block.vars.values():
            known = source.var(var.name)
            var.is_data |= known.is_data
            var.need_check_feed |= known.need_check_feed
            var.stop_gradient |= known.stop_gradient
    program.touch()
