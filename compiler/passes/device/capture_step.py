"""Report of what keeps a step from being captured as a CUDA graph."""

from __future__ import annotations

from typing import Self

from compiler.ir.analysis.placement import TO_DEVICE, TO_HOST, runs_on_device
from compiler.ir.graph import Graph, Op
from compiler.ir.opdef import GradOp
from compiler.options import Options
from compiler.passes.base import Context, OpTarget, Pass

_FREE = frozenset({TO_DEVICE, TO_HOST, "delete_var"})
"""Ops of the host that a graph contains, or that do nothing on a device."""


class CaptureStep(Pass):
    """step(x)  =  one launch of a CUDA graph, with copies of x before it.

    It changes nothing. The host takes part in a step that is not captured: one of its ops runs
    there, or its kernels need values or sizes that only the host has during a step.
    """

    name = "capture_step"
    required = True

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices, with `options.cuda_graph`."""
        return cls() if options.cuda_graph and target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Report each op that a graph cannot contain."""
        for op in g.ops():
            if reason := _reason(op):
                ctx.note_missed(self.name, op, reason)


def _reason(op: Op) -> str:
    """Why a CUDA graph cannot contain an op; empty if it can."""
    if op.kind in _FREE:
        return ""
    if not runs_on_device(op):
        return "it runs on the host"
    if any(var.type.is_open for var in [*op.reads(), *op.writes()]):
        return "it has sizes that depend on data"
    if hasattr(op.defn.origin if isinstance(op.defn, GradOp) else op.defn, "collective"):
        return "it exchanges values with other processes"
    used = {**op.inputs, **op.outputs}
    slots = [slot for slot, vars in used.items() if vars and op.defn.slots[slot].on_host]
    return f"the host has its {' and '.join(slots)}" if slots else ""
