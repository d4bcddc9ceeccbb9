"""Text tables of a compilation: the passes, missed optimisations, and the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from textwrap import fill

from compiler.ir.dims import evaluate
from compiler.record import RemarkNote, Stage
from compiler.report.memory import MemoryUse, size_text
from compiler.report.table import table
from compiler.support.escape import one_line


def pass_table(stages: Sequence[Stage], sizes: Mapping[str, int]) -> str:
    """Return a table of the passes: ms, ops, kernels, bytes of temporaries, missed optimisations.

    The reasons of missed optimisations, and of applied ones that depend on measurements, follow.
    """
    first, last = stages[0], stages[-1]
    rows: list[tuple[str, ...]] = [("pass", "ms", "ops", "kernels", "temporaries", "missed")]
    written = (len(first.ops), first.kernels, size_text(evaluate(first.nbytes, sizes)))
    rows.append(("(as written)", "", *map(str, written), ""))
    rows += [_row(b.name, b.milliseconds, a, b, sizes) for a, b in pairwise(stages)]
    spent = sum(stage.milliseconds for stage in stages)
    rows.append((*_row("all", spent, first, last, sizes)[:-1], ""))
    lines = [line for stage in stages for line in (*applied_lines(stage), *missed_lines(stage))]
    wrapped = [fill(line, 96, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([table(rows), *wrapped])


def _row(
    name: str, spent: float, before: Stage, after: Stage, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    changes = (len(before.ops), len(after.ops)), (before.kernels, after.kernels)
    ops, merged = (f"{a} → {b}" if a != b else str(b) for a, b in changes)
    missed = str(len(after.missed) or "")
    return name, f"{spent:.1f}", ops, merged, size_text(evaluate(after.nbytes, sizes)), missed


def missed_lines(stage: Stage) -> list[str]:
    """Return a line per reason: the pass, the first op, the number of others, and the reason."""
    return _lines(f"{stage.name} not applied", stage.missed)


def applied_lines(stage: Stage) -> list[str]:
    """Return the same lines for the optimisations that were applied."""
    return _lines(f"{stage.name} applied", stage.applied)


def _lines(what: str, remarks: Sequence[RemarkNote]) -> list[str]:
    groups: dict[str, list[RemarkNote]] = {}
    for note in remarks:
        groups.setdefault(note.reason, []).append(note)
    return [one_line(_line(what, group)) for group in groups.values()]


def _line(what: str, group: Sequence[RemarkNote]) -> str:
    """Format a reason with the op it applies to.

    >>> _line("fuse not applied", [RemarkNote("y = relu(x)", "a.py:3", "too late")])
    'fuse not applied to relu (a.py:3): too late'
    """
    first = group[0]
    kind = first.op.partition(" = ")[2].partition("(")[0]
    where = f" ({first.source})" if first.source else ""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{what} to {kind}{where}{more}: {first.reason}"


def memory_table(rows: Mapping[str, MemoryUse]) -> str:
    """Return a table of bytes: temporaries, largest live set and arena, a row per program."""
    heads = ("", "temporaries", "largest live set", "arena", "arena ÷ live")
    cells: list[tuple[str, ...]] = [heads]
    for name, memory in rows.items():
        ratio = memory.arena / memory.largest if memory.largest else 1.0
        sizes = (memory.temporaries, memory.largest, memory.arena)
        cells.append((name, *map(size_text, sizes), f"{ratio:.3f}"))
    return table(cells)
