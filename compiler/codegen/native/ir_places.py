"""Places in a function under construction where instructions may be added later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from compiler.support.dataclass import dataclass


@dataclass
class InsertionPoint:
    """A place in a block for later instructions; if they branch, another block is its end."""

    start: str
    end: str
    lines: list[str | InsertionPoint] = field(default_factory=list["str | InsertionPoint"])


def flattened(lines: Sequence[str | InsertionPoint], marked: list[InsertionPoint]) -> list[str]:
    """All lines in order, with those that were added at marked places, which are listed too."""
    result: list[str] = []
    for line in lines:
        if isinstance(line, str):
            result.append(line)
        else:
            marked.append(line)
            result += flattened(line.lines, marked)
    return result


def with_ends(phi: str, ends: Mapping[str, str]) -> str:
    """A phi whose values come from the blocks in which the blocks it names now end."""
    return re.sub(r"%(\w+)\]", lambda found: f"%{ends.get(found[1], found[1])}]", phi)
