"""Programs as text and as drawings in the DOT language."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from compiler.ir.opdef.type_inference import op_text
from compiler.support.escape import dot_string
from fluid.framework import Operator, Program
from fluid.recording.block import Block

__all__ = ["draw_block_graphviz", "pprint_block_codes", "pprint_program_codes", "repr_op"]


def repr_op(op: Operator) -> str:
    """An op as a line: its outputs, its type and its inputs."""
    return op_text(op)


def pprint_program_codes(program: Program) -> str:
    """Print every block of a program; returns the text."""
    return "\n\n".join([pprint_block_codes(block) for block in program.blocks])


def pprint_block_codes(block: Block, show_backward: bool = False) -> str:
    """Print the variables and the ops of a block; gradient ops too with `show_backward`.

    Returns the text.
    """
    lines = [f"block {block.idx} (parent {block.parent_idx})"]
    for var in block.vars.values():
        persistable_text = "persistable " if var.persistable else ""
        dims = list(var.dims or ())
        lines.append(f"  {persistable_text}{var.name}: {var.element.numpy}{dims}")
    for op in block.ops:
        if show_backward or not op.type.endswith("_grad"):
            lines.append(f"  {repr_op(op)}")
    print(text := "\n".join(lines))
    return text


def draw_block_graphviz(
    block: Block, highlights: Collection[str] | None = None, path: str = "./temp.dot"
) -> None:
    """Write a drawing of a block's ops and variables, some names highlighted, to a `.dot` file."""
    marked = frozenset(highlights or ())
    lines = ["digraph G {", "  rankdir=TB;", *_nodes(block, marked), *_edges(block), "}", ""]
    Path(path).write_text("\n".join(lines), encoding="utf-8")


def _nodes(block: Block, marked: Collection[str]) -> Iterator[str]:
    names = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for name in sorted(names):
        color = "orange" if name in marked else "lightgray"
        yield f"  {dot_string(name)} [shape=box, style=filled, fillcolor={color}];"
    for number, op in enumerate(block.ops):
        label = dot_string(op.type)
        yield f"  op_{number} [label={label}, style=filled, fillcolor=lightblue];"


def _edges(block: Block) -> Iterator[str]:
    for number, op in enumerate(block.ops):
        yield from (f"  {dot_string(name)} -> op_{number};" for name in op.input_arg_names)
        yield from (f"  op_{number} -> {dot_string(name)};" for name in op.output_arg_names)
