"""A compilation as tables of text: the passes, why something was declined, and the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from textwrap import fill

from compiler.escape import one_line
from compiler.ir.dims import evaluate
from compiler.record import Declined, Stage
from compiler.report.memory import Memory, size_text
from compiler.report.table import table


def pass_table(stages: Sequence[Stage], sizes: Mapping[str, int]) -> str:
    """Milliseconds, ops, kernels, bytes of temporaries after it, and missed of each pass.

    Below stands why something was refused.
    """
    first, last = stages[0], stages[-1]
    rows: list[tuple[str, ...]] = [("pass", "ms", "ops", "kernels", "temporaries", "refused")]
    written = (len(first.ops), first.kernels, size_text(evaluate(first.nbytes, sizes)))
    rows.append(("(as written)", "", *map(str, written), ""))
    rows += [_row(b.name, b.milliseconds, a, b, sizes) for a, b in pairwise(stages)]
    spent = sum(stage.milliseconds for stage in stages)
    rows.append((*_row("all", spent, first, last, sizes)[:-1], ""))
    lines = [line for stage in stages for line in refusal_lines(stage)]
    wrapped = [fill(line, 96, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([table(rows), *wrapped])


def _row(
    name: str, spent: float, before: Stage, after: Stage, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    changes = (len(before.ops), len(after.ops)), (before.kernels, after.kernels)
    ops, merged = (f"{a} → {b}" if a != b else str(b) for a, b in changes)
    refused = str(len(after.declined) or "")
    return name, f"{spent:.1f}", ops, merged, size_text(evaluate(after.nbytes, sizes)), refused


def refusal_lines(stage: Stage) -> list[str]:
    """A line for each reason: the pass, the first op it left as it was, how many more, and why."""
    groups: dict[str, list[Declined]] = {}
    for each in stage.declined:
        groups.setdefault(each.reason, []).append(each)
    return [one_line(_refused(stage.name, group)) for group in groups.values()]


def _refused(name: str, group: Sequence[Declined]) -> str:
    """A reason, with the op it was given for.

    >>> _refused("fuse", [Declined("y = relu(x)", "a.py:3", "too late")])
    'fuse declined relu (a.py:3): too late'
    """
    first = group[0]
    kind = first.op.partition(" = ")[2].partition("(")[0]
    where = f" ({first.source})" if first.source else ""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{name} declined {kind}{where}{more}: {first.reason}"


def memory_table(rows: Mapping[str, Memory]) -> str:
    """Bytes of temporaries, of the largest live set and of the arena, a row for each program."""
    heads = ("", "temporaries", "largest live set", "arena", "arena ÷ live")
    cells: list[tuple[str, ...]] = [heads]
    for name, memory in rows.items():
        ratio = memory.arena / memory.largest if memory.largest else 1.0
        sizes = (memory.temporaries, memory.largest, memory.arena)
        cells.append((name, *map(size_text, sizes), f"{ratio:.3f}"))
    return table(cells)
