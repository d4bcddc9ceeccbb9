"""`fluid profile SCRIPT`: the time that each op took in all steps of a script."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from compiler.report.roofline import time_text
from compiler.report.table import count, table
from compiler.support.dataclass import dataclass
from fluid.cli.profiling.steps import rates, short
from fluid.cli.run import run_script
from fluid.profiler import recording
from runtime.profiler import Span, SpanRecorder

__all__ = ["Totals", "profile_script"]

LISTED = 40
"""The rows of the table."""


@dataclass
class Total:
    """All runs of a step: `first` is one of them, `spent` the nanoseconds of all."""

    first: Span
    calls: int = 0
    spent: int = 0
    flops: int = 0
    moved: int = 0

    def add(self, span: Span) -> None:
        """Add a run."""
        self.calls += 1
        self.spent += span.stop - span.start
        self.flops += span.flops
        self.moved += span.moved


class Totals:
    """Adds up the runs of each step: a long script takes no more memory than a short one."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, ...], Total] = {}

    def add(self, span: Span) -> None:
        """Add a span that has ended to its step."""
        self.steps.setdefault(span.ops, Total(span)).add(span)


def profile_script(script: Path, module: bool = False) -> int:
    """Run a script, or a module by name, then print its steps, longest first; returns the exit
    code of the script.
    """
    totals, start = Totals(), time.perf_counter()
    recorder = SpanRecorder(totals.add)
    try:
        with recording(recorder):
            return run_script(script, module=module)
    finally:
        sys.stdout.flush()
        seconds = time.perf_counter() - start
        print(f"\n{report(totals, recorder.passes, seconds)}", flush=True)


def report(totals: Totals, passes: Iterable[Span], seconds: float) -> str:
    """The table of steps, and their share of the `seconds` that the script took.

    `passes` are the times of the compiler's passes.
    """
    steps = sorted(totals.steps.values(), key=lambda total: -total.spent)
    if not steps:
        return f"no program was run in {time_text(seconds)}"
    whole = sum(step.spent for step in steps)
    rows = [_row(step, whole) for step in steps[:LISTED]]
    left = len(steps) - LISTED
    rows += [(f"and {left} shorter ones", *[""] * 8)] * (left > 0)
    heads = ("ops", "output", "line", "calls", "total ms", "µs each", "share", "GFLOP/s", "GB/s")
    compiling = sum(span.stop - span.start for span in passes)
    return "\n".join([
        table([heads, *rows], indent="", left=3),
        f"{count(len(steps), 'step')} took {time_text(whole / 1e9)} of {time_text(seconds)}; "
        f"passes of the compiler {time_text(compiling / 1e9)}",
    ])  # fmt: skip


def _row(step: Total, whole: int) -> tuple[str, ...]:
    first = step.first
    return (
        short(first.kinds), short(first.outputs), first.line, f"{step.calls:,}",
        f"{step.spent / 1e6:.2f}", f"{step.spent / step.calls / 1e3:.2f}",
        f"{100 * step.spent / max(whole, 1):.1f} %",
        *rates(first, step.flops, step.moved, step.spent),
    )  # fmt: skip
