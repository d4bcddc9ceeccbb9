"""Cross entropy kernels: labels looked up in rows of probabilities or logits.

A label that is neither a class nor `ignore_index` makes its loss NaN and has a zero gradient:
kernels cannot raise the host's error.
"""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import Shape
from compiler.ops.shared_kernels import inside

MAX_LOSS = 1e20
"""Loss of a zero probability."""


def row_table(X: Shape) -> tuple[Size, Size]:
    """Return a shape as (rows, classes)."""
    return product(X[:-1]), X[-1]


def negative_log(k: KernelBuilder, share: Number) -> Number:
    """Return -log of a probability, at most MAX_LOSS."""
    return k.minimum(-k.log(share), MAX_LOSS)


def label_loss(k: KernelBuilder, loss: Number, label: Number, known: Number, ignore: int) -> Number:
    """Select the loss for a valid label, 0 for an ignored one, else NaN."""
    return k.where(k.equal(label, ignore), 0.0, k.where(known, loss, float("nan")))


def known_label(k: KernelBuilder, label: Number, classes: Size, ignore: int) -> Number:
    """Return whether a label is a class and not ignored."""
    return inside(k, label, classes) & k.not_equal(label, ignore)


def hard_label_loss(
    k: KernelBuilder, X: DeviceOperand, Label: DeviceOperand, ignore: int,
    Y: DeviceOperand | None, MatchX: DeviceOperand | None = None,
) -> None:  # fmt: skip
    """Emit a kernel for Y = -log(X[Label]), and MatchX = X[Label] if present."""
    rows, classes = row_table(X.shape)
    (i,) = k.grid(rows)
    label = Label.reshaped((rows,))[i]
    is_valid = known_label(k, label, classes, ignore)
    picked = X.reshaped((rows, classes)).at(i, label, where=is_valid, other=0)
    if Y is not None:
        loss = label_loss(k, negative_log(k, picked), label, is_valid, ignore)
        k.store(Y.reshaped((rows,)), (i,), loss)
    if MatchX is not None:
        k.store(MatchX.reshaped((rows,)), (i,), picked)


def hard_label_gradient(
    k: KernelBuilder, picked: DeviceOperand, Label: DeviceOperand, d_Y: DeviceOperand,
    d_X: DeviceOperand, ignore: int,
) -> None:  # fmt: skip
    """Emit a kernel for the gradient of X; `picked` is X itself, or X[Label]."""
    rows, classes = row_table(d_X.shape)
    i, c = k.grid(rows, classes)
    label = Label.reshaped((rows,))[i]
    own = k.equal(label, c) & k.not_equal(label, ignore)
    whole = picked.type.rank == d_X.type.rank and picked.shape == d_X.shape
    table = picked.reshaped((rows, classes) if whole else (rows, 1))
    share = table.at(i, c if whole else 0, where=own, other=1)
    # A GPU has fewer registers in use for it, and a CPU loads one number for all of a row.
    upstream = d_Y.reshaped((rows,)).at(i, where=own if k.on_gpu else None, other=0)
    k.store(d_X.reshaped((rows, classes)), (i, c), k.where(own, -upstream / share, 0))


def soft_label_loss(
    k: KernelBuilder, X: DeviceOperand, Label: DeviceOperand, Y: DeviceOperand
) -> None:
    """Emit a kernel for Y = -sum(Label * log(X)) along the last axis."""
    table = row_table(X.shape)
    (i,) = k.grid(table[0])
    r = k.loop(table[1])
    term = Label.reshaped(table)[i, r] * negative_log(k, X.reshaped(table)[i, r])
    k.store(Y.reshaped((table[0],)), (i,), k.sum(term, r))


def soft_label_gradient(
    k: KernelBuilder, X: DeviceOperand, Label: DeviceOperand, d_Y: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit a kernel for the gradient of X for soft labels."""
    rows, classes = row_table(X.shape)
    i, c = k.grid(rows, classes)
    label, x = (operand.reshaped((rows, classes))[i, c] for operand in (Label, X))
    k.store(d_X.reshaped((rows, classes)), (i, c), -label * d_Y.reshaped((rows,))[i] / x)


def softmax_loss(
    k: KernelBuilder, logits: DeviceOperand, Label: DeviceOperand, ignore: int | None,
    Softmax: DeviceOperand | None, Loss: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit a kernel for softmax along the middle of three axes, and its cross entropy.

    `ignore` None means soft labels in the shape of the logits.
    """
    rows, classes, within = logits.shape
    i, j = k.grid(rows, within)
    r = k.loop(classes)
    row_max = k.max(logits[i, r, j], r)
    shifted = k.maximum(logits[i, r, j] - row_max, -64.0)
    total = k.sum(k.exp(shifted), r)
    if Softmax is not None:
        k.store(Softmax.reshaped(logits.shape), (i, r, j), k.exp(shifted) / total)
    if Loss is None:
        return
    if ignore is None:
        loss = k.sum(Label.reshaped(logits.shape)[i, r, j] * (k.log(total) - shifted), r)
    else:
        label = Label.reshaped((rows, within))[i, j]
        is_valid = known_label(k, label, classes, ignore)
        picked = k.maximum(logits.at(i, label, j, where=is_valid, other=0) - row_max, -64.0)
        loss = label_loss(k, k.log(total) - picked, label, is_valid, ignore)
    k.store(Loss.reshaped((rows, within)), (i, j), loss)


def softmax_loss_gradient(
    k: KernelBuilder, softmax: DeviceOperand, Label: DeviceOperand, ignore: int | None,
    d_Loss: DeviceOperand, d_Logits: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for the gradient of the logits, along the middle of three axes."""
    rows, classes, within = softmax.shape
    i, c, j = k.grid(rows, classes, within)
    upstream, share = d_Loss.reshaped((rows, within))[i, j], softmax[i, c, j]
    if ignore is None:
        slope = (share - Label.reshaped(softmax.shape)[i, c, j]) * upstream
    else:
        label = Label.reshaped((rows, within))[i, j]
        all_but_own = share * upstream - k.where(k.equal(label, c), upstream, 0)
        slope = k.where(k.not_equal(label, ignore), all_but_own, 0)
    k.store(d_Logits.reshaped(softmax.shape), (i, c, j), slope)
