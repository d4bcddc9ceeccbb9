"""`fused_elemwise_activation`: a binary and a unary op. Reference: its op.h of that name."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.autodiff.grad_ops import NameOf
from compiler.ir.opdef import Slot, attr, attr_list, reads, writes
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ir.program import GRAD, OpDesc
from compiler.ops.fused.activations import activation_gradient
from compiler.ops.type_checks import require_same_dtype

BINARY = ("elementwise_add", "elementwise_mul")
UNARY = ("scale", "relu", "tanh", "sigmoid", "gelu")
_GRAD_OF = "_grad"


def named_slots(slot: Slot, *names: str) -> dict[str, Slot]:
    """Return slots whose names are not Python identifiers."""
    return {name: replace(slot, name=name) for name in names}


class ElemwiseActivation(Composite):
    """Shared part of the op and its gradient op: `functor_list` is (outer op, inner op)."""

    functor_list = attr_list(str)
    axis = attr(-1)
    scale = attr(0.0)
    save_intermediate_out = attr(False)

    def functions(self) -> tuple[str, str, bool]:
        """Return the binary op, the unary op, and whether the unary one is the outer one.

        Raises BadAttribute unless `functor_list` has one of each.
        """
        names = [name.removesuffix(_GRAD_OF) for name in self.functor_list]
        match names:
            case [outer, inner] if outer in BINARY and inner in UNARY:
                return outer, inner, False
            case [outer, inner] if outer in UNARY and inner in BINARY:
                return inner, outer, True
            case _:
                raise BadAttribute(
                    f"{self.kind}: attribute 'functor_list' is {self.functor_list}, expected one "
                    f"of {', '.join(BINARY)} and one of {', '.join(UNARY)}"
                )

    def unary(self, steps: CompositeSteps, kind: str, x: str) -> str:
        """Append the unary op."""
        return steps(kind, {"scale": self.scale} if kind == "scale" else {}, X=x)

    def unary_gradient(
        self, steps: CompositeSteps, kind: str, x: str, out: str, gradient: str
    ) -> str:
        """Append the gradient of the unary op."""
        if kind == "scale":
            return self.unary(steps, kind, gradient)
        return activation_gradient(steps, kind, x, out, gradient)


class FusedElemwiseActivation(ElemwiseActivation, op="fused_elemwise_activation"):
    """Out = unary(binary(X, Y)) or binary(X, unary(Y)); IntermediateOut is the inner result.

    The smaller operand is broadcast as in elementwise ops, aligned at `axis`; `scale` is the factor
    of the unary op `scale`. Reference: fused_elemwise_activation_op.h.
    """

    X = reads()
    Y = reads()
    Out = writes()
    IntermediateOut = writes(optional=True)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the inner op and the outer op."""
        require_floats(self.kind, steps)
        binary, unary, unary_last = self.functions()
        x, y, attrs = steps["X"], steps["Y"], {"axis": self.axis}
        if unary_last:
            inner = steps(binary, attrs, X=x, Y=y)
            outer = self.unary(steps, unary, inner)
        else:
            inner = self.unary(steps, unary, y)
            outer = steps(binary, attrs, X=x, Y=inner)
        steps.write("Out", outer)
        steps.write("IntermediateOut", inner)

    def grad_ops(self, op: OpDesc, grad: NameOf) -> list[OpDesc]:
        """Return the reference's dedicated gradient op, whose functors have the suffix `_grad`."""
        saved = op.outputs.get("IntermediateOut", []) if self.save_intermediate_out else []
        inputs = {slot: op.inputs[slot] for slot in ("X", "Y")}
        inputs |= {"Out": op.outputs["Out"], "IntermediateOut": saved}
        inputs["Out" + GRAD] = [grad(name) for name in op.outputs["Out"]]
        read = {**op.inputs, "IntermediateOut": saved}
        outputs = {slot + GRAD: [grad(name) for name in names] for slot, names in read.items()}
        functions = [name + _GRAD_OF for name in self.functor_list]
        attrs = {**op.attrs, "functor_list": functions}
        return [OpDesc(self.kind + _GRAD_OF, inputs, outputs, attrs)]


class FusedElemwiseActivationGrad(ElemwiseActivation, op="fused_elemwise_activation_grad"):
    """Gradient of `fused_elemwise_activation`; a missing IntermediateOut is recomputed.

    Paddle 1.8.5 uses Y as the result of tanh and sigmoid then; this computes the mathematical
    gradient.
    """

    slots: ClassVar[dict[str, Slot]] = {
        **named_slots(reads(), "X", "Y", "Out", "Out" + GRAD),
        **named_slots(reads(optional=True), "IntermediateOut"),
        **named_slots(writes(optional=True), "X@GRAD", "Y@GRAD", "IntermediateOut@GRAD"),
    }

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the gradients of the outer op and of the inner op."""
        require_floats(self.kind, steps)
        binary, unary, unary_last = self.functions()
        inner = self.inner(steps, binary, unary, unary_last)
        gradient, out = steps["Out" + GRAD], steps["Out"]
        if unary_last:
            between = self.unary_gradient(steps, unary, inner, out, gradient)
            x, y = self.binary_gradient(steps, binary, steps["Y"], between)
        else:
            x, between = self.binary_gradient(steps, binary, inner, gradient)
            y = self.unary_gradient(steps, unary, steps["Y"], inner, between)
        steps.write("X" + GRAD, x)
        steps.write("Y" + GRAD, y)
        if steps.has("IntermediateOut"):
            steps.write("IntermediateOut" + GRAD, between)

    def inner(self, steps: CompositeSteps, binary: str, unary: str, unary_last: bool) -> str:
        """Return the inner result: saved or recomputed."""
        if steps.has("IntermediateOut"):
            return steps["IntermediateOut"]
        if unary_last:
            return steps(binary, {"axis": self.axis}, X=steps["X"], Y=steps["Y"])
        return self.unary(steps, unary, steps["Y"])

    def binary_gradient(
        self, steps: CompositeSteps, kind: str, y: str, gradient: str
    ) -> tuple[str, str]:
        """Append the gradient op of the binary op; return the names of both gradients."""
        inputs = {"X": steps["X"], "Y": y, "Out" + GRAD: gradient}
        wanted = {"X" + GRAD: 1, "Y" + GRAD: 1}
        gradients = steps.outputs(kind + "_grad", wanted, {"axis": self.axis}, **inputs)
        return gradients["X" + GRAD][0], gradients["Y" + GRAD][0]


def require_floats(kind: str, steps: CompositeSteps) -> None:
    """Raise ShapeError unless X and Y have the same floating-point dtype."""
    x, y = steps.type("X"), steps.type("Y")
    require_same_dtype(kind, X=x, Y=y)
    if not x.dtype.is_float:
        raise ShapeError(f"{kind}: X is {x}, expected a floating-point dtype")
