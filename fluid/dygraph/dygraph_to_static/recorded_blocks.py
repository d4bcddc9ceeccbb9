"""Blocks that are recorded for branches and loops, and lists that become tensor arrays in them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

from fluid.dygraph.dygraph_to_static.values import State, Value, as_tensor, is_number
from fluid.framework import Block, Variable, default_main_program
from fluid.layers.control.arrays import array_write, create_array
from fluid.layers.control.blocks import BlockGuard
from fluid.layers.tensor import fill_constant
from fluid.recording.op_records import user_line

__all__ = ["common_sizes", "list_lengths_differ", "lists_to_arrays", "new_block", "within"]

Sizes: TypeAlias = tuple[int, ...] | None


@contextmanager
def new_block() -> Generator[Block]:
    """A new block, in which ops are recorded; it is removed if that fails."""
    program = default_main_program()
    with BlockGuard(program):
        yield program.current_block()


@contextmanager
def within(block: Block) -> Generator[None]:
    """Ops are recorded in a block again."""
    program = default_main_program()
    before = program.current_block_idx
    program.current_block_idx = block.idx
    try:
        yield
    finally:
        program.current_block_idx = before


def lists_to_arrays(state: State, indices: set[int]) -> None:
    """Replace lists by tensor arrays of their items."""
    if not indices:
        return
    values = state.current_values()
    for index in indices:
        values[index] = _array(state.names[index], values[index])
    state.set(values)


def _array(name: str, items: Sequence[Value]) -> Variable:
    """Return a tensor array of the items of a list."""
    tensors: list[Variable] = []
    for item in items:
        if not isinstance(item, Variable) and not is_number(item):
            raise TypeError(
                f"{user_line()}: the list {name!r} gets items in a branch or loop on a tensor, so "
                f"that it becomes a tensor array, but it has an item {item!r:.60}: let it have "
                "tensors only"
            )
        tensors.append(as_tensor(item))
    array = create_array(tensors[0].dtype if tensors else "float32")
    for index, tensor in enumerate(tensors):
        array_write(tensor, fill_constant([1], "int64", index), array)
    return array


def common_sizes(
    one: tuple[int, ...] | None, two: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return a shape with -1 where two of them differ."""
    if one is None or two is None or len(one) != len(two):
        return one
    return tuple(a if a == b else -1 for a, b in zip(one, two, strict=True))


def list_lengths_differ(one: object, two: object) -> bool:
    """Return whether two values are lists of different lengths."""
    if not isinstance(one, list) or not isinstance(two, list):
        return False
    return len(cast(list[Value], one)) != len(cast(list[Value], two))
