"""Mapping from the kernels of a plan to the lines of the generated module."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.plan import PlannedOp, Step
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line


@dataclass(frozen=True)
class Kernel:
    """A step of the module: its ops as text, and its lines, `first <= line < stop`, from 0.

    Both are 0 if no line of the module is found.
    """

    ops: tuple[str, ...]
    first: int
    stop: int


def kernels(source: str, steps: Sequence[Step]) -> list[Kernel]:
    """Return the kernels of a module in order, found by the comments that name their ops.

    Kernels without such a comment have no lines. Those of native code are first searched for in
    the sequences of `bind`, others in `step`.
    """
    lines = source.splitlines()
    starts = [0, _step(lines)]
    first_lines: list[int | None] = []
    for step in steps:
        part, first = _first(lines, step, starts)
        if first is not None:
            starts[part] = first + len(step.ops)
        first_lines.append(first)
    ends = sorted({_end(lines), *_ends(lines), *(line for line in first_lines if line is not None)})
    return [
        Kernel(
            tuple([op.text for op in step.ops]),
            first or 0,
            0 if first is None else next(end for end in ends if end > first),
        )
        for step, first in zip(steps, first_lines, strict=True)
    ]


def _step(lines: Sequence[str]) -> int:
    """Return the line on which the function `step` begins."""
    return next((i for i, line in enumerate(lines) if line.startswith("    def step(")), 0)


def _ends(lines: Sequence[str]) -> list[int]:
    """Return the lines on which sequences of native commands end."""
    return [i for i, line in enumerate(lines) if line == "    ])"]


def _first(lines: Sequence[str], step: Step, starts: Sequence[int]) -> tuple[int, int | None]:
    """Return the line of a step's comment, and whether it is in `bind` (0) or in `step` (1)."""
    wanted = _comment(step.ops[0]) if step.ops else None
    for part, (since, until) in enumerate(((starts[0], _step(lines)), (starts[1], len(lines)))):
        for index in range(since, until):
            if lines[index].strip() == wanted:
                return part, index
    return 0, None


def _comment(op: PlannedOp) -> str:
    text = op.text + f"  {op.source}" * bool(op.source)
    return f"# {one_line(text)}"


def _end(lines: Sequence[str]) -> int:
    """Return the line of the step function's return statement."""
    until = lines.index("    return step") if "    return step" in lines else len(lines)
    returns = (i for i in reversed(range(until)) if lines[i].startswith("        return "))
    return next(returns, until)
