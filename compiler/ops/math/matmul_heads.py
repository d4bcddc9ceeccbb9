"""`matmul` with a `head_number`: per-head products, concatenated in Out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from compiler.ir.opdef import Slot, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ir.program import GRAD
from compiler.ir.types import TensorType
from compiler.ops.math.matmul import Matmul


class Heads(Composite):
    """Shared part of the op and its gradient op: number of heads and split axes."""

    transpose_X = attr(False)
    transpose_Y = attr(False)
    alpha = attr(1.0)
    head_number = attr(1, at_least(1))

    def axes(self, steps: CompositeSteps) -> dict[str, int]:
        """Return the split axis of each operand; raise ShapeError if the shapes do not match."""
        x, y = steps.type("X"), steps.type("Y")
        whole = Matmul(self.attributes)
        whole.infer(Slots[TensorType].of(self.kind, X=x, Y=y))
        columns = whole.cuts_columns(x.shape, y.shape)
        from_end = {"X": 2 if self.transpose_X else 1, "Y": 1 if columns != self.transpose_Y else 2}
        return {"X": x.rank - from_end["X"], "Y": y.rank - from_end["Y"]}

    def split_operand(self, steps: CompositeSteps, slot: str, axis: int) -> list[str]:
        """Append a split of an operand; return the names of its parts."""
        attrs = {"num": self.head_number, "axis": axis}
        outputs = steps.outputs("split", {"Out": self.head_number}, attrs, X=steps[slot])
        return outputs["Out"]

    def head_attributes(self) -> dict[str, Any]:
        """Return the attributes of a single head's product."""
        transposes = {"transpose_X": self.transpose_X, "transpose_Y": self.transpose_Y}
        return {**transposes, "alpha": self.alpha}


class MatmulHeads(Heads, op="matmul_heads"):
    """`matmul` with `head_number` heads: head i of Out is head i of X @ head i of Y.

    X is split along its K axis. Y is split along K as well, and Out then has `head_number` times as
    many columns as Y; if Y has only K / `head_number` rows, it is split along its columns instead.
    Reference: matmul_op.cc.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a matmul per head and a concat."""
        axes = self.axes(steps)
        pairs = zip(
            self.split_operand(steps, "X", axes["X"]),
            self.split_operand(steps, "Y", axes["Y"]),
            strict=True,
        )
        products = [steps("matmul", self.head_attributes(), X=x, Y=y) for x, y in pairs]
        last = max(steps.type(slot).rank for slot in ("X", "Y")) - 1
        steps.write("Out", steps("concat", {"axis": last}, X=products))


class MatmulHeadsGrad(Heads, op="matmul_heads_grad"):
    """Gradients of `matmul_heads`: per-head gradients, concatenated along the split axes.

    Paddle 1.8.5 ignores the heads in the gradient; this computes the mathematical gradient.
    """

    slots: ClassVar[dict[str, Slot]] = {
        **{name: replace(reads(), name=name) for name in ("X", "Y", "Out" + GRAD)},
        **{name: replace(writes(optional=True), name=name) for name in ("X@GRAD", "Y@GRAD")},
    }

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a gradient per head, from its slice of Out@GRAD."""
        axes = self.axes(steps)
        last = steps.type("Out" + GRAD).rank - 1
        parts = [self.split_operand(steps, slot, axes[slot]) for slot in ("X", "Y")]
        above = self.split_operand(steps, "Out" + GRAD, last)
        gradients = [
            steps.outputs(
                "matmul_grad", {"X@GRAD": 1, "Y@GRAD": 1}, self.head_attributes(),
                **{"X": x, "Y": y, "Out" + GRAD: upstream},
            )
            for x, y, upstream in zip(*parts, above, strict=True)
        ]  # fmt: skip
        for slot in ("X", "Y"):
            names = [outputs[slot + GRAD][0] for outputs in gradients]
            steps.write(slot + GRAD, steps("concat", {"axis": axes[slot]}, X=names))
