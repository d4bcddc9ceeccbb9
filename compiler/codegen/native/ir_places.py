"""Places in a function under construction where instructions may be added later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Place:
    """A place in a block for later instructions; if they branch, another block is its end."""

    start: str
    end: str
    lines: list[str | Place] = field(default_factory=list["str | Place"])


def flattened(lines: Sequence[str | Place]) -> Iterator[str]:
    """All lines in order, with those that were added at marked places."""
    for each in lines:
        if isinstance(each, Place):
            yield from flattened(each.lines)
        else:
            yield each


def places(lines: Sequence[str | Place]) -> Iterator[Place]:
    """The marked places among lines, in order."""
    for each in lines:
        if isinstance(each, Place):
            yield each
            yield from places(each.lines)


def with_ends(phi: str, ends: Mapping[str, str]) -> str:
    """A phi whose values come from the blocks in which the blocks it names now end."""
    return re.sub(r"%(\w+)\]", lambda found: f"%{ends.get(found[1], found[1])}]", phi)
