"""Programs, blocks, variables and ops in protobuf's text format, the result of `str`.

Everything is in program order; call stacks are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.ir.model_format.program_desc import program_message
from compiler.ir.model_format.protobuf import Message
from compiler.ir.model_format.schema import ENUMS, SCHEMA, Field
from compiler.ir.program import Block, OpDesc, Program, VarDesc

__all__ = ["block_text", "message_text", "op_text", "program_text", "var_text"]


def program_text(program: Program) -> str:
    """All blocks of a program."""
    message = program_message(program)
    remaining = {n: value for n, value in message.values.items() if n != "op_compatible_map"}
    return _text(replace(message, values=remaining))


def block_text(block: Block) -> str:
    """One block with its variables and ops."""
    return _text(_blocks(block.owner)[block.idx])


def var_text(var: VarDesc) -> str:
    """The declaration of a variable.

    >>> print(var_text(VarDesc("x", (-1, 13))), end="")
    name: "x"
    type {
      type: LOD_TENSOR
      lod_tensor {
        tensor {
          data_type: FP32
          dims: -1
          dims: 13
        }
        lod_level: 0
      }
    }
    persistable: false
    """
    alone = Program()
    alone.blocks[0].vars[var.name] = var
    return _text(_blocks(alone)[0].many("vars", Message)[0])


def op_text(op: OpDesc) -> str:
    """One op with its slots and attributes."""
    alone = Program()
    alone.blocks[0].ops.append(op)
    return _text(_blocks(alone)[0].many("ops", Message)[0])


def _blocks(program: Program) -> tuple[Message, ...]:
    return program_message(program).many("blocks", Message)


def _text(message: Message) -> str:
    lines: list[str] = []
    _add_lines(lines, message, "", _UNSAID, True)
    return "".join(lines)


def message_text(message: Message, shortest: bool = False) -> str:
    """A message in protobuf's text format, with every field that is set.

    Floats are printed as the doubles that they are, or `shortest`: with no more digits than they
    are recognized by.
    """
    lines: list[str] = []
    _add_lines(lines, message, "", {}, shortest)
    return "".join(lines)


_UNSAID = {"need_check_feed": False, "forward_block_idx": -1}
"""Defaults that the reference does not print."""


def _add_lines(
    lines: list[str],
    message: Message,
    indent: str,
    unsaid: Mapping[str, object],
    shortest: bool,
) -> None:
    """Append a message's fields in numeric order, one per line, with nested ones indented."""
    values = message.values
    for field in SCHEMA[message.kind]:
        name = field.name
        if name not in values or unsaid.get(name, ()) == (value := values[name]):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Message):
                lines.append(f"{indent}{name} {{\n")
                _add_lines(lines, item, f"{indent}  ", unsaid, shortest)
                lines.append(f"{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_shown(field, item, shortest)}\n")


def _shown(field: Field, item: int | float | str | bytes, shortest: bool) -> str:
    if isinstance(item, str | bytes):
        return f'"{_escaped(item)}"'
    if field.enum:
        names = (name for name, number in ENUMS[field.enum].items() if number == item)
        return next(names, str(int(item)))
    if field.kind == "float" and shortest:
        return str(np.float32(item))
    if field.kind == "bool":
        return "true" if item else "false"
    return str(int(item)) if isinstance(item, int) else str(item).lower()


def _escaped(text: str | bytes) -> str:
    """What is not printable ASCII as octal numbers of its bytes."""
    if isinstance(text, str) and _PLAIN.fullmatch(text):
        return text
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return "".join([_ESCAPES[byte] for byte in data])


_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\U0010ffff\"'\\]*")
_SHORT_ESCAPES = {'"': '\\"', "'": "\\'", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = [
    _SHORT_ESCAPES.get(chr(byte), chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
    for byte in range(256)
]
