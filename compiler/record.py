"""What a compilation leaves behind so that it can be explained: plain data, no graph.

A `Stage` is a graph as it stood after a pass, for tables, diffs and pictures. A `Record` is all
that a compiled module keeps of its making: the text it started from and how long each pass took.
The same text and the same options give the same stages, so that is enough to show every one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.dims import Size
from compiler.options import Options


@dataclass(frozen=True)
class VarNote:
    """A var: its type as text, its bytes (None for what only data can size), and what it is to a
    run: "feed", "param" or "temp".
    """

    label: str
    type: str
    nbytes: Size | None
    role: str


@dataclass(frozen=True)
class OpNote:
    """An op: the labels it reads and writes, the user's line, its role (None where nothing says
    it, as of a copy that a pass put in), its kernel, its text.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str
    role: int | None
    kernel: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Declined:
    """An op that a pass left as it was: as text, what it writes, its user's line, and why."""

    op: str
    source: str
    reason: str
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A graph after a pass, or before the first one, which is called "start".

    `about` is what the pass says it does; `head` and `tail` are the lines that are about no op;
    `kernels` is their number; `nbytes` are those of all temporaries, as if none shared memory.
    """

    name: str
    about: str
    milliseconds: float
    head: tuple[str, ...]
    ops: tuple[OpNote, ...]
    tail: tuple[str, ...]
    vars: Mapping[str, VarNote]
    results: tuple[str, ...]
    kernels: int
    nbytes: Size
    declined: tuple[Declined, ...] = ()

    @property
    def text(self) -> str:
        """The graph as `compiler.ir.text.printer.show` writes it."""
        lines = [*self.head, *(line for op in self.ops for line in op.lines), *self.tail]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Record:
    """How a module was made: its graph before the first pass, packed, the target, the options, and
    the milliseconds of each pass.
    """

    packed: bytes
    target: str
    options: Options
    milliseconds: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def start(self) -> str:
        """The text of the graph before the first pass."""
        return zlib.decompress(self.packed).decode()


def packed(text: str) -> bytes:
    """A text as a `Record` keeps it: a training step of 1,300 ops takes some 40 KiB.

    >>> Record(packed("graph main {}"), "numpy", Options()).start
    'graph main {}'
    """
    return zlib.compress(text.encode(), 1)
