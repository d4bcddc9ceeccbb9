"""`fluid inspect --counters`: what the kernels of a step fetch, beside the static account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.codegen.triton.target import launches
from compiler.debugging.explanation import Study
from compiler.plan import Step
from compiler.report.roofline import scaled
from compiler.report.table import table
from fluid.cli.profiling.native import random_array
from tools.ptx.counters import KernelCounters
from tools.ptx.step_counters import count_step

__all__ = ["Counted", "counter_table", "gpu_counters"]

SHOWN = 20
"""Number of kernels listed by name, those that fetch the most first."""

HEADS = ("kernel", "launches", "account", "ideal", "fetched", "memory", "passes", "diverge", "op")


@dataclass(frozen=True)
class Counted:
    """Counters of a kernel, the bytes of its launches by the static account, its op and line."""

    counters: KernelCounters
    account: int
    op: str
    source: str

    def data(self) -> dict[str, Any]:
        """Everything as plain values."""
        own = {"account": self.account, "op": self.op, "source": self.source}
        return {**self.counters.data(), **own}

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        counters = self.counters
        passes = f"{counters.banks.per_access:.2f}" if counters.banks.accesses else ""
        return (
            counters.kernel if len(counters.kernel) <= 40 else counters.kernel[:39] + "…",
            str(counters.launches),
            f"{scaled(self.account)}B",
            f"{scaled(counters.ideal)}B",
            f"{counters.fetched_ratio:.2f} ×",
            f"{counters.memory_ratio:.2f} ×",
            passes,
            f"{counters.divergence:.0%}",
            f"{self.op}  {self.source}".rstrip(),
        )


def gpu_counters(seen: Study) -> list[Counted]:
    """Run a step on random inputs on the PTX machine; kernels in the order of their launches.

    Raises CompileError if Triton is missing, and UnsupportedInstruction for PTX that the machine
    does not execute.
    """
    generator, module = np.random.default_rng(0), seen.module
    params = {param.name: random_array(seen, param, generator) for param in module.params}
    feeds = {feed.name: random_array(seen, feed, generator) for feed in module.feeds}
    counters = count_step(module, feeds, params).kernels
    steps = _steps(seen)
    moved = _moved(seen)
    return [
        Counted(kernel_counters, moved.get(name, 0), *_origin(steps.get(name)))
        for name, kernel_counters in counters.items()
    ]


def _steps(seen: Study) -> dict[str, Step]:
    """The first step that launches each kernel."""
    plan, first_steps = seen.compiled.plan, dict[str, Step]()
    by_index = {step.index: step for step in plan.steps}
    for index, sources in launches(plan).items():
        for source in sources:
            if index in by_index:
                first_steps.setdefault(source.name, by_index[index])
    return first_steps


def _moved(seen: Study) -> Mapping[str, int]:
    """The bytes that all launches of each kernel move by the static account."""
    moved_bytes = dict[str, int]()
    for cost in seen.accounts[-1].kernels:
        moved_bytes[cost.kernel] = moved_bytes.get(cost.kernel, 0) + cost.moved
    return moved_bytes


def _origin(step: Step | None) -> tuple[str, str]:
    """The first op of a step and its line."""
    return ("", "") if step is None else (step.ops[0].kind, step.ops[0].source)


def counter_table(counters: Sequence[Counted]) -> str:
    """The kernels that fetch the most, as text."""
    order = sorted(counters, key=lambda each: -(each.counters.fetched_ratio * each.counters.ideal))
    launched = sum(counter.counters.launches for counter in counters)
    rows = [HEADS, *(counter.cells() for counter in order[:SHOWN])]
    title = f"  counters of the PTX machine, sm_80; launches: {launched:,}"
    left = len(order) - SHOWN
    notes = [f"  and {left} that fetch less"] if left > 0 else []
    return "\n".join([title, table(rows), *notes])
