"""Cross entropy of class probabilities, and label lookup.

Generated code looks up labels by flat index, `row * classes + label`, so that a whole batch is one
`take`. Labels are user data: all are checked in every step, by a single maximum.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss import cross_entropy_kernels as cross_entropy_kernels
from compiler.ops.type_checks import (
    differ,
    numeric,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    shown,
)


def locate_labels(
    labels: Array,
    starts: Array,
    classes: int,
    stride: int,
    ignore: int,
    index: Array,
    counted: Array,
) -> None:
    """Set index to starts + labels * stride, 0 for ignored labels; counted to a mask of the others.

    Generated modules copy this function.
    Raises ValueError for a label that is neither a class nor `ignore`.
    """
    counted.fill(True)
    expect_labels(labels, classes, ignore)
    if 0 <= ignore < classes or labels.view(np.uint64).max(initial=0) >= classes:
        np.not_equal(labels, ignore, out=counted)
        labels = np.where(counted, labels, 0)
    np.add(labels if stride == 1 else labels * stride, starts, out=index)


def expect_labels(labels: Array, classes: int, ignore: int) -> None:
    """Raise ValueError for a label, int64, that is neither a class nor `ignore`.

    Labels are viewed as unsigned to detect negative ones too.
    """
    if labels.view(np.uint64).max(initial=0) < classes:
        return
    wrong = (labels != ignore) & ((labels < 0) | (labels >= classes))
    if wrong.any():
        raise ValueError(
            f"label {labels[wrong][0]} in row {int(wrong.argmax())} is not a class: "
            f"expected 0 to {classes - 1}, or {ignore} to ignore the row"
        )


def check_labels(k: SourceBuilder, labels: Operand, classes: Size, ignore: int) -> None:
    """Write the check of labels by `expect_labels`."""
    k.line(f"{k.function(expect_labels)}({labels}, {classes}, {ignore})")


def known_labels(labels: Array, classes: int, ignore: int) -> tuple[Array, Array]:
    """Return labels, 0 if ignored, and the mask of the others; raise ValueError if out of range."""
    safe_labels, counted = np.empty_like(labels), np.empty(labels.shape, np.bool_)
    locate_labels(labels, np.zeros(1, np.int64), classes, 1, ignore, safe_labels, counted)
    return safe_labels, counted


def require_label_a_row(op: str, X: TensorType, Label: TensorType) -> None:
    """Raise ShapeError unless Label has a class per row of X; a last axis of 1 is optional."""
    require_dtype(op, "Label", Label, DType.INT64)
    sizes = zip(Label.shape, (*X.shape[:-1], 1), strict=False)
    if X.rank - Label.rank not in (0, 1) or any(differ(a, b) for a, b in sizes):
        raise ShapeError(f"{op}: {shown(X=X, Label=Label)}, expected a label per row")


def losses_of_rows(X: TensorType, Label: TensorType) -> TensorType:
    """The type of a loss per row of X, with a last axis of 1 if Label has it.

    The number of rows is X's, whose LoD the loss shares: Label's may be another symbol.
    """
    return X.with_shape((*X.shape[:-1], 1)[: Label.rank])


def lower_labels(
    k: SourceBuilder, labels: Operand, table: Shape, ignore: int | str
) -> tuple[Operand, Operand]:
    """Emit the lookup of labels in a table of rows, classes and optionally an inner axis.

    `ignore` may be an expression. Returns flat indices (int64) and the mask of labels not ignored
    (bool), one per label.
    """
    rows, classes, stride = table[0], table[1], product(table[2:])
    index = k.scratch((rows * stride,), DType.INT64)
    counted = k.scratch((rows * stride,), DType.BOOL)
    starts = f"np.arange({rows}) * {product(table[1:])}"
    if stride != 1:
        starts = f"np.add.outer({starts}, np.arange({stride})).reshape(-1)"
    operands = f"{labels.view(index.shape)}, {k.at_bind(starts, [], 'starts')}"
    arguments = f"{classes}, {stride}, {ignore}, {index}, {counted}"
    k.line(f"{k.function(locate_labels)}({operands}, {arguments})")
    return index, counted


def pick_probabilities(X: Array, Label: Array, ignore: int) -> tuple[Array, Array, Array]:
    """Return labels [..., 1], 0 if ignored; the mask of the others; X at the labels."""
    safe_labels, counted = known_labels(Label.reshape(*X.shape[:-1], 1), X.shape[-1], ignore)
    return safe_labels, counted, np.take_along_axis(X, safe_labels, axis=-1)


def negative_logs(shares: Array) -> Array:
    """Return -log of probabilities; 1e20 for zero."""
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(shares), shares.dtype.type(1e20))


class CrossEntropy(OpDef, op="cross_entropy"):
    """Y = -log(X[Label]) for probabilities X along the last axis, as in `cross_entropy2`.

    With `soft_label`, Label holds probabilities in the shape of X, and Y = -sum(Label * log(X)).
    Reference: cross_entropy_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()
    soft_label = attr(False)
    ignore_index = attr(-100)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Label = s.X, s.Label
        if not self.soft_label:
            require_label_a_row(self.kind, X, Label)
            return losses_of_rows(X, Label)
        require_same_dtype(self.kind, X=X, Label=Label)
        require_same_shape(self.kind, X=X, Label=Label)
        return X.with_shape((*X.shape[:-1], 1))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array, Label: Array) -> Array:
        if self.soft_label:
            return (Label * negative_logs(X)).sum(-1, keepdims=True)
        _, counted, picked = pick_probabilities(X, Label, self.ignore_index)
        return np.where(counted, negative_logs(picked), X.dtype.type(0)).reshape(Label.shape)

    def grad(self, X: Array, Label: Array, d_Y: Array) -> dict[str, Array]:
        share = -d_Y.reshape(*X.shape[:-1], 1)
        with np.errstate(divide="ignore"):
            if self.soft_label:
                return {"X": Label * share / X}
            safe_labels, counted, picked = pick_probabilities(X, Label, self.ignore_index)
            d_X = np.zeros_like(X)
            np.put_along_axis(d_X, safe_labels, np.where(counted, share / picked, 0), axis=-1)
        return {"X": d_X}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        if not self.soft_label:
            check_labels(k, s.Label, s.X.shape[-1], self.ignore_index)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        if self.soft_label:
            cross_entropy_kernels.soft_label_loss(k, s.X, s.Label, s.Y)
        else:
            cross_entropy_kernels.hard_label_loss(k, s.X, s.Label, self.ignore_index, s.Y)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        if self.soft_label:
            cross_entropy_kernels.soft_label_gradient(k, s.X, s.Label, s.d_Y, s.d_X)
        else:
            cross_entropy_kernels.hard_label_gradient(
                k, s.X, s.Label, s.d_Y, s.d_X, self.ignore_index
            )


