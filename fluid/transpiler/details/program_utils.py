"""Programs as code, one op a line, and small searches in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TextIO

from compiler.ir.program import BlockRef, VarKind
from fluid.framework import Block, Operator, Parameter, Program, Variable
from fluid.recording.narrowing import is_sequence

__all__ = [
    "block_to_code", "delete_ops", "find_op_by_input_arg", "find_op_by_output_arg",
    "get_indent_space", "op_to_code", "program_to_code", "variable_to_code",
]  # fmt: skip


def delete_ops(block: Block, ops: Iterable[Operator]) -> None:
    """Remove ops from a block; those that are not in it are printed and skipped."""
    for op in ops:
        if op in block.ops:
            block.remove_op(op.idx)
        else:
            print(f"{op.type} is not in the block")


def find_op_by_input_arg(block: Block, arg_name: str) -> int:
    """Index of the first op that reads a variable; -1 if none does."""
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block: Block, arg_name: str, reverse: bool = False) -> int:
    """Index of the first op (the last, with `reverse`) that writes a variable; -1 if none does."""
    writers = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return writers[-1 if reverse else 0] if writers else -1


def get_indent_space(indent: int, space_num: int = 4) -> str:
    """The spaces of an indentation level."""
    return " " * (indent * space_num)


def variable_to_code(var: Variable) -> str:
    """A variable as text: its kind, name, shape and element type.

    >>> variable_to_code(Program().global_block().create_var(name="x", shape=[2], dtype="float32"))
    'var x : fluid.VarType.LOD_TENSOR.shape(2,).astype(VarType.FP32)'
    """
    text = f"{var.name} : fluid.{var.type}"
    if var.kind in (VarKind.TENSOR, VarKind.SELECTED_ROWS):
        text += f".shape{var.shape}.astype({var.dtype})"
    else:
        text += ")"
    kind = "var"
    if isinstance(var, Parameter):
        kind = "trainable parameter" if var.trainable else "parameter"
    return f"{'persist ' if var.persistable else ''}{kind} {text}"


def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """An op as text: its results, type, inputs and attributes by name."""
    attrs = [
        _attribute_text(name, value)
        for name, value in sorted(op.attrs.items())
        if not (skip_op_callstack and name == "op_callstack")
    ]
    call = f"{op.type}(inputs={_slots_text(op.inputs)}, {', '.join(attrs)})"
    return f"{_slots_text(op.outputs)} = {call}" if op.outputs else call


def _slots_text(slots: Mapping[str, list[str]]) -> str:
    return "{" + ", ".join(f"{slot}={names}" for slot, names in slots.items()) + "}"


def _attribute_text(name: str, value: object) -> str:
    if isinstance(value, BlockRef):
        return f"{name} = block[{int(value)}]"
    is_blocks = is_sequence(value) and bool(value) and isinstance(value[0], BlockRef)
    return f"{name} = {'blocks' if is_blocks else ''}{value}"


def block_to_code(
    block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False
) -> None:
    """Print the variables of a block by name and its ops in order, to stdout by default."""
    indent = get_indent_space(1)
    print(f"{{ // block {block_idx}", file=fout)
    for name in sorted(block.vars):
        print(f"{indent}{variable_to_code(block.vars[name])}", file=fout)
    if block.vars:
        print(file=fout)
    for op in block.ops:
        print(f"{indent}{op_to_code(op, skip_op_callstack)}", file=fout)
    print("}", file=fout)


def program_to_code(
    prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True
) -> None:
    """Print every block of a program, to stdout by default."""
    for index, block in enumerate(prog.blocks):
        block_to_code(block, index, fout, skip_op_callstack)
