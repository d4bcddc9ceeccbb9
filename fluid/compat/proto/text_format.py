"""Reading of messages from protobuf's text format, as `str` of a message writes it."""

from __future__ import annotations

import re
from typing import Any

from compiler.ir.model_format.schema import ENUMS, SCHEMA, Field
from fluid.compat.proto.messages import ProtoMessage

__all__ = ["TextError", "merge_text"]

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*([A-Za-z_]\w*|[{}:<>;,\[\]]|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[-+.\w]+)"""
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_ESCAPED = {"n": 10, "r": 13, "t": 9, "a": 7, "b": 8, "f": 12, "v": 11}
_DEEPEST = 100


class TextError(ValueError):
    """Text that is no message, with the line."""


def merge_text(text: str, message: ProtoMessage, where: str = "text") -> None:
    """Set the fields of a message that a text has; lists are appended to.

    Raises TextError with `where` and the line for invalid text.

    >>> from fluid.compat.proto.framework_pb2 import OpDesc
    >>> merge_text('type: "relu"', op := OpDesc())
    >>> op.type
    'relu'
    """
    _Parser(text, where).fields(message, end="", depth=0)


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at = text, where, 0

    def fields(self, message: ProtoMessage, end: str, depth: int) -> None:
        """Read fields up to the closing token `end`, or to the end of the text."""
        if depth > _DEEPEST:
            raise self._error("messages are nested too deeply")
        known = {field.name: field for field in SCHEMA[message.DESCRIPTOR.kind]}
        while (name := self._next(optional=not end)) != end:
            if name not in known:
                raise self._error(f"{message.DESCRIPTOR.name} has no field {name!r:.40}")
            self._field(message, known[name], depth)
            if self._peek() in (";", ","):
                self._next()

    def _field(self, message: ProtoMessage, field: Field, depth: int) -> None:
        is_message = field.kind in SCHEMA
        if self._peek() == ":":
            self._next()
        elif not is_message:
            raise self._error(f"expected ':' after {field.name}")
        if field.repeated and self._peek() == "[":
            self._next()
            while self._peek() != "]":
                self._value(message, field, depth)
                if self._peek() == ",":
                    self._next()
            self._next()
        else:
            self._value(message, field, depth)

    def _value(self, message: ProtoMessage, field: Field, depth: int) -> None:
        token = self._next()
        if field.kind in SCHEMA:
            if token not in ("{", "<"):
                raise self._error(f"{field.name} is a message in braces, not {token!r:.40}")
            part: Any = getattr(message, field.name)
            inner = part.add() if field.repeated else part
            inner.SetInParent()
            self.fields(inner, "}" if token == "{" else ">", depth + 1)
            return
        value = self._scalar(field, token)
        try:
            if field.repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        except (TypeError, ValueError) as error:
            raise self._error(str(error)) from None

    def _scalar(self, field: Field, token: str) -> object:
        if token[0] in "\"'":
            return self._string(token)
        if field.kind == "bool" and token in ("true", "false", "t", "f", "0", "1"):
            return token in ("true", "t", "1")
        if field.enum and token in ENUMS[field.enum]:
            return ENUMS[field.enum][token]
        try:
            if field.kind in ("float", "double"):
                return float(token.rstrip("fF") if "n" not in token.lower() else token)
            return int(token, 0)
        except ValueError:
            raise self._error(f"{field.name} cannot be {token!r:.40}") from None

    def _string(self, token: str) -> bytes:
        """The bytes of a quoted string; strings that follow each other are one."""
        parts = [token]
        while self._peek()[:1] in ('"', "'"):
            parts.append(self._next())
        return b"".join(map(_unquoted, parts))

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match else ""

    def _next(self, optional: bool = False) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return match[1]
        rest = re.sub(r"\s+|#[^\n]*", "", self._text[self._at :])
        if rest or not optional:
            raise self._error(f"unexpected {rest[0]!r}" if rest else "the text ends too early")
        return ""

    def _error(self, message: str) -> TextError:
        line = self._text.count("\n", 0, self._at) + 1
        return TextError(f"{self._where}, line {line}: {message}")


def _unquoted(token: str) -> bytes:
    result, at, inner = bytearray(), 0, token[1:-1]
    for match in _ESCAPE.finditer(inner):
        result += inner[at : match.start()].encode("utf-8", "surrogateescape")
        result += _escaped(match[1])
        at = match.end()
    return bytes(result) + inner[at:].encode("utf-8", "surrogateescape")


def _escaped(code: str) -> bytes:
    if code[0] in "01234567":
        return bytes([int(code, 8) & 255])
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([_ESCAPED[code]]) if code in _ESCAPED else code.encode()
