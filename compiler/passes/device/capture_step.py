"""Report of what keeps a step from being captured as one CUDA graph."""

from __future__ import annotations

from typing import Self

from compiler.ir.analysis.fixed_launches import why_not_fixed
from compiler.ir.analysis.liveness import kernels
from compiler.ir.analysis.placement import runs_on_device
from compiler.ir.graph import Graph, Op
from compiler.options import Options
from compiler.passes.base import Context, OpTarget, Pass


class CaptureStep(Pass):
    """step(x)  =  one launch of a CUDA graph, with copies of x before it.

    It changes nothing. A step in which the host takes part is captured in pieces: an op that runs
    there, or whose kernels need values or sizes that only the host has during a step, ends one
    graph and begins another.
    """

    name = "capture_step"
    required = True

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices, with `options.cuda_graph`."""
        return cls() if options.cuda_graph and target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Report each op that a graph cannot contain, and the kernels between which it runs."""
        counts, splits = [0], list[tuple[Op, str, int]]()
        for ops in kernels(g):
            reasons = [(op, reason) for op in ops if (reason := why_not_fixed(op))]
            if reasons and (counts[-1] or len(counts) == 1):
                counts.append(0)
            splits += [(op, reason, len(counts) - 1) for op, reason in reasons]
            counts[-1] += not reasons and any(map(runs_on_device, ops))
        for op, reason, after in splits:
            around = f"{counts[after - 1]} kernels before it, {counts[after]} after it"
            ctx.note_missed(self.name, op, f"{reason}, which splits the CUDA graph: {around}")