class CrossEntropy2(OpDef, op="cross_entropy2", grad_op="cross_entropy_grad2"):
    """Y = -log(X[Label]) for probabilities X along the last axis; MatchX = X[Label].

    Rows with label `ignore_index` have loss 0. XShape passes X's shape to the gradient and has no
    data. Label may have a last axis of size 1. Reference: cross_entropy_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()
    XShape = writes(shares_level=True)
    MatchX = writes(shares_lod=False)
    ignore_index = attr(-100)
    x_shape_axis = -1

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_label_a_row(self.kind, X, s.Label)
        rows = (*X.shape[:-1], 1)
        shapes = X.with_shape((*X.shape, 0))
        return {"Y": losses_of_rows(X, s.Label), "XShape": shapes, "MatchX": X.with_shape(rows)}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.XShape.with_shape(s.XShape.shape[:-1])}

    def numpy(self, X: Array, Label: Array) -> dict[str, Array]:
        _, counted, picked = pick_probabilities(X, Label, self.ignore_index)
        loss = np.where(counted, negative_logs(picked), X.dtype.type(0)).reshape(Label.shape)
        shape = np.empty((*X.shape, 0), X.dtype)
        return {"Y": loss, "XShape": shape, "MatchX": picked * counted}

    def grad(self, Label: Array, MatchX: Array, XShape: Shape, d_Y: Array) -> dict[str, Array]:
        d_X = np.zeros(numeric(XShape[:-1]), d_Y.dtype)
        safe_labels, counted = known_labels(
            Label.reshape(MatchX.shape), d_X.shape[-1], self.ignore_index
        )
        share = -d_Y.reshape(MatchX.shape) / np.where(counted, MatchX, 1.0)
        np.put_along_axis(d_X, safe_labels, share * counted, axis=-1)
        return {"X": d_X}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Y = s.get("Y")
        rows, classes = product(X.shape[:-1]), X.shape[-1]
        index, counted = lower_labels(k, s.Label, (rows, classes), self.ignore_index)
        picked = (s.get("MatchX") or k.scratch((rows,), X.type.dtype)).view((rows,))
        k.line(f"{X.view((rows * classes,))}.take({index}, out={picked}, mode='clip')")
        k.line(f"np.multiply({picked}, {counted}, out={picked})")
        if Y is None:
            return
        loss = Y.view((rows,))
        k.line(f"{loss}.fill(0.0)")
        k.line(f"np.log({picked}, out={loss}, where={counted})")
        k.line(f"np.multiply({loss}, -1.0, out={loss})")
        k.line(f"np.minimum({loss}, 1e20, out={loss})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_X = s.d_X
        rows, classes = product(d_X.shape[:-1]), d_X.shape[-1]
        index, counted = lower_labels(k, s.Label, (rows, classes), self.ignore_index)
        share = k.scratch((rows,), d_X.type.dtype)
        upstream, picked = s.d_Y.view((rows,)), s.MatchX.view((rows,))
        k.line(f"{share}.fill(0.0)")
        k.line(f"np.divide({upstream}, {picked}, out={share}, where={counted})")
        k.line(f"np.multiply({share}, -1.0, out={share})")
        k.line(f"{d_X}.fill(0.0)")
        k.line(f"{d_X.view((rows * classes,))}.put({index}, {share})")

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check_labels(k, s.Label, s.X.shape[-1], self.ignore_index)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        cross_entropy_kernels.hard_label_loss(
            k, s.X, s.Label, self.ignore_index, s.get("Y"), s.get("MatchX")
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        cross_entropy_kernels.hard_label_gradient(
            k, s.MatchX, s.Label, s.d_Y, s.d_X, self.ignore_index
        )
