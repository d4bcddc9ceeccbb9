"""What is read from lines of LLVM IR, as `llvm_ir.Function` writes them."""

from __future__ import annotations

import re

from compiler.codegen.native.ir_values import Type

_TYPE = re.compile(r"<(\d+) x (\w+)>|(\w+)")
_OPENING, _CLOSING = "<([{", ">)]}"


class UncheckedLine(AssertionError):
    """A line of IR uses a pointer in a way whose bounds are not known."""


def expect(line: str, holds: bool) -> None:
    """Raise UncheckedLine unless something holds of a line."""
    if not holds:
        raise UncheckedLine(f"no bounds are known for: {line.strip()}")


def type_of(text: str) -> Type:
    """The type at the beginning of a text.

    >>> type_of("<16 x float> %v1")
    Type(element='float', lanes=16)
    """
    match = _TYPE.match(text)
    if match is None:
        raise UncheckedLine(f"no type is known of: {text}")
    return Type(match[2] or match[3], int(match[1] or 0))


def nbytes(type: Type) -> int:
    """The bytes of a scalar or a vector in memory."""
    return type.nbytes * max(1, type.lanes)


def operands(text: str) -> list[str]:
    """The operands of an instruction, which commas separate.

    >>> operands("ptr %v1, <2 x i1> <i1 true, i1 false>")
    ['ptr %v1', '<2 x i1> <i1 true, i1 false>']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def value_of(operand: str) -> str:
    """The value of an operand, without its type.

    >>> value_of("<2 x i1> <i1 true, i1 false>")
    '<i1 true, i1 false>'
    """
    match = _TYPE.match(operand)
    return operand[match.end() :].strip() if match else operand
