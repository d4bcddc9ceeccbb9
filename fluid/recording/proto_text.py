"""Programs, blocks, variables and ops in protobuf's text format, the result of `str`.

Everything is in program order; call stacks are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from compiler.ir.model_format.program_desc import dump_program
from compiler.ir.model_format.protobuf import Message, parse
from compiler.ir.model_format.schema import ENUMS, SCHEMA, Field
from compiler.ir.program import Block, OpDesc, Program, VarDesc

__all__ = ["block_text", "message_text", "op_text", "program_text", "var_text"]


def program_text(program: Program) -> str:
    """All blocks of a program."""
    message = parse(dump_program(program))
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
    return parse(dump_program(program)).many("blocks", Message)


def _text(message: Message) -> str:
    return "".join(f"{line}\n" for line in _lines(message))


def message_text(message: Message, shortest: bool = False) -> str:
    """A message in protobuf's text format, with every field that is set.

    Floats are printed as the doubles that they are, or `shortest`: with no more digits than they
    are recognized by.
    """
    return "".join(f"{line}\n" for line in _lines(message, {}, shortest))


_UNSAID = {"need_check_feed": False, "forward_block_idx": -1}
"""Defaults that the reference does not print."""


def _lines(
    message: Message, unsaid: Mapping[str, object] = _UNSAID, shortest: bool = True
) -> Iterator[str]:
    """A message's fields in numeric order, one per line, with nested ones indented."""
    for field in SCHEMA[message.kind]:
        value = message.values.get(field.name, ())
        if unsaid.get(field.name, ()) == value:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Message):
                yield f"{field.name} {{"
                yield from (f"  {line}" for line in _lines(item, unsaid, shortest))
                yield "}"
            else:
                yield f"{field.name}: {_shown(field, item, shortest)}"


def _shown(field: Field, item: int | float | str | bytes, shortest: bool) -> str:
    if isinstance(item, str | bytes):
        return f'"{_escaped(item)}"'
    if field.enum:
        names = (name for name, number in ENUMS[field.enum].items() if number == item)
        return next(names, str(item))
    if field.kind == "float" and shortest:
        return str(np.float32(item))
    return str(item).lower()


def _escaped(text: str | bytes) -> str:
    """What is not printable ASCII as octal numbers of its bytes."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return "".join([_ESCAPES[byte] for byte in data])


_SHORT_ESCAPES = {'"': '\\"', "'": "\\'", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = [
    _SHORT_ESCAPES.get(chr(byte), chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
    for byte in range(256)
]
