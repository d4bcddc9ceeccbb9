"""`matmul` with a `head_number`: products of parts of both operands, side by side in Out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from compiler.ir.opdef import Slot, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.composite import Composite, Steps
from compiler.ir.program import GRAD
from compiler.ops.math.matmul import Matmul


class Heads(Composite):
    """What the op and its gradient op share: how many heads, and along which axes they are cut."""

    transpose_X = attr(False)
    transpose_Y = attr(False)
    alpha = attr(1.0)
    head_number = attr(1, at_least(1))

    def axes(self, steps: Steps) -> dict[str, int]:
        """The axis along which each operand is cut; ShapeError where the shapes do not fit."""
        x, y = steps.type("X"), steps.type("Y")
        whole = Matmul(self.attributes)
        whole.infer(x, y)
        columns = whole.cuts_columns(x.shape, y.shape)
        from_end = {"X": 2 if self.transpose_X else 1, "Y": 1 if columns != self.transpose_Y else 2}
        return {"X": x.rank - from_end["X"], "Y": y.rank - from_end["Y"]}

    def cut(self, steps: Steps, slot: str, axis: int) -> list[str]:
        """Append a split of an operand; the names of its parts."""
        attrs = {"num": self.head_number, "axis": axis}
        made = steps.outputs("split", {"Out": self.head_number}, attrs, X=steps[slot])
        return made["Out"]

    def one(self) -> dict[str, Any]:
        """The attributes of the product of one head."""
        transposes = {"transpose_X": self.transpose_X, "transpose_Y": self.transpose_Y}
        return {**transposes, "alpha": self.alpha}


class MatmulHeads(Heads, op="matmul_heads"):
    """`matmul` with `head_number` heads: part i of Out's last axis is part i of X @ part i of Y.

    X is cut along the axis that is summed over. Y is cut along it, too, and Out then has
    `head_number` times as many columns as Y; where Y has as few rows as a part of X has columns, it
    is cut along its columns. Reference: matmul_op.cc.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def expand(self, steps: Steps) -> None:
        """A product for each head, and all of them side by side."""
        axes = self.axes(steps)
        pairs = zip(self.cut(steps, "X", axes["X"]), self.cut(steps, "Y", axes["Y"]), strict=True)
        made = [steps("matmul", self.one(), X=x, Y=y) for x, y in pairs]
        last = max(steps.type(slot).rank for slot in ("X", "Y")) - 1
        steps.write("Out", steps("concat", {"axis": last}, X=made))


class MatmulHeadsGrad(Heads, op="matmul_heads_grad"):
    """The gradients of `matmul_heads`: those of each head, put together as the operands were cut.

    Paddle 1.8.5 leaves the heads out of the gradient; here it is the true one.
    """

    slots: ClassVar[dict[str, Slot]] = {
        **{name: replace(reads(), name=name) for name in ("X", "Y", "Out" + GRAD)},
        **{name: replace(writes(optional=True), name=name) for name in ("X@GRAD", "Y@GRAD")},
    }

    def expand(self, steps: Steps) -> None:
        """The gradient of each head, from its part of Out's."""
        axes = self.axes(steps)
        last = steps.type("Out" + GRAD).rank - 1
        parts = [self.cut(steps, slot, axes[slot]) for slot in ("X", "Y")]
        found = [
            steps.outputs(
                "matmul_grad", {"X@GRAD": 1, "Y@GRAD": 1}, self.one(),
                **{"X": x, "Y": y, "Out" + GRAD: given},
            )
            for x, y, given in zip(*parts, self.cut(steps, "Out" + GRAD, last), strict=True)
        ]  # fmt: skip
        for slot in ("X", "Y"):
            names = [made[slot + GRAD][0] for made in found]
            steps.write(slot + GRAD, steps("concat", {"axis": axes[slot]}, X=names))
