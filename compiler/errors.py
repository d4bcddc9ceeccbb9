"""Errors of the compiler: a message, the op, the user's line and a hint."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from compiler.support.escape import one_line, printable_lines


class CompileError(ValueError):
    """An error of a program that cannot be compiled.

    `message` is one sentence; `op` the op as text; `source` the user's `file:line`; `hint` what to
    do about it. Each is shown on a separate line. Unprintable characters are shown as escape
    sequences, since names come from users and files.
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
        """Pickle the text and attributes as they are: `__init__` would format the text again."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnknownOp(CompileError):
    """No op of this type is registered.

    Scripts compare its text, so that op, line and hint are notes, which tracebacks show too.
    """

    def __init__(self, message: str, *, op: str = "", source: str = "", hint: str = "") -> None:
        super().__init__(message, op=op, source=source, hint=hint)
        text, *notes = self.args[0].split("\n")
        self.args = (text,)
        for note in notes:
            self.add_note(note)


class MissingSlot(CompileError):
    """A required slot of an op is missing, or a slot does not exist."""


class BadAttribute(CompileError):
    """An attribute is missing, unknown, or of the wrong type."""


class ShapeError(CompileError):
    """Shapes or element types of an op's inputs are incompatible."""


class ParseError(CompileError):
    """A text is not a valid graph or program; the message contains the position."""


class VerifyError(CompileError):
    """A graph violates an invariant that must hold between passes."""


class PlanError(CompileError):
    """A plan overwrites a value before it is read, or stores one in invalid memory."""


class WrongResult(CompileError):
    """Generated code computes other numbers than the reference implementation of its ops."""


class PassOrderError(CompileError):
    """A pipeline runs a pass before the passes that it requires."""


LONGEST_GUESS = 200
"""Maximum length of names that `did_you_mean` compares: its time grows with the square."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known spelling, or an empty string.

    >>> did_you_mean("rellu", ["relu", "tanh"])
    "did you mean 'relu'?"
    """
    if len(name) > LONGEST_GUESS:
        return ""
    close = get_close_matches(
        name, [candidate for candidate in known if len(candidate) <= LONGEST_GUESS], n=1
    )
    return f"did you mean {close[0]!r}?" if close else ""
