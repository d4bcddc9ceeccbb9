"""The kernels of a step: those of pointwise ops, of one op, or of an op with its epilogue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.epilogue import split_anchor
from compiler.codegen.kernel.builder import OpKernels
from compiler.codegen.kernel.epilogues import (
    FusedEpilogue,
    fusible_epilogue,
    without_unread_outputs,
)
from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.ir.opdef import Pointwise, call
from compiler.plan import PlannedOp, Step


class StepKernels(ABC):
    """Writes the kernels of steps into a module; a target defines `pointwise` and `builder`."""

    def __init__(self, writer: KernelModuleWriter) -> None:
        self._writer = writer

    @abstractmethod
    def pointwise(self, step: Step) -> None:
        """Write the kernels of a step of pointwise ops."""

    @abstractmethod
    def builder(self, ops: Sequence[PlannedOp], epilogue: FusedEpilogue | None) -> OpKernels:
        """Return the kernel builder of an op, `ops[0]`; the others are fused as its epilogue."""

    def write(self, step: Step) -> None:
        """Write the kernels of a step. Raises what the bodies of its ops raise."""
        if isinstance(step.ops[0].defn, Pointwise):
            self.pointwise(step)
        elif len(step.ops) > 1:
            self._anchor_and_epilogue(step)
        else:
            self._op(step.ops)

    def _anchor_and_epilogue(self, step: Step) -> None:
        """Write an anchor with its epilogue fused, or one after the other if it cannot be fused."""
        step = replace(step, ops=(without_unread_outputs(step.ops[0]), *step.ops[1:]))
        epilogue = fusible_epilogue(self._writer, step)
        if epilogue is not None:
            self._op(step.ops, epilogue)
            return
        anchor, rest = split_anchor(self._writer, step)
        self._op([anchor])
        self.pointwise(rest)

    def _op(self, ops: Sequence[PlannedOp], epilogue: FusedEpilogue | None = None) -> None:
        """Write an op's own kernels, with the ops fused after it as their epilogue."""
        kernels = self.builder(ops, epilogue)
        call(ops[0].defn, "kernel", kernels.operands(), kernels)
        kernels.finish()
