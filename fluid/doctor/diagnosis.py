"""`Diagnosis`: what a check saw, and what to do about it."""

from __future__ import annotations

from typing import Literal

from compiler.support.dataclass import dataclass

__all__ = ["Diagnosis"]

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report: what was looked at, what was seen, and advice where there is any.

    A `note` is something that only some users need; a `problem` stops what should work here.
    """

    subject: str
    seen: str
    state: State = "ok"
    advice: str = ""
