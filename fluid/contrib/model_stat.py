"""A table of a program's larger ops: shapes, parameters and flops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import cast

from compiler.support.dataclass import dataclass
from fluid.contrib.arguments import expect_program
from fluid.framework import Block, Operator, Program
from fluid.recording.variable import Variable

__all__ = ["summary"]

COLUMNS = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")
NOTICE = (
    "Counted: conv2d, depthwise_conv2d, mul, batch_norm, pool2d, sigmoid, tanh, relu, leaky_relu, "
    "prelu. `fluid inspect --roofline` counts every op, with its bytes."
)


@dataclass(frozen=True)
class OpCounts:
    """An op's shapes without the batch axis, its parameter count and its flops per sample."""

    kind: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    params: int
    flops: int

    def cells(self, number: int) -> list[str]:
        """Return the row of the table."""
        return [
            str(x) for x in (number, self.kind, self.input, self.output, self.params, self.flops)
        ]


def summary(main_prog: Program) -> None:
    """Print a row per convolution, product, pooling, norm and activation, and the totals.

    Counts are those of 1.8.5: a product counts k·n, a convolution two per weight and output pixel,
    and of `mul` only layers called `fc` are counted. Raises TypeError for anything but a Program.
    """
    expect_program(main_prog, "summary")
    rows = [row for block in main_prog.blocks for op in block.ops if (row := _count(op))]
    print("\n".join(_table([op_row.cells(i) for i, op_row in enumerate(rows)])))
    params, flops = sum(op_row.params for op_row in rows), sum(op_row.flops for op_row in rows)
    print(f"Total PARAMs: {params}({params / 1e6:.4f}M)")
    print(f"Total FLOPs: {flops}({flops / 1e9:.2f}G)")
    print(NOTICE)


def _count(op: Operator) -> OpCounts | None:
    """Return the counts of an op, or None if it is not counted."""
    entry = _KINDS.get(op.type)
    if entry is None or (op.type == "mul" and "fc" not in op.output("Out")[0]):
        return None
    source, result, count = entry
    x, y = _var(op, op.input(source)[0]), _var(op, op.output(result)[0])
    params, flops = count(op, x.shape, y.shape)
    return OpCounts(op.type, x.shape[1:], y.shape[1:], params, abs(flops))


def _var(op: Operator, name: str) -> Variable:
    return cast(Block, op.block).var_recursive(name)


Sizes = Sequence[int]
Count = Callable[[Operator, Sizes, Sizes], tuple[int, int]]


def _convolution(op: Operator, x: Sizes, y: Sizes) -> tuple[int, int]:
    rows, *window = _var(op, op.input("Filter")[0]).shape
    multiplications = prod(window) + bool(op.input("Bias"))
    return rows * multiplications, 2 * y[2] * y[3] * rows * multiplications


def _pooling(op: Operator, x: Sizes, y: Sizes) -> tuple[int, int]:
    return 0, prod(y[1:]) * prod(op.attr("ksize"))


def _product(op: Operator, x: Sizes, y: Sizes) -> tuple[int, int]:
    size = prod(_var(op, op.input("Y")[0]).shape)
    return size + 1, size


def _norm(op: Operator, x: Sizes, y: Sizes) -> tuple[int, int]:
    return 2 * x[1], 2 * prod(x[1:])


def _activation(op: Operator, x: Sizes, y: Sizes) -> tuple[int, int]:
    return int(op.type == "prelu"), prod(x)


_KINDS: dict[str, tuple[str, str, Count]] = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d"), ("Input", "Output", _convolution)),
    **dict.fromkeys(("sigmoid", "tanh", "relu", "leaky_relu", "prelu"), ("X", "Out", _activation)),
    "pool2d": ("X", "Out", _pooling),
    "mul": ("X", "Out", _product),
    "batch_norm": ("X", "Y", _norm),
}


def _table(rows: list[list[str]]) -> list[str]:
    """Format rows as lines of a right-aligned table."""
    lines = [list(COLUMNS), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    texts = [
        "|".join(["", *(f" {c:>{w}} " for c, w in zip(line, widths, strict=True)), ""])
        for line in lines
    ]
    return [rule, texts[0], rule, *texts[1:], rule]
