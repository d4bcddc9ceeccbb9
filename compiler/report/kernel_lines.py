"""Which lines of a generated module belong to which kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.escape import one_line
from compiler.plan import PlannedOp, Step


@dataclass(frozen=True)
class Kernel:
    """A step of the module: its ops as text, and its lines, `first <= line < stop`, from 0.

    Both are 0 where the module says nothing of it.
    """

    ops: tuple[str, ...]
    first: int
    stop: int


def kernels(source: str, steps: Sequence[Step]) -> list[Kernel]:
    """The kernels of a module in order, each found by the comments that name its ops.

    A target that writes other comments has kernels without lines.
    """
    lines = source.splitlines()
    places = {id(step): _first(lines, step, since) for step, since in _walk(lines, steps)}
    found: list[Kernel] = []
    end = _end(lines)
    for step in reversed(steps):
        first = places[id(step)]
        stop = end if first is not None else 0
        found.append(Kernel(tuple([op.text for op in step.ops]), first or 0, stop))
        end = first if first is not None else end
    return found[::-1]


def _walk(lines: Sequence[str], steps: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """Each step with the line from which on it is looked for."""
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
    """Where the step returns."""
    until = lines.index("    return step") if "    return step" in lines else len(lines)
    returns = (i for i in reversed(range(until)) if lines[i].startswith("        return "))
    return next(returns, until)
