"""Report on native code: steps with their kernels, cost and times, against limits of the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from compiler.cost.native_steps import NativeStep
from compiler.report.memory import size_text
from compiler.report.roofline import scaled, time_text
from compiler.report.roofline_chart import Point, roofline_chart
from compiler.report.table import count, table
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line

SHOWN = 30
"""Number of steps listed in text, longest first."""
WIDEST = 40
"""Most characters of the ops of a row."""


@dataclass(frozen=True)
class CpuLimits:
    """What a CPU was measured to reach with `threads` threads.

    `flops` are operations of float32 multiply-adds per second; `bandwidths` the bytes per second
    that copies read and write, by the bytes of what is copied, in ascending order.
    """

    threads: int
    flops: float
    bandwidths: Mapping[int, float]

    def bandwidth(self, moved: int) -> float:
        """The bandwidth for so many bytes: on lines between the measured points, in logarithms."""
        log_sizes = [math.log(size) for size in self.bandwidths]
        rates = [math.log(rate) for rate in self.bandwidths.values()]
        return math.exp(float(np.interp(math.log(max(1, moved)), log_sizes, rates)))

    def seconds(self, flops: int, moved: int) -> float:
        """The least time for operations and bytes: of those two, the longer."""
        return max(flops / self.flops, moved / self.bandwidth(moved))


@dataclass(frozen=True)
class NativeReport:
    """A native plan on the CPUs that `machine` names.

    `kernels` is the LLVM IR of each kernel, `assembly` its assembly, if it was asked for; `limits`
    are known if times were measured.
    """

    machine: str
    steps: Sequence[NativeStep]
    kernels: Mapping[str, str]
    assembly: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: CpuLimits | None = None

    def data(self) -> dict[str, Any]:
        """Return the same as plain values for the page."""
        names = dict.fromkeys(name for step in self.steps for name in step.kernels)
        return {
            "machine": self.machine,
            "kernels": {name: [self.kernels[name], self.assembly.get(name, "")] for name in names},
            "steps": [
                [list(step.kernels), step.flops, step.moved, step.reason, step.seconds,
                 self.share(step)]
                for step in self.steps
            ],
            "chart": self.chart() if self.limits else "",
        }  # fmt: skip

    def share(self, step: NativeStep) -> float | None:
        """The least time of a step ÷ the measured one; None if either is unknown."""
        if self.limits is None or not step.seconds or not step.kernels:
            return None
        return self.limits.seconds(step.flops, step.moved) / step.seconds

    def chart(self) -> str:
        """The measured steps below the roofline, as SVG. Requires limits."""
        assert self.limits is not None
        points = [
            Point(step.kinds, step.intensity, step.flops / step.seconds / 1e9, step.seconds)
            for step in self.steps
            if step.flops and step.moved and step.seconds
        ]
        title = f"{self.machine}, {count(self.limits.threads, 'thread')}"
        slopes = {size_text(n): rate / 1e9 for n, rate in self.limits.bandwidths.items()}
        return roofline_chart(title, self.limits.flops / 1e9, slopes, points)

    def __str__(self) -> str:
        """Return the steps, longest first, and the ops in NumPy with the reason, as text."""
        lines = [_limits_text(self)]
        native = [step for step in self.steps if step.kernels]
        lines += [self._table(native)] if native else []
        lines += [
            one_line(f"  in NumPy: {step.kinds}{f' ({step.source})' * bool(step.source)}: "
                     f"{step.reason}")
            for step in self.steps if step.reason
        ]  # fmt: skip
        return "\n".join(lines)

    def _table(self, native: Sequence[NativeStep]) -> str:
        longest = sorted(native, key=lambda each: -(each.seconds or each.moved))
        heads = (
            "ops",
            "line",
            "flops",
            "bytes",
            "flops/byte",
            "time",
            "GFLOP/s",
            "GB/s",
            "of roof",
        )
        rows = [heads, *(self._row(step) for step in longest[:SHOWN])]
        left = len(longest) - SHOWN
        rows += [(f"and {left} more", *[""] * 8)] * (left > 0)
        cut = len(heads) if self.limits else 5
        skipped = () if any(step.source for step in longest) else (1,)
        return table(
            [[text for at, text in enumerate(row[:cut]) if at not in skipped] for row in rows],
            left=2 - len(skipped),
        )

    def _row(self, step: NativeStep) -> tuple[str, ...]:
        name = step.kinds if len(step.kinds) <= WIDEST else step.kinds[: WIDEST - 1] + "…"
        cost = scaled(step.flops), f"{scaled(step.moved)}B", f"{step.intensity:.2f}"
        if not step.seconds:
            return name, step.source, *cost, "", "", "", ""
        rates = (f"{amount / step.seconds / 1e9:.1f}" for amount in (step.flops, step.moved))
        share = self.share(step)
        roof = "" if share is None else f"{100 * share:.0f} %"
        return name, step.source, *cost, time_text(step.seconds), *rates, roof


def _limits_text(report: NativeReport) -> str:
    text = f"  native code for CPUs with {report.machine}"
    if report.limits is None:
        return text
    limits = report.limits
    slopes = (f"{rate / 1e9:.0f} GB/s in {size_text(n)}" for n, rate in limits.bandwidths.items())
    reached = ", ".join([f"{limits.flops / 1e9:.0f} GFLOP/s", *slopes])
    return f"{text}; this one reaches, with {count(limits.threads, 'thread')},\n  {reached}"
