"""Kernels for scores of rows against a few weight rows selected by index.

A score is the product of a row of X and the weight row of an index, plus its bias. Gradients of
weights are accumulated in nondeterministic order, unless a deterministic order is requested.
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
    """Emit a kernel for the gradient of X, from `slope` and `numbers` [rows, scores per row]."""
    i, j = k.grid(*out.shape)
    r = k.loop(slope.shape[1])
    k.store(out, (i, j), k.sum(slope[i, r] * W[numbers[i, r], j], r))


def bias_gradient(
    k: KernelBuilder, slope: DeviceOperand, numbers: DeviceOperand, bias: DeviceOperand
) -> None:
    """Emit kernels that accumulate the gradients of scores into those of the biases."""
    fill(k, bias, 0)
    count = (slope.type.numel,)
    add_rows(k, slope.reshaped(count), numbers.reshaped(count), bias.reshaped((bias.type.numel,)))


def weight_gradient(
    k: KernelBuilder, slope: DeviceOperand, numbers: DeviceOperand, X: DeviceOperand,
    before: DeviceOperand | None, out: DeviceOperand, sparse: bool,
) -> None:  # fmt: skip
    """Emit kernels for the gradient of the weights, or its sparse values if `sparse`.

    A dense gradient is added to `before`, if present.
    """
    if before is not None:
        copy(k, before, out)
    elif not sparse:
        fill(k, out, 0)
    shape, count = (*slope.shape, X.shape[1]), slope.type.numel
    shares = out.reshaped(shape) if sparse else None
    if k.in_order and not sparse:
        shares = k.scratch(shape, out.type.dtype)
    i, position, j = k.grid(*shape)
    value = slope[i, position] * X[i, j]
    if shares is None:
        k.add(out, (numbers[i, position], j), value)
    else:
        k.store(shares, (i, position, j), value)
    if shares is not None and not sparse:
        add_rows(k, shares.reshaped((count, shape[2])), numbers.reshaped((count,)), out)
