"""The Triton target: kernels for device ops, NumPy for host ops, in one step function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from compiler.codegen.assemble import Style, assemble
from compiler.codegen.kernel.epilogues import FusedEpilogue, fused_name
from compiler.codegen.kernel.pointwise import kernels_of
from compiler.codegen.kernel.step_kernels import StepKernels
from compiler.codegen.kernel.support import has_kernel_body, why_no_kernel
from compiler.codegen.module import Module
from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.numpy import emit_step
from compiler.codegen.triton.emit import emit
from compiler.codegen.triton.kernel_builder import TritonKernelBuilder
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.library_calls import emit_library_call
from compiler.codegen.triton.module_writer import TritonModuleWriter
from compiler.codegen.triton.multi_tensor.global_reductions import emit_global_reduction
from compiler.codegen.triton.multi_tensor.kernels import emit_multi_tensor
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.libraries import library_choice
from compiler.codegen.triton.tiling.split_reductions import split_kernel
from compiler.codegen.triton.tiling.tuning import Product, RecordingTable
from compiler.ir.analysis.placement import LIBRARY, TO_DEVICE, TO_HOST
from compiler.ir.attention import AttentionSupport
from compiler.ir.graph import Op
from compiler.ir.opdef import OpDef, call, has
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.types import HALVES, DType
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
    attention = AttentionSupport(
        HALVES | {DType.FP32}, HALVES, reads_statistics=True, skips_later_keys=True
    )
    libraries = staticmethod(library_choice)

    def supports(self, op: Op) -> str:
        """Empty for an op with kernels; otherwise the reason it has none."""
        if op.body is not None:
            return "control flow runs on the host"
        return why_no_kernel(op, TYPES, self.writes(type(op.defn)), on_gpu=True)

    def writes(self, defn: type[OpDef]) -> bool:
        """True if an op has kernels for at least some attributes and types."""
        return has_kernel_body(defn) or _is_filled(defn)

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; `poison` and `check_numbers` as in NumpyTarget."""
        writer = TritonModuleWriter(plan)
        writer.expects_numbers = check_numbers
        return assemble(plan, writer, _emit, STYLE, poison)


def launches(plan: Plan) -> dict[int, list[KernelSource]]:
    """The kernels of a plan in order, by the number of the step that launches them."""
    writer, found = TritonModuleWriter(plan), dict[int, list[KernelSource]]()
    assemble(plan, writer, _emit, STYLE)
    for step, source in writer.launched:
        found.setdefault(step, []).append(source)
    return found


def products(plan: Plan) -> list[Product]:
    """The products of a plan whose tiles can be measured."""
    writer, table = TritonModuleWriter(plan), RecordingTable()
    writer.device = replace(writer.device, table=table)
    assemble(plan, writer, _emit, STYLE)
    return list(table.asked)


def _is_filled(defn: type[OpDef]) -> bool:
    """True for an op whose few values are computed on the host every step, then copied."""
    return callable(getattr(defn, "filled", None))


def _emit(writer: ModuleWriter, step: Step) -> None:
    """Emit kernels for a device step, NumPy for a host step."""
    if not isinstance(writer, TritonModuleWriter):
        emit_step(writer, step)
        return
    writer.begin(step)
    if step.ops[0].kind in (TO_DEVICE, TO_HOST):
        _emit_copy(writer, step)
    elif not step.ops[0].target:
        emit_step(writer, step)
        writer.define_output_sizes(step)
    else:
        step = replace(step, ops=tuple(map(writer.named, step.ops)))
        emit_device = emit_library_call if step.ops[0].target == LIBRARY else _emit_device_step
        emit_device(writer, step)
        writer.define_output_sizes(step)
        check_outputs(writer, step)


def _emit_device_step(writer: TritonModuleWriter, step: Step) -> None:
    """Emit the kernels of a device step."""
    writer.comment_ops(step)
    comment = [op.comment for op in step.ops]
    first = step.ops[0]
    if isinstance(first.defn, Whole) and (first.part is not None or not has(first.defn, "kernel")):
        emit_global_reduction(writer, step, first.kind, comment, writer.launch)
    elif first.part is not None:
        emit_multi_tensor(writer, step, fused_name(step.parts[0]), comment, writer.launch)
    elif _is_filled(type(first.defn)):
        out = writer.operand(first.outputs["Out"][0])
        writer.upload(out, call(first.defn, "filled", {}, writer))
    else:
        TritonKernels(writer).write(step)


class TritonKernels(StepKernels):
    """Writes the kernels of steps as Triton functions, and launches them."""

    def __init__(self, writer: TritonModuleWriter) -> None:
        super().__init__(writer)
        self._triton = writer

    def pointwise(self, step: Step) -> None:
        """Write a kernel for each shape; two for a reduction that is split."""
        writer, comment = self._triton, [op.comment for op in step.ops]
        for original in kernels_of(step, fused_name(step.ops), writer):
            for kernel in split_kernel(original, partial(writer.scratch, on_device=True)):
                writer.launch(emit(kernel, writer.names, comment))

    def builder(
        self, ops: Sequence[PlannedOp], epilogue: FusedEpilogue | None
    ) -> TritonKernelBuilder:
        """Return the kernel builder of an op with its epilogue."""
        writer, comment = self._triton, [op.comment for op in ops]
        name = fused_name(ops)
        return TritonKernelBuilder(writer, ops[0], comment, writer.launch, name, epilogue)


def _emit_copy(writer: TritonModuleWriter, step: Step) -> None:
    writer.comment_ops(step)
    op = writer.named(step.ops[0])
    source, out = writer.operand(op.inputs["X"][0]), op.outputs["Out"][0]
    if op.kind == TO_DEVICE:
        writer.upload(writer.operand(out), str(source))
    else:
        writer.download(out, source)
