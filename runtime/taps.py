"""Instruments the source of a module: calls of `mark` where its steps begin.

A comment that names ops begins a step. Lines of `step` get a call that reads the clock; a sequence
of native commands gets the number of the step in front of its commands, and is made by
`mark.sequence`, which reports the time of each command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["MARK", "START", "Taps"]

MARK = "mark"
"""The function that an instrumented source calls with the number of the next step."""

START = -1
"""The number that an instrumented source passes before its first step."""

_SEQUENCE = re.compile(r"    (\w+) = native\(\[")
_RUN = re.compile(r"(\w+)\(")


class Taps:
    """The instrumented `lines` of a module, the ops of each of its `steps`, and their `order`.

    Steps are numbered as they occur in the source, where those of a sequence come before others;
    `order` is that in which they run.
    """

    def __init__(self, source: str, dims: Sequence[str]) -> None:
        self.steps: list[tuple[str, ...]] = []
        self.order: list[int] = []
        self._dims = dims
        self._sequences: dict[str, list[int]] = {}
        self._group: list[str] = []
        self.lines = [*self._tapped(iter(source.splitlines()))]

    def _tapped(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            begun = _SEQUENCE.fullmatch(line)
            if begun is not None:
                yield line.replace("native(", f"{MARK}.sequence(native, ")
                yield from self._commands(lines, self._sequences.setdefault(begun[1], []))
                continue
            yield line
            if line.lstrip().startswith("def step("):
                yield f"        {MARK}({', '.join([str(START), *self._dims])})"
                yield from self._step(lines)

    def _commands(self, lines: Iterable[str], numbers: list[int]) -> Iterator[str]:
        """Yield the commands of a sequence up to its end, after the number of their step."""
        for line in lines:
            text = line.lstrip()
            if text.startswith("# "):
                self._group.append(text[2:])
            elif self._group:
                numbers.append(self._number())
                yield f"        {numbers[-1]},"
            yield line
            if line == "    ])":
                return

    def _step(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of `step` up to its end, with a call of `mark` above each comment."""
        for line in lines:
            text = line.lstrip()
            indent = line[: len(line) - len(text)]
            if text.startswith("# "):
                self._group.append(text[2:])
                continue
            comments = [f"{indent}# {op}" for op in self._group]
            if self._group and not text.startswith(("else", "elif")):
                self.order.append(self._number())
                yield f"{indent}{MARK}({self.order[-1]})"
            yield from comments
            self._group.clear()
            if (run := _RUN.match(text)) is not None:
                self.order += self._sequences.get(run[1], [])
            if line.startswith("        return "):
                yield f"{indent}{MARK}({len(self.steps)})"
                yield line
                return
            yield line

    def _number(self) -> int:
        """Number the step that the last comments name."""
        self.steps.append(tuple(self._group))
        self._group.clear()
        return len(self.steps) - 1
