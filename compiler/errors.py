"""What goes wrong while compiling, said once: the op, the user's line, the pass, and a hint."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from compiler.escape import one_line, printable_lines


class CompileError(ValueError):
    """A program cannot be compiled as it stands.

    `message` is one sentence; `op` the op as text; `source` the user's `file:line`; `hint` what
    to do about it. Each is shown on a line of its own. What is not printable in them is shown as
    an escape sequence: names come from users and files.
    """

    def __init__(self, message: str, *, op: str = "", source: str = "", hint: str = "") -> None:
        message = printable_lines(message)
        op, source, hint = one_line(op), one_line(source), one_line(hint)
        lines = [message]
        lines += [f"  op:   {op}"] if op else []
        lines += [f"  line: {source}"] if source else []
        lines += [f"  hint: {hint}"] if hint else []
        super().__init__("\n".join(lines))
        self.message = message
        self.op = op
        self.source = source
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Text and attributes, for another process: `__init__` would make the text again."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnknownOp(CompileError):
    """No op of this type is registered."""


class MissingSlot(CompileError):
    """An op was given no value for a slot it needs, or one for a slot it does not have."""


class BadAttribute(CompileError):
    """An attribute is missing, unknown, or of the wrong type."""


class ShapeError(CompileError):
    """Shapes or element types of an op's inputs do not go together."""


class ParseError(CompileError):
    """A text is not a graph or a program; the message says where."""


class VerifyError(CompileError):
    """A graph broke a rule that must hold between passes."""


class PlanError(CompileError):
    """A plan loses a value before it is read, or puts one where it must not be."""


class PassOrderError(CompileError):
    """A pipeline runs a pass before what it needs."""


LONGEST_GUESS = 200
"""Characters of a name that others are compared with: the time grows with the square."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known spelling, or nothing.

    >>> did_you_mean("rellu", ["relu", "tanh"])
    "did you mean 'relu'?"
    """
    if len(name) > LONGEST_GUESS:
        return ""
    close = get_close_matches(name, [each for each in known if len(each) <= LONGEST_GUESS], n=1)
    return f"did you mean {close[0]!r}?" if close else ""
