"""Records of a compilation, from which it can be explained: plain data, no graph.

A `Stage` is a snapshot of the graph after a pass, for tables, diffs and drawings. A `Record` is all
that a compiled module keeps of its compilation: the text of the initial graph and the time of each
pass. The same text and options produce the same stages, so that suffices to show every one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import field

from compiler.ir.dims import Size
from compiler.options import Options
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class VarNote:
    """A var: its type as text, its bytes (None for data-dependent sizes), and its role.

    The role is "feed", "param" or "temp".
    """

    label: str
    type: str
    nbytes: Size | None
    role: str


@dataclass(frozen=True)
class OpNote:
    """An op: the labels it reads and writes, the user's line, its role, its kernel, its text.

    The role is None if unknown, as for a copy that a pass inserted.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str
    role: int | None
    kernel: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class RemarkNote:
    """An optimisation, missed or applied: the op as text, its outputs, the user's line, and why."""

    op: str
    source: str
    reason: str
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A snapshot of a graph after a pass, or before the first one, which is called "start".

    `about` is the pass's description; `head` and `tail` are the lines that belong to no op;
    `kernels` is their number; `nbytes` is the size of all temporaries, as if none shared memory.
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
    missed: tuple[RemarkNote, ...] = ()
    applied: tuple[RemarkNote, ...] = ()

    @property
    def text(self) -> str:
        """The graph as `compiler.ir.text.printer.show` prints it."""
        lines = [*self.head, *(line for op in self.ops for line in op.lines), *self.tail]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Record:
    """How a module was compiled: its compressed initial graph, the target, the options, the
    milliseconds of each pass, and whether its state is watched.
    """

    packed: bytes
    target: str
    options: Options
    milliseconds: Mapping[str, float] = field(default_factory=dict[str, float])
    watch_state: bool = False

    @property
    def start(self) -> str:
        """The text of the graph before the first pass."""
        return zlib.decompress(self.packed).decode()


def packed(text: str) -> bytes:
    """Compress a text for a `Record`: a training step of 1,300 ops takes some 40 KiB.

    >>> Record(packed("graph main {}"), "numpy", Options()).start
    'graph main {}'
    """
    return zlib.compress(text.encode(), 1)
