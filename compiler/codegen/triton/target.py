"""The Triton target: kernels for device ops, NumPy for host ops, in one step function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.kernel.epilogues import Epilogue, fused_name
from compiler.codegen.kernel.pointwise import kernels_of
from compiler.codegen.kernel.step_kernels import StepKernels
from compiler.codegen.kernel.support import has_kernel_body, why_no_kernel
from compiler.codegen.module import Module
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.numpy import Style, assemble, comment_ops, emit_step
from compiler.codegen.triton.bind_and_run import TritonFrame
from compiler.codegen.triton.emit import KernelSource, emit
from compiler.codegen.triton.kernel_builder import TritonKernelBuilder
from compiler.codegen.triton.multi_tensor.global_reductions import emit_global_reduction
from compiler.codegen.triton.multi_tensor.kernels import emit_multi_tensor
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.split_reductions import split_kernel
from compiler.ir.analysis.placement import TO_DEVICE, TO_HOST
from compiler.ir.graph import Op
from compiler.ir.opdef import OpDef, call, has
from compiler.ir.opdef.global_reductions import Whole
from compiler.plan import Plan, PlannedOp, Step

_SCRIPT = (Path(__file__).parent / "script.py.txt").read_text(encoding="utf-8")
STYLE = Style(
    "triton",
    "for Triton",
    ("import numpy as np", "import torch", "import triton", "import triton.language as tl"),
    _SCRIPT,
)


class TritonTarget:
    """Code generator for Triton kernels; ops without kernels run in NumPy on the host."""

    name = "triton"
    on_device = True
    multiplies_bytes = False

    def supports(self, op: Op) -> str:
        """Empty for an op with kernels; otherwise the reason it has none."""
        if op.body is not None:
            return "control flow runs on the host"
        return why_no_kernel(op, TYPES, self.writes(type(op.defn)))

    def writes(self, defn: type[OpDef]) -> bool:
        """True if an op has kernels for at least some attributes and types."""
        return has_kernel_body(defn) or _is_filled(defn)

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; `poison` and `check_numbers` as in NumpyTarget."""
        frame = TritonFrame(plan)
        frame.expects_numbers = check_numbers
        return assemble(plan, frame, _emit, STYLE, poison)


def launches(plan: Plan) -> dict[int, list[KernelSource]]:
    """The kernels of a plan in order, by the number of the step that launches them."""
    frame, found = TritonFrame(plan), dict[int, list[KernelSource]]()
    assemble(plan, frame, _emit, STYLE)
    for step, source in frame.launched:
        found.setdefault(step, []).append(source)
    return found


def _is_filled(defn: type[OpDef]) -> bool:
    """True for an op whose few values are computed on the host every step, then copied."""
    return callable(getattr(defn, "filled", None))


def _emit(frame: Frame, step: Step) -> None:
    """Emit kernels for a device step, NumPy for a host step."""
    if not isinstance(frame, TritonFrame):
        emit_step(frame, step)
        return
    frame.wait_for_downloads(step)
    if step.ops[0].kind in (TO_DEVICE, TO_HOST):
        _emit_copy(frame, step)
    elif not step.ops[0].target:
        emit_step(frame, step)
        frame.define_output_sizes(step)
    else:
        step = replace(step, ops=tuple(map(frame.named, step.ops)))
        _emit_device_step(frame, step)
        frame.define_output_sizes(step)
        check_outputs(frame, step)


def _emit_device_step(frame: TritonFrame, step: Step) -> None:
    """Emit the kernels of a device step."""
    comment_ops(frame, step)
    comment = [op.comment for op in step.ops]
    first = step.ops[0]
    if isinstance(first.defn, Whole) and (first.part is not None or not has(first.defn, "kernel")):
        emit_global_reduction(frame, step, first.kind, comment, frame.launch)
    elif first.part is not None:
        emit_multi_tensor(frame, step, fused_name(step.parts[0]), comment, frame.launch)
    elif _is_filled(type(first.defn)):
        out = frame.operand(first.outputs["Out"][0])
        frame.upload(out, call(first.defn, "filled", {}, frame))
    else:
        TritonKernels(frame).write(step)


class TritonKernels(StepKernels):
    """Writes the kernels of steps as Triton functions, and launches them."""

    def __init__(self, frame: TritonFrame) -> None:
        super().__init__(frame)
        self._triton = frame

    def pointwise(self, step: Step) -> None:
        """Write a kernel for each shape; two for a reduction that is split."""
        frame, comment = self._triton, [op.comment for op in step.ops]
        for original in kernels_of(step, fused_name(step.ops), frame):
            for kernel in split_kernel(original, partial(frame.scratch, on_device=True)):
                frame.launch(emit(kernel, frame.names, comment))

    def builder(self, ops: Sequence[PlannedOp], epilogue: Epilogue | None) -> TritonKernelBuilder:
        """Return the kernel builder of an op with its epilogue."""
        frame, comment = self._triton, [op.comment for op in ops]
        name = fused_name(ops)
        return TritonKernelBuilder(frame, ops[0], comment, frame.launch, name, epilogue)


def _emit_copy(frame: TritonFrame, step: Step) -> None:
    comment_ops(frame, step)
    op = frame.named(step.ops[0])
    source, out = frame.operand(op.inputs["X"][0]), op.outputs["Out"][0]
    if op.kind == TO_DEVICE:
        frame.upload(frame.operand(out), str(source))
    else:
        frame.download(out, source)
