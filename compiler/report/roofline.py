"""Roofline tables: bytes and operations of kernels after each pass, and the minimum time on a
GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.cost.gpu_limits import HOST, Gpu
from compiler.cost.plan_cost import Cost, PlanCost, Side
from compiler.report.table import count, table
from compiler.support.dataclass import dataclass

SHOWN = 12
"""Number of kernels listed by name, slowest first."""


@dataclass(frozen=True)
class Roofline:
    """The cost of each stage of a compilation, in order and by name, and the GPU to compare with.

    `sizes` are the values of symbolic sizes.
    """

    gpu: Gpu
    passes: Sequence[tuple[str, PlanCost]]
    sizes: Mapping[str, int]

    @property
    def last(self) -> PlanCost:
        """The cost of the final plan."""
        return self.passes[-1][1]

    def __str__(self) -> str:
        """Return the passes, then the slowest kernels, as text."""
        sizes = "".join(f", {name} = {number}" for name, number in self.sizes.items())
        left = self.last.left_out
        notes = [f"  omitted, data-dependent sizes: {_names(left)}"] if left else []
        tables = [
            pass_table(self),
            f"  kernels, {self.gpu.name}",
            kernel_table(self.last, self.gpu),
        ]
        return "\n".join([f"  roofline {self.gpu.name}{sizes}", *tables, *notes])

    def data(self) -> dict[str, Any]:
        """Return the same as plain values for JSON: bytes, operations and seconds."""
        return {
            "gpu": self.gpu.name,
            "bandwidth": self.gpu.bandwidth,
            "link": self.gpu.link,
            "host": HOST,
            "rates": {dtype.numpy.name: rate for dtype, rate in self.gpu.operations.items()},
            "source": self.gpu.source,
            "sizes": dict(self.sizes),
            "passes": [_pass_data(name, pass_, self.gpu) for name, pass_ in self.passes],
            "kernels": [_kernel_data(cost, self.gpu) for cost in self.last.kernels],
            "left_out": list(self.last.left_out),
        }


def pass_table(roofline: Roofline) -> str:
    """Return launches, bytes, minimum bytes, operations and minimum time after each pass.

    A pass that changes none of them has no row.
    """
    gpu = roofline.gpu
    heads = ("after", "launches", "read", "written", "ideal", "of ideal", "operations", "min time")
    rows: list[tuple[str, ...]] = [heads]
    before: tuple[str, ...] = ()
    for name, pass_ in roofline.passes:
        row = _pass_row(pass_, gpu)
        if row != before:
            rows.append(("(as written)" if name == "start" else name, *row))
        before = row
    if any(pass_.of(Side.HOST) or pass_.of(Side.COPY) for _, pass_ in roofline.passes):
        rows += _other_rows(roofline.last, gpu)
    return table(rows)


def _pass_row(each: PlanCost, gpu: Gpu) -> tuple[str, ...]:
    total = each.total()
    share = f"{total.moved / each.least:.2f} ×" if each.least else ""
    seconds = sum(cost.seconds(gpu) for cost in each.of(Side.DEVICE))
    moved = (f"{scaled(bytes)}B" for bytes in (total.read, total.written, each.least))
    operations = total.operations + total.products
    return str(each.launches), *moved, share, scaled(operations), time_text(seconds)


def _other_rows(each: PlanCost, gpu: Gpu) -> list[tuple[str, ...]]:
    """Return the rows of copies over the link and of host steps."""
    rows: list[tuple[str, ...]] = []
    for side, name in ((Side.COPY, "copies"), (Side.HOST, "on the host")):
        costs, total = each.of(side), each.total(side)
        seconds = time_text(sum(cost.seconds(gpu) for cost in costs))
        moved = (f"{scaled(total.read)}B", f"{scaled(total.written)}B")
        rows += [(name, str(len(costs)), *moved, "", "", "", seconds)] if costs else []
    return rows


def kernel_table(each: PlanCost, gpu: Gpu) -> str:
    """Return the kernels by their minimum time on a GPU, and their total."""
    costs = each.kernels
    if not costs:
        return "  no kernels"
    slowest = sorted(costs, key=lambda cost: -cost.seconds(gpu))[:SHOWN]
    rows = [("kernel", "read", "written", "operations", "min time", "bound by")]
    rows += [_row(cost, gpu) for cost in slowest]
    left = len(costs) - len(slowest)
    rows += [(f"and {left} faster ones", "", "", "", "", "")] * bool(left)
    read, written = (sum(getattr(c, side) for c in costs) for side in ("read", "written"))
    operations = sum(cost.operations + cost.products for cost in costs)
    whole = f"{scaled(read)}B", f"{scaled(written)}B", scaled(operations)
    rows.append((f"all {count(len(costs), 'kernel')}", *whole, time_text(each.seconds(gpu)), ""))
    return table(rows)


def _row(cost: Cost, gpu: Gpu) -> tuple[str, ...]:
    return (
        cost.kernel if len(cost.kernel) <= 40 else cost.kernel[:39] + "…",
        f"{scaled(cost.read)}B",
        f"{scaled(cost.written)}B",
        scaled(cost.operations + cost.products),
        time_text(cost.seconds(gpu)),
        bound(cost, gpu),
    )


def bound(cost: Cost, gpu: Gpu) -> str:
    """Return what bounds a kernel: memory, arithmetic, the link, or the host."""
    if cost.side is not Side.DEVICE:
        return "link" if cost.side is Side.COPY else "host"
    return "memory" if cost.memory_seconds(gpu) >= cost.compute_seconds(gpu) else "arithmetic"


def _pass_data(name: str, each: PlanCost, gpu: Gpu) -> dict[str, Any]:
    total, copies, host = (each.total(side) for side in Side)
    return {
        "pass": name,
        "launches": each.launches,
        "read": total.read,
        "written": total.written,
        "ideal": each.least,
        "operations": total.operations + total.products,
        "copies": len(each.of(Side.COPY)),
        "copied": copies.read,
        "host_steps": len(each.of(Side.HOST)),
        "host_moved": host.moved,
        "seconds": each.seconds(gpu),
    }


def _kernel_data(cost: Cost, gpu: Gpu) -> dict[str, Any]:
    return {
        "kernel": cost.kernel,
        "side": cost.side.value,
        "read": cost.read,
        "written": cost.written,
        "operations": cost.operations + cost.products,
        "seconds": cost.seconds(gpu),
        "bound": bound(cost, gpu),
    }


def _names(kinds: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(kinds))


def time_text(seconds: float) -> str:
    """Format a time with a unit.

    >>> time_text(0.0123), time_text(2e-6), time_text(3e-10)
    ('12.30 ms', '2.00 µs', '0.30 ns')
    """
    for unit, name in ((1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.2f} {name}"
    return f"{seconds * 1e9:.2f} ns"


def scaled(number: int) -> str:
    """Format a count with an SI prefix.

    >>> scaled(2_500_000), scaled(12)
    ('2.50 M', '12 ')
    """
    for factor, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= factor:
            return f"{number / factor:.2f} {letter}"
    return f"{number} "
