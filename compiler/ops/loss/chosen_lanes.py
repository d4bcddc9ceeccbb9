"""Kernels of scores that each row has with a few rows of weights, chosen by their numbers.

A score is a row of X times the weights of a number, and the bias of that number. Gradients of what
numbers choose are added up in any order.
"""

from __future__ import annotations

from compiler.ir.kernel import DeviceOperand, Lanes
from compiler.ops.lanes import copy, fill


def input_gradient(
    k: Lanes, slope: DeviceOperand, numbers: DeviceOperand, W: DeviceOperand, out: DeviceOperand
) -> None:
    """A kernel for the gradient of X, of `slope` and `numbers` [rows, scores a row]."""
    i, j = k.lanes(*out.shape)
    r = k.loop(slope.shape[1])
    k.store(out, (i, j), k.sum(slope[i, r] * W[numbers[i, r], j], r))


def bias_gradient(
    k: Lanes, slope: DeviceOperand, numbers: DeviceOperand, bias: DeviceOperand
) -> None:
    """Kernels that add the gradients of scores to those of the biases."""
    fill(k, bias, 0)
    i, place = k.lanes(*slope.shape)
    k.add(bias.seen_as((bias.type.numel,)), (numbers[i, place],), slope[i, place])


def weight_gradient(
    k: Lanes, slope: DeviceOperand, numbers: DeviceOperand, X: DeviceOperand,
    before: DeviceOperand | None, out: DeviceOperand, sparse: bool,
) -> None:  # fmt: skip
    """Kernels for the gradient of weights, or of each row's share in them if `sparse`.

    Dense ones are added to what was there `before`, if anything was.
    """
    if before is not None:
        copy(k, before, out)
    elif not sparse:
        fill(k, out, 0)
    i, place, j = k.lanes(*slope.shape, X.shape[1])
    value = slope[i, place] * X[i, j]
    if sparse:
        k.store(out.seen_as((*slope.shape, X.shape[1])), (i, place, j), value)
    else:
        k.add(out, (numbers[i, place], j), value)
