"""Label smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.type_checks import differ, shown


class LabelSmooth(OpDef, op="label_smooth"):
    """Out = (1 - epsilon) * X + epsilon * PriorDist; the default prior is uniform.

    X is [..., classes], PriorDist has one number per class. Reference: label_smooth_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    PriorDist = reads(optional=True, no_grad=True)
    Out = writes()
    epsilon = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if (PriorDist := s.get("PriorDist")) is not None and differ(PriorDist.numel, X.shape[-1]):
            shapes = shown(X=X, PriorDist=PriorDist)
            raise ShapeError(f"{self.kind}: {shapes}, expected one prior per class")
        return X

    def numpy(self, X: Array, PriorDist: Array | None) -> Array:
        smooth = 1 / X.shape[-1] if PriorDist is None else PriorDist.reshape(-1)
        return ((1 - self.epsilon) * X + self.epsilon * smooth).astype(X.dtype)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": (1 - self.epsilon) * d_Out}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        PriorDist = s.get("PriorDist")
        indices, classes = k.grid(*X.shape), X.shape[-1]
        if PriorDist is None:
            smooth = 1.0 / k.astype(k.size(classes), X.type.dtype)
        else:
            smooth = PriorDist.reshaped((classes,))[indices[-1]]
        k.store(s.Out, indices, X[indices] * (1 - self.epsilon) + smooth * self.epsilon)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.d_X.shape)
        k.store(s.d_X, indices, s.d_Out[indices] * (1 - self.epsilon))

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        PriorDist = s.get("PriorDist")
        k.line(f"np.multiply({X}, {1 - self.epsilon!r}, out={Out})")
        if PriorDist is None:
            k.line(f"np.add({Out}, {self.epsilon!r} / ({X.shape[-1]}), out={Out})")
        else:
            prior = PriorDist.view((X.shape[-1],))
            k.line(f"np.add({Out}, {self.epsilon!r} * {prior}, out={Out})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        k.line(f"np.multiply({d_Out}, {1 - self.epsilon!r}, out={d_X})")
