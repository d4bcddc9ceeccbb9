"""Half precision: matrix products, and elementwise ops after them, in fp16 or bf16 (inference
only).

Half the bytes are moved, and devices multiply half-precision operands many times faster. Products
accumulate in float32. Casts occur only at the edges: where values come in, and before ops that
remain in float32. Constant weights are cast at compile time, by `fold_constants`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from compiler.errors import CompileError
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import GradOp
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of

PRODUCTS = frozenset("conv2d conv2d_transpose conv3d depthwise_conv2d matmul matmul_v2 mul".split())
"""Ops that benefit most from half precision."""

FOLLOWERS = frozenset(
    "concat dropout elementwise_add elementwise_max elementwise_min elementwise_mul "
    "elementwise_sub flatten flatten2 gelu hard_sigmoid hard_swish leaky_relu pool2d relu relu6 "
    "reshape reshape2 scale sigmoid slice split squeeze squeeze2 stack swish tanh transpose "
    "transpose2 unsqueeze unsqueeze2".split()
)
"""Ops that compute in half precision if one of their inputs is in half precision."""


HALF_TYPES = {"bf16": DType.BF16, "fp16": DType.FP16}
"""Element types by the value of `Options.dtype`."""


class NarrowFloats(Pass):
    """y = conv(x, w)  =  y' = conv(float16(x), float16(w)); y = float32(y').

    Vars keep their names and float32; later half-precision ops read the cast copies, so most of the
    casts back have no readers and are removed.
    """

    name = "narrow_floats"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})
    preserves = False

    def __init__(self, dtype: str = "fp16") -> None:
        self.text, self.dtype = dtype, HALF_TYPES[dtype]

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Narrow floats to `options.dtype`, if that is half precision."""
        if options.dtype is None or options.dtype == "fp32" or cls.name in options.disable:
            return None
        return cls(options.dtype)

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order; raise CompileError for a program that computes gradients."""
        _expect_no_gradients(g, self.text)
        copies: dict[Var, Var] = {}
        narrow: set[Var] = set()
        order: list[Op] = []
        for op in g.ops():
            follows = op.kind in FOLLOWERS and not narrow.isdisjoint(op.needs_data())
            selected = op.kind in PRODUCTS or follows
            why = _obstacle(g, op) if selected else ""
            if why:
                ctx.note_missed(self.name, op, why)
            elif selected:
                narrow |= set(op.writes())
            order += self._in_half_precision(g, op, copies) if selected and not why else [op]
        if narrow:
            g.reorder(order)

    def _in_half_precision(self, g: Graph, op: Op, copies: dict[Var, Var]) -> list[Op]:
        """Return the half-precision op with the casts of its inputs before it and of its outputs
        after it.
        """
        slots, ops = op.defn.slots, list[Op]()
        for var in [v for slot in op.inputs if not slots[slot].shape_only for v in op.inputs[slot]]:
            if _is_fp32(var) and var not in copies:
                copies[var] = self._copy(g, var)
                ops.append(_cast(g, var, copies[var], op))
        outputs = [var for var in op.writes() if _is_fp32(var)]
        g.remove(op)
        inputs = _with(op.inputs, copies)
        copies |= {var: self._copy(g, var) for var in outputs}
        ops.append(g.op(op.kind, inputs, _with(op.outputs, copies), op.attrs, op.source))
        return ops + [_cast(g, copies[var], var, op) for var in outputs]

    def _copy(self, g: Graph, var: Var) -> Var:
        return g.fresh(f"{var.label}@{self.text}", var.type.with_dtype(self.dtype))


def _expect_no_gradients(g: Graph, dtype: str) -> None:
    trains = next((op for op in g.ops() if isinstance(op.defn, GradOp)), None)
    if trains is not None:
        raise CompileError(
            f"Options(dtype={dtype!r}) is for inference, but the program computes gradients",
            op=repr(trains),
            source=trains.source,
            hint="train with fluid.contrib.mixed_precision.decorate",
        )


def _obstacle(g: Graph, op: Op) -> str:
    """Return why an op must remain in float32; empty if it need not."""
    for var in op.reads():
        if var.type.is_array or var.type.dtype is DType.FP64:
            return f"{var.label!r} is {var.type}"
    for var in op.writes():
        if var.role != "temp" or var.overwrites is not None or g.overwriter(var) is not None:
            return f"{var.label!r} shares the storage of another value"
    return ""


def _is_fp32(var: Var) -> bool:
    return var.type.dtype is DType.FP32


def _cast(g: Graph, x: Var, out: Var, op: Op) -> Op:
    attrs = {"in_dtype": x.type.dtype.code, "out_dtype": out.type.dtype.code}
    return g.op("cast", {"X": [x]}, {"Out": [out]}, attrs | role_of(op), op.source)


def _with(slots: Mapping[str, Sequence[Var]], copies: Mapping[Var, Var]) -> dict[str, list[Var]]:
    return {slot: [copies.get(var, var) for var in vars] for slot, vars in slots.items()}
