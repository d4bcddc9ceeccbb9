"""Kernels of scores that each row has with a few rows of weights, chosen by their numbers.

A score is a row of X times the weights of a number, and the bias of that number. Gradients of what
numbers choose are added up in any order, unless everything is to be done in one order.
"""

from __future__ import annotations

from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder
from compiler.ops.shared_kernels import add_rows, copy, fill


def input_gradient(
    k: KernelBuilder,
    slope: DeviceOperand,
    numbers: DeviceOperand,
    W: DeviceOperand,
    out: DeviceOperand,
) -> None:
    """A kernel for the gradient of X, of `slope` and `numbers` [rows, scores a row]."""
    i, j = k.grid(*out.shape)
    r = k.loop(slope.shape[1])
    k.store(out, (i, j), k.sum(slope[i, r] * W[numbers[i, r], j], r))


def bias_gradient(
    k: KernelBuilder, slope: DeviceOperand, numbers: DeviceOperand, bias: DeviceOperand
) -> None:
    """Kernels that add the gradients of scores to those of the biases."""
    fill(k, bias, 0)
    count = (slope.type.numel,)
    add_rows(k, slope.reshaped(count), numbers.reshaped(count), bias.reshaped((bias.type.numel,)))


def weight_gradient(
    k: KernelBuilder, slope: DeviceOperand, numbers: DeviceOperand, X: DeviceOperand,
    before: DeviceOperand | None, out: DeviceOperand, sparse: bool,
) -> None:  # fmt: skip
    """Kernels for the gradient of weights, or of each row's share in them if `sparse`.

    Dense ones are added to what was there `before`, if anything was.
    """
    if before is not None:
        copy(k, before, out)
    elif not sparse:
        fill(k, out, 0)
    shape, count = (*slope.shape, X.shape[1]), slope.type.numel
    shares = out.reshaped(shape) if sparse else None
    if k.in_order and not sparse:
        shares = k.scratch(shape, out.type.dtype)
    i, place, j = k.grid(*shape)
    value = slope[i, place] * X[i, j]
    if shares is None:
        k.add(out, (numbers[i, place], j), value)
    else:
        k.store(shares, (i, place, j), value)
    if shares is not None and not sparse:
        add_rows(k, shares.reshaped((count, shape[2])), numbers.reshaped((count,)), out)
