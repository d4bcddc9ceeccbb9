"""What kernels move and compute, and the least time a GPU needs for it, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.account import Cost, Gpu
from compiler.ir.types import DType
from compiler.report.memory import size_text
from compiler.report.table import count, table

SHOWN = 12
"""Kernels listed by name: those that take longest."""


def roofline_table(costs: Sequence[Cost], gpu: Gpu, dtype: DType = DType.FP32) -> str:
    """Kernels by their least time on a GPU, and all of them together."""
    if not costs:
        return f"roofline {gpu.name}: no kernels"
    slowest = sorted(costs, key=lambda cost: -gpu.seconds(cost, dtype))[:SHOWN]
    whole = Cost(
        f"all {count(len(costs), 'kernel')}",
        sum(cost.read for cost in costs),
        sum(cost.written for cost in costs),
        sum(cost.operations for cost in costs),
    )
    seconds = sum(gpu.seconds(cost, dtype) for cost in costs)
    rows = [("kernel", "read", "written", "operations", "at least", "bound by")]
    rows += [_row(cost, gpu, dtype, gpu.seconds(cost, dtype)) for cost in slowest]
    left = len(costs) - len(slowest)
    rows += [(f"and {left} quicker ones", "", "", "", "", "")] * bool(left)
    rows.append((*_row(whole, gpu, dtype, seconds)[:-1], ""))
    return f"  roofline {gpu.name}, {dtype.numpy}\n{table(rows)}"


def _row(cost: Cost, gpu: Gpu, dtype: DType, seconds: float) -> tuple[str, ...]:
    moving = cost.moved / gpu.bandwidth >= cost.operations / gpu.operations[dtype]
    return (
        cost.kernel if len(cost.kernel) <= 40 else cost.kernel[:39] + "…",
        size_text(cost.read),
        size_text(cost.written),
        _scaled(cost.operations),
        f"{seconds * 1e6:.2f} µs",
        "memory" if moving else "arithmetic",
    )


def _scaled(number: int) -> str:
    """A count with a letter for thousands.

    >>> _scaled(2_500_000), _scaled(12)
    ('2.50 M', '12')
    """
    for factor, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= factor:
            return f"{number / factor:.2f} {letter}"
    return str(number)
