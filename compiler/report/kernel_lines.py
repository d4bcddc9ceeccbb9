"""Mapping from the kernels of a plan to the lines of the generated module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.escape import one_line
from compiler.plan import PlannedOp, Step


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

    Kernels without such a comment have no lines.
    """
    lines = source.splitlines()
    first_lines = {id(step): _first(lines, step, since) for step, since in _walk(lines, steps)}
    found: list[Kernel] = []
    end = _end(lines)
    for step in reversed(steps):
        first = first_lines[id(step)]
        stop = end if first is not None else 0
        found.append(Kernel(tuple([op.text for op in step.ops]), first or 0, stop))
        end = first if first is not None else end
    return found[::-1]


def _walk(lines: Sequence[str], steps: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """Yield each step with the line from which to search for it."""
    since = 0
    for step in steps:
        yield step, since
        first = _first(lines, step, since)
        since = since if first is None else first + len(step.ops)


def _first(lines: Sequence[str], step: Step, since: int) -> int | None:
    if not step.ops:
        return None
    wanted = _comment(step.ops[0])
    return next((i for i in range(since, len(lines)) if lines[i].strip() == wanted), None)


def _comment(op: PlannedOp) -> str:
    text = op.text + f"  {op.source}" * bool(op.source)
    return f"# {one_line(text)}"


def _end(lines: Sequence[str]) -> int:
    """Return the line of the step function's return statement."""
    until = lines.index("    return step") if "    return step" in lines else len(lines)
    returns = (i for i in reversed(range(until)) if lines[i].startswith("        return "))
    return next(returns, until)
