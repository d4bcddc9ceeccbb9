"""Operands of instructions: registers, constants, addresses, vectors and pairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tools.ptx.errors import PtxSyntaxError
from tools.ptx.instructions import (
    Address,
    Immediate,
    Not,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)
from tools.ptx.text.tokens import Token

SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|cluster_ctaid|nclusterid|clusterid|cluster_nctaid)\.[xyz]|laneid|warpid|nwarpid|smid|"
    r"nsmid|clock|clock64|globaltimer|lanemask_(?:eq|lt|le|gt|ge)|cluster_ctarank|"
    r"dynamic_smem_size|total_smem_size)$"
)
_CLOSING = {"{": "}", "(": ")"}
"""Marks of vectors, and of the lists of a call."""
_INTEGER = re.compile(r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")

Find = Callable[[str], Register | Symbol | None]


class Operands:
    """Reads the operands of one instruction; `find` gives what a name means."""

    def __init__(self, words: Sequence[Token], find: Find) -> None:
        self._words = words
        self._find = find
        self._at = 0

    def all(self) -> tuple[Operand | None, ...]:
        """Return the operands, None for `_`."""
        if not self._words:
            return ()
        operands = [self._alternative()]
        while self._at < len(self._words):
            self._take(",")
            operands.append(self._alternative())
        return tuple(operands)

    def _alternative(self) -> Operand | None:
        first = self._one()
        if self._next() != "|":
            return first
        self._take("|")
        return Pair(first, self._one())

    def _one(self) -> Operand | None:
        word = self._next()
        if word in _CLOSING:
            return self._vector(word)
        if word == "[":
            return self._address()
        if word == "!":
            self._take("!")
            return Not(self._register())
        return self._scalar()

    def _scalar(self) -> Operand | None:
        if self._next() == "-":
            return Immediate(-self._integer())
        word = self._word()
        if word == "_":
            return None
        return self._named(word)

    def _named(self, word: str) -> Operand:
        operand = self._find(word)
        if operand is not None:
            return operand
        if SPECIAL.match(word):
            return Special(word)
        return self._constant(word)

    def _constant(self, word: str) -> Operand:
        floats = _FLOAT.match(word)
        if floats:
            bits = floats[1] or floats[2]
            return Immediate(int(bits, 16), len(bits) // 2)
        if _INTEGER.match(word):
            return Immediate(_number(word))
        if word[0] == "%" or word[0].isdigit():
            raise self._error(f"{word} is neither a register nor a number")
        return Symbol(word)

    def _integer(self) -> int:
        self._take("-")
        word = self._word()
        if not _INTEGER.match(word):
            raise self._error(f"a number expected, not {word}")
        return _number(word)

    def _register(self) -> Register:
        word = self._word()
        operand = self._find(word)
        if not isinstance(operand, Register):
            raise self._error(f"{word} is not a register")
        return operand

    def _vector(self, mark: str) -> Vector:
        self._take(mark)
        parts = [self._scalar()]
        while self._next() == ",":
            self._take(",")
            parts.append(self._scalar())
        self._take(_CLOSING[mark])
        return Vector(tuple(parts))

    def _address(self) -> Address:
        self._take("[")
        base = self._scalar()
        offset = self._offset()
        self._take("]")
        if not isinstance(base, Register | Symbol | Immediate):
            raise self._error(f"{base} is not an address")
        return Address(base, offset)

    def _offset(self) -> int:
        if self._next() == "+":
            self._take("+")
        elif self._next() != "-":
            return 0
        sign = -1 if self._next() == "-" else 1
        if sign < 0:
            self._take("-")
        word = self._word()
        if not _INTEGER.match(word):
            raise self._error(f"an offset expected, not {word}")
        return sign * _number(word)

    def _next(self) -> str:
        return self._words[self._at].text if self._at < len(self._words) else ""

    def _word(self) -> str:
        if self._at >= len(self._words) or self._words[self._at].kind != "word":
            raise self._error(f"an operand expected, not {self._next() or 'the end'!r}")
        self._at += 1
        return self._words[self._at - 1].text

    def _take(self, mark: str) -> None:
        if self._next() != mark:
            raise self._error(f"{mark!r} expected, not {self._next() or 'the end'!r}")
        self._at += 1

    def _error(self, message: str) -> PtxSyntaxError:
        return PtxSyntaxError(f"PTX line {self._words[0].line}: {message}")


def _number(word: str) -> int:
    digits = word.rstrip("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    return int(digits, 8) if octal else int(digits, 0)
