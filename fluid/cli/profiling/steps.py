"""The table of `fluid infer --profile`: the time of each op of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from compiler.report.table import count, table
from fluid.profiler import recording
from runtime.profiler import Span

__all__ = ["profiled", "rates", "short"]

WARM_UPS, RUNS, PATIENCE, LISTED = 2, 50, 1.0, 40
"""Runs before times are kept, the most that are kept, the seconds after which no more begin, and
the rows of the table."""
WIDEST = 40
"""Most characters of the ops and of the outputs of a row."""


def profiled(run: Callable[[], object]) -> str:
    """Run repeatedly; return a table with the median time of each step, the longest first.

    Ops that run together are one step. Those of native code have their rates; others run in NumPy.
    """
    with recording() as recorded:
        for _ in range(WARM_UPS):
            run()
        recorded.clear()
        until, runs = time.perf_counter() + PATIENCE, 0
        while runs < RUNS and (not runs or time.perf_counter() < until):
            run()
            runs += 1
        spans = recorded.spans
    return steps_table(spans, runs)


def steps_table(spans: Sequence[Span], runs: int) -> str:
    """A row for each step: its ops, output, line, calls in a run, median time and share.

    The share is calls × median time ÷ the sum of these products, so a run that another process
    disturbed changes no column.
    """
    steps: dict[tuple[str, ...], list[Span]] = {}
    for span in spans:
        steps.setdefault(span.ops, []).append(span)
    longest = sorted(steps.values(), key=lambda each: -len(each) * _median(each))
    whole = max(sum(len(durations) * _median(durations) for durations in longest), 1)
    rows = [_row(durations, runs, whole) for durations in longest[:LISTED]]
    left = len(longest) - LISTED
    rows += [(f"and {left} shorter ones", *[""] * 7)] * (left > 0)
    heads = ("ops", "output", "line", "calls", "µs each", "share", "GFLOP/s", "GB/s")
    total = f"median of {count(runs, 'run')}; all steps take {whole / runs / 1e6:.3f} ms a run"
    return f"{table([heads, *rows], indent='', left=3)}\n{total}"


def _median(spans: Sequence[Span]) -> float:
    """The median nanoseconds of a call."""
    return float(np.median([span.stop - span.start for span in spans]))


def _row(spans: Sequence[Span], runs: int, whole: float) -> tuple[str, ...]:
    spent, first = _median(spans), spans[0]
    share = f"{100 * len(spans) * spent / whole:.1f} %"
    calls = f"{len(spans) / runs:g}"
    return (
        short(first.kinds),
        short(first.outputs),
        first.line,
        calls,
        f"{spent / 1e3:.2f}",
        share,
        *rates(first, first.flops, first.moved, spent),
    )


def rates(step: Span, flops: int, moved: int, spent: float) -> tuple[str, str]:
    """The last two columns of a step that took `spent` nanoseconds: GFLOP/s and GB/s."""
    if not (flops or moved):
        return ("unknown work" if step.native else "in NumPy", "")
    return (f"{flops / max(spent, 1):.1f}", f"{moved / max(spent, 1):.1f}")


def short(text: str) -> str:
    """Cut a text to the width of a column."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
