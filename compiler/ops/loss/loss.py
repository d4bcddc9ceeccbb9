"""Cross entropy of class probabilities and of logits.

Generated code finds a label by its flat position, `row * classes + label`, so that a whole batch is
one `take`. Labels come from users: each is checked in every step, in one look at the largest.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.checks import (
    differ,
    numeric,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    shown,
)

NO_CLASS = -1


def locate_labels(
    labels: Array,
    starts: Array,
    classes: int,
    stride: int,
    ignore: int,
    index: Array,
    counted: Array,
) -> None:
    """Set index to starts + labels * stride, 0 for labels to ignore; counted to which are not.

    Generated modules carry this function as it stands. Labels are read as unsigned to see the
    negative ones too. Raises ValueError for a label that is neither a class nor `ignore`.
    """
    counted.fill(True)
    if 0 <= ignore < classes or labels.view(np.uint64).max(initial=0) >= classes:
        np.not_equal(labels, ignore, out=counted)
        wrong = counted & ((labels < 0) | (labels >= classes))
        if wrong.any():
            raise ValueError(
                f"label {labels[wrong][0]} in row {int(wrong.argmax())} is not a class: "
                f"expected 0 to {classes - 1}, or {ignore} to have the row ignored"
            )
        labels = np.where(counted, labels, 0)
    np.add(labels if stride == 1 else labels * stride, starts, out=index)


def known_labels(labels: Array, classes: int, ignore: int) -> tuple[Array, Array]:
    """The labels, 0 for those to ignore, and which of them count; ValueError as above."""
    known, counted = np.empty_like(labels), np.empty(labels.shape, np.bool_)
    locate_labels(labels, np.zeros(1, np.int64), classes, 1, ignore, known, counted)
    return known, counted


def require_label_a_row(op: str, X: TensorType, Label: TensorType) -> None:
    """ShapeError unless Label has a class for each row of X, on an axis of size 1 or on none."""
    require_dtype(op, "Label", Label, DType.INT64)
    sizes = zip(Label.shape, (*X.shape[:-1], 1), strict=False)
    if X.rank - Label.rank not in (0, 1) or any(differ(a, b) for a, b in sizes):
        raise ShapeError(f"{op}: {shown(X=X, Label=Label)}, expected a label a row")


def lower_labels(
    k: Kernel, labels: Operand, table: Shape, ignore: int | str
) -> tuple[Operand, Operand]:
    """Write the look-up of labels in a table of rows, classes and maybe what lies inside a class.

    `ignore` may be an expression. Returns flat positions (int64) and which labels count (bool), one
    for each label.
    """
    rows, classes, stride = table[0], table[1], product(table[2:])
    index = k.scratch((rows * stride,), DType.INT64)
    counted = k.scratch((rows * stride,), DType.BOOL)
    starts = f"np.arange({rows}) * {product(table[1:])}"
    if stride != 1:
        starts = f"np.add.outer({starts}, np.arange({stride})).reshape(-1)"
    given = f"{labels.view(index.shape)}, {k.once(starts, [], 'starts')}"
    found = f"{classes}, {stride}, {ignore}, {index}, {counted}"
    k.line(f"{k.function(locate_labels)}({given}, {found})")
    return index, counted


def pick_shares(X: Array, Label: Array, ignore: int) -> tuple[Array, Array, Array]:
    """The labels [..., 1], 0 for those to ignore; which of them count; what X gives them."""
    known, counted = known_labels(Label.reshape(*X.shape[:-1], 1), X.shape[-1], ignore)
    return known, counted, np.take_along_axis(X, known, axis=-1)


def surprises(shares: Array) -> Array:
    """-log of probabilities; 1e20 for what cannot be."""
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(shares), shares.dtype.type(1e20))


class CrossEntropy(OpDef, op="cross_entropy"):
    """Y = -log(X[Label]) for probabilities X along the last axis, as `cross_entropy2` has it.

    With `soft_label`, Label holds probabilities in the shape of X, and Y = -sum(Label * log(X)).
    Reference: cross_entropy_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()
    soft_label = attr(False)
    ignore_index = attr(-100)

    def infer(self, X: TensorType, Label: TensorType) -> TensorType:
        if not self.soft_label:
            require_label_a_row(self.kind, X, Label)
            return X.with_shape(Label.shape)
        require_same_dtype(self.kind, X=X, Label=Label)
        require_same_shape(self.kind, X=X, Label=Label)
        return X.with_shape((*X.shape[:-1], 1))

    def infer_grad(self, X: TensorType) -> dict[str, TensorType]:
        return {"X": X}

    def numpy(self, X: Array, Label: Array) -> Array:
        if self.soft_label:
            return (Label * surprises(X)).sum(-1, keepdims=True)
        _, counted, picked = pick_shares(X, Label, self.ignore_index)
        return np.where(counted, surprises(picked), X.dtype.type(0)).reshape(Label.shape)

    def grad(self, X: Array, Label: Array, d_Y: Array) -> dict[str, Array]:
        share = -d_Y.reshape(*X.shape[:-1], 1)
        with np.errstate(divide="ignore"):
            if self.soft_label:
                return {"X": Label * share / X}
            known, counted, picked = pick_shares(X, Label, self.ignore_index)
            d_X = np.zeros_like(X)
            np.put_along_axis(d_X, known, np.where(counted, share / picked, 0), axis=-1)
        return {"X": d_X}


