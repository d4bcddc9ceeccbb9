"""The cost of a kernel of loops: arithmetic operations, and bytes read and written once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.loops.body import Axes, Body
from compiler.codegen.trace import ELEMENTWISE, Expr
from compiler.ir.dims import Size, product


def operation_count(body: Body) -> Size:
    """The operations of a kernel: each happens once for all values of the axes it depends on."""
    counts = Counter[Axes]()
    for part in body.parts:
        if part.fn in ELEMENTWISE or part.fn in ("where", "reduce", "scan"):
            inner = part.args[0] if part.fn == "reduce" else part
            counts[body.axes(inner) if isinstance(inner, Expr) else frozenset()] += 1
    total: Size = 0
    for axes, count in counts.items():
        total = total + product([axis.size for axis in axes]) * count
    return total


def byte_count(operands: Iterable[NumpyOperand]) -> Size:
    """The bytes of operands."""
    total: Size = 0
    for operand in operands:
        total = total + operand.type.numel * operand.type.dtype.itemsize
    return total
