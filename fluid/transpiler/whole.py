"""Atomic rewrites of a program."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from fluid.framework import Program

__all__ = ["whole"]


@contextmanager
def whole(program: Program) -> Generator[None]:
    """Restore ops, slots, attributes and variables if the `with` block raises an error."""
    blocks = [(block, list(block.ops), dict(block.vars)) for block in program.blocks]
    ops = [
        (op, _copied(op.inputs), _copied(op.outputs), dict(op.attrs))
        for _, block_ops, _ in blocks
        for op in block_ops
    ]
    renamed, optimized = program.current_name_table, program.is_mem_optimized
    try:
        yield
    except BaseException:
        for block, block_ops, variables in blocks:
            block.ops, block.vars = block_ops, variables
        for op, inputs, outputs, attrs in ops:
            op.inputs, op.outputs, op.attrs = inputs, outputs, attrs
        program.current_name_table, program.is_mem_optimized = renamed, optimized
        program.touch()
        raise


def _copied(slots: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {slot: list(names) for slot, names in slots.items()}