class CrossEntropy2(OpDef, op="cross_entropy2", grad_op="cross_entropy_grad2"):
    """Y = -log(X[Label]) for probabilities X along the last axis; MatchX = X[Label].

    Rows whose label is `ignore_index` have loss 0. XShape brings X's shape to the gradient and
    holds no data. Label has a last axis of size 1 or lacks it. Reference: cross_entropy_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()
    XShape = writes()
    MatchX = writes()
    ignore_index = attr(-100)

    def infer(self, X: TensorType, Label: TensorType) -> dict[str, TensorType]:
        require_label_a_row(self.kind, X, Label)
        rows = (*X.shape[:-1], 1)
        shapes = X.with_shape((*X.shape, 0))
        return {"Y": X.with_shape(Label.shape), "XShape": shapes, "MatchX": X.with_shape(rows)}

    def infer_grad(self, XShape: TensorType) -> dict[str, TensorType]:
        return {"X": XShape.with_shape(XShape.shape[:-1])}

    def numpy(self, X: Array, Label: Array) -> dict[str, Array]:
        _, counted, picked = pick_shares(X, Label, self.ignore_index)
        loss = np.where(counted, surprises(picked), X.dtype.type(0)).reshape(Label.shape)
        shape = np.empty((*X.shape, 0), X.dtype)
        return {"Y": loss, "XShape": shape, "MatchX": picked * counted}

    def grad(self, Label: Array, MatchX: Array, XShape: Shape, d_Y: Array) -> dict[str, Array]:
        d_X = np.zeros(numeric(XShape[:-1]), d_Y.dtype)
        known, counted = known_labels(Label.reshape(MatchX.shape), d_X.shape[-1], self.ignore_index)
        share = -d_Y.reshape(MatchX.shape) / np.where(counted, MatchX, 1.0)
        np.put_along_axis(d_X, known, share * counted, axis=-1)
        return {"X": d_X}

    def lower(
        self,
        k: Kernel,
        X: Operand,
        Label: Operand,
        Y: Operand | None,
        MatchX: Operand | None,
    ) -> None:
        rows, classes = product(X.shape[:-1]), X.shape[-1]
        index, counted = lower_labels(k, Label, (rows, classes), self.ignore_index)
        picked = (MatchX or k.scratch((rows,), X.type.dtype)).view((rows,))
        k.line(f"{X.view((rows * classes,))}.take({index}, out={picked}, mode='clip')")
        k.line(f"np.multiply({picked}, {counted}, out={picked})")
        if Y is None:
            return
        loss = Y.view((rows,))
        k.line(f"{loss}.fill(0.0)")
        k.line(f"np.log({picked}, out={loss}, where={counted})")
        k.line(f"np.negative({loss}, out={loss})")
        k.line(f"np.minimum({loss}, 1e20, out={loss})")

    def lower_grad(
        self, k: Kernel, Label: Operand, MatchX: Operand, d_Y: Operand, d_X: Operand
    ) -> None:
        rows, classes = product(d_X.shape[:-1]), d_X.shape[-1]
        index, counted = lower_labels(k, Label, (rows, classes), self.ignore_index)
        share = k.scratch((rows,), d_X.type.dtype)
        above, picked = d_Y.view((rows,)), MatchX.view((rows,))
        k.line(f"{share}.fill(0.0)")
        k.line(f"np.divide({above}, {picked}, out={share}, where={counted})")
        k.line(f"np.negative({share}, out={share})")
        k.line(f"{d_X}.fill(0.0)")
        k.line(f"{d_X.view((rows * classes,))}.put({index}, {share})")


class SoftmaxWithCrossEntropy(OpDef, op="softmax_with_cross_entropy"):
    """Softmax = softmax(Logits) along `axis`; Loss = -log(Softmax[Label]), of size 1 there.

    With `soft_label`, Label holds probabilities in the shape of Logits and Loss is
    -sum(Label * log(Softmax)). Rows whose label is `ignore_index` have loss 0; their gradient is 0
    only where that is no class, for the reference's CPU kernel does not look at it on the way back.
    As in `softmax`, no logit counts as more than 64 below the largest. `use_softmax`, of Paddle 2,
    must be True. Reference: softmax_with_cross_entropy_op.h.
    """

    Logits = reads()
    Label = reads(no_grad=True)
    Softmax = writes()
    Loss = writes()
    soft_label = attr(False)
    numeric_stable_mode = attr(True)
    ignore_index = attr(-100)
    axis = attr(-1)
    use_softmax = attr(True)

    def infer(self, Logits: TensorType, Label: TensorType) -> dict[str, TensorType]:
        if not self.use_softmax:
            raise BadAttribute(
                f"{self.kind}: 'use_softmax' is False", hint="cross_entropy takes probabilities"
            )
        if not -Logits.rank <= self.axis < Logits.rank:
            raise ShapeError(f"{self.kind}: Logits {Logits} has no axis {self.axis}")
        axis = self.axis % Logits.rank
        loss = Logits.with_shape((*Logits.shape[:axis], 1, *Logits.shape[axis + 1 :]))
        if self.soft_label:
            require_same_dtype(self.kind, Logits=Logits, Label=Label)
            require_same_shape(self.kind, Logits=Logits, Label=Label)
        else:
            require_dtype(self.kind, "Label", Label, DType.INT64)
            require_same_shape(self.kind, Loss=loss, Label=Label)
        return {"Softmax": Logits, "Loss": loss}

    def infer_grad(self, Softmax: TensorType) -> dict[str, TensorType]:
        return {"Logits": Softmax}

    def table(self, Logits: Shape) -> Shape:
        """Logits as rows and classes, and what lies inside a class where `axis` is not the last."""
        axis = self.axis % len(Logits)
        rows, inside = product(Logits[:axis]), product(Logits[axis + 1 :])
        return (rows, Logits[axis]) if inside == 1 else (rows, Logits[axis], inside)

    def numpy(self, Logits: Array, Label: Array) -> dict[str, Array]:
        shifted = np.maximum(Logits - Logits.max(self.axis, keepdims=True), -64.0)
        powers = np.exp(shifted)
        total = powers.sum(self.axis, keepdims=True)
        surprise = np.log(total) - shifted
        if self.soft_label:
            loss = (Label * surprise).sum(self.axis, keepdims=True)
        else:
            known, counted = known_labels(Label, Logits.shape[self.axis], self.ignore_index)
            loss = np.take_along_axis(surprise, known, self.axis) * counted
        return {"Softmax": powers / total, "Loss": loss}

    def grad(self, Label: Array, Softmax: Array, d_Loss: Array) -> dict[str, Array]:
        if self.soft_label:
            return {"Logits": (Softmax - Label) * d_Loss}
        classes = Softmax.shape[self.axis]
        ignore = NO_CLASS if 0 <= self.ignore_index < classes else self.ignore_index
        known, counted = known_labels(Label, classes, ignore)
        share = d_Loss * counted
        d_Logits = Softmax * share
        at_label = np.take_along_axis(d_Logits, known, self.axis) - share
        np.put_along_axis(d_Logits, known, at_label, self.axis)
        return {"Logits": d_Logits}

    def lower(
        self,
        k: Kernel,
        Logits: Operand,
        Label: Operand,
        Softmax: Operand | None,
        Loss: Operand | None,
    ) -> None:
        table, dtype = self.table(Logits.shape), Logits.type.dtype
        column = (table[0], 1, *table[2:])
        softmax = Softmax or k.scratch(table, dtype)
        shares = softmax.view(table)
        shifted = k.scratch(table, dtype).view(table) if self.soft_label else shares
        total, loss = k.scratch(column, dtype), Loss or k.scratch(column, dtype)
        logits = Logits.view(table)
        k.line(f"np.maximum.reduce({logits}, axis=1, keepdims=True, out={total})")
        k.line(f"np.subtract({logits}, {total}, out={shifted})")
        k.line(f"np.maximum({shifted}, -64.0, out={shifted})")
        if self.soft_label:
            self.lower_shares(k, shifted, shares, total)
            k.line(f"np.subtract({total}, {shifted}, out={shifted})")
            k.line(f"np.multiply({shifted}, {Label.view(table)}, out={shifted})")
            k.line(f"np.add.reduce({shifted}, axis=1, keepdims=True, out={loss.view(column)})")
        else:
            index, counted = lower_labels(k, Label, table, self.ignore_index)
            flat, picked = softmax.view((Logits.type.numel,)), loss.view(index.shape)
            k.line(f"{flat}.take({index}, out={picked}, mode='clip')")
            self.lower_shares(k, shifted, shares, total)
            k.line(f"np.subtract({total.view(index.shape)}, {picked}, out={picked})")
            k.line(f"np.multiply({picked}, {counted}, out={picked})")

    def lower_shares(self, k: Kernel, shifted: str, shares: str, total: Operand) -> None:
        """Set shares to the softmax of shifted logits, total to the logarithm of their sum."""
        k.line(f"np.exp({shifted}, out={shares})")
        k.line(f"np.add.reduce({shares}, axis=1, keepdims=True, out={total})")
        k.line(f"np.divide({shares}, {total}, out={shares})")
        k.line(f"np.log({total}, out={total})")

    def lower_grad(
        self, k: Kernel, Label: Operand, Softmax: Operand, d_Loss: Operand, d_Logits: Operand
    ) -> None:
        if self.soft_label:
            k.line(f"np.subtract({Softmax}, {Label}, out={d_Logits})")
            k.line(f"np.multiply({d_Logits}, {d_Loss}, out={d_Logits})")
            return
        table, ignore = self.table(Softmax.shape), self.ignore_index
        kept = f"{NO_CLASS} if {ignore} < {table[1]} else {ignore}"
        index, counted = lower_labels(k, Label, table, ignore if ignore < 0 else kept)
        share = k.scratch(index.shape, d_Loss.type.dtype)
        column = share.view((table[0], 1, *table[2:]))
        flat = d_Logits.view((d_Logits.type.numel,))
        k.line(f"np.multiply({d_Loss.view(index.shape)}, {counted}, out={share})")
        k.line(f"np.multiply({Softmax.view(table)}, {column}, out={d_Logits.view(table)})")
        k.line(f"{flat}[{index}] -= {share}")
