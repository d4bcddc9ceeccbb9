"""The Triton target: kernels for the device, NumPy for what stays on the host, one step of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.epilogue import head_and_tail
from compiler.codegen.module import Module
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.numpy import Style, assemble, emit_step, tell_ops
from compiler.codegen.triton.bind_and_run import TritonFrame
from compiler.codegen.triton.emit import Written, emit
from compiler.codegen.triton.epilogues import Tail, fused_name, tail_of, wanted
from compiler.codegen.triton.kernel_builder import TritonKernelBuilder
from compiler.codegen.triton.multi_tensor.global_reductions import emit_whole
from compiler.codegen.triton.multi_tensor.kernels import emit_several
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.pointwise import kernels_of
from compiler.codegen.triton.tiling.split_reductions import split
from compiler.ir.analysis.data_dependent_sizes import inferred_apart, numbers_of
from compiler.ir.analysis.placement import TO_DEVICE, TO_HOST
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Op, Var
from compiler.ir.opdef import GradOp, OpDef, Pointwise, call, has, parameters, slot_of
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.types import TOKEN
from compiler.plan import Plan, PlannedOp, Step

_SCRIPT = (Path(__file__).parent / "script.py.txt").read_text(encoding="utf-8")
_COPIES = {TO_DEVICE: "upload", TO_HOST: "download"}
"""The functions of a module that copy between the sides."""

STYLE = Style(
    "triton",
    "for Triton",
    ("import numpy as np", "import torch", "import triton", "import triton.language as tl"),
    _SCRIPT,
)


class TritonTarget:
    """Writes modules of Triton kernels; what has none of its own in them is NumPy on the host."""

    name = "triton"

    def supports(self, op: Op) -> str:
        """Empty for what kernels are written for, else why not."""
        if op.body is not None:
            return "branches and loops are steered by the host"
        owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
        if not self.writes(type(op.defn)):
            return owner.no_kernel_reason or f"{op.kind} has no kernel"
        declined = owner.no_kernel_for_attributes()
        if declined:
            return declined
        if not _is_sized(op):
            return "only data decides its sizes"
        if any(var.type.dtype not in TYPES for var in _with_data(op)):
            return "it works on what is no number"
        untold = _untold(op)
        if untold:
            return f"the kernels of {op.kind} do not read {untold[0]}"
        slots = op.defn.inputs().items()
        held = {s: slot.hold([var.type for var in op.inputs.get(s, ())]) for s, slot in slots}
        refuse = getattr(owner, "host_only", None)
        return refuse(held) if refuse is not None else ""

    def writes(self, defn: type[OpDef]) -> bool:
        """True where an op has kernels, for some calls of it at least."""
        return issubclass(defn, Pointwise | Whole) or _body(defn) is not None or _is_filled(defn)

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """The module of a plan, with `poison` and `check_numbers` as NumpyTarget has them."""
        frame = TritonFrame(plan)
        frame.expects_numbers = check_numbers
        return assemble(plan, frame, _emit, STYLE, poison)


def launches(plan: Plan) -> dict[int, list[Written]]:
    """The kernels of a plan, in order, by the number of the step that launches them."""
    frame, found = TritonFrame(plan), dict[int, list[Written]]()
    assemble(plan, frame, _emit, STYLE)
    for step, source in frame.launched:
        found.setdefault(step, []).append(source)
    return found


def _body(defn: type[OpDef]) -> tuple[type[OpDef], str] | None:
    """The class that has the body of an op's kernels, and what it is called there."""
    found = (defn.forward, "triton_grad") if issubclass(defn, GradOp) else (defn, "triton")
    return found if callable(getattr(*found, None)) else None


def _with_data(op: Op) -> list[Var]:
    """The vars of an op but for tokens."""
    return [var for var in op.reads() + op.writes() if var.type != TOKEN]


def _is_sized(op: Op) -> bool:
    """True where all sizes are known by name before a kernel is launched.

    Names that are new with an op are those that its body tells, where its class says so.
    """
    vars = op.reads() + op.writes()
    if any(var.type.is_array or UNKNOWN in var.type.shape for var in vars):
        return False
    if numbers_of(op) and inferred_apart(op) is None:
        return False
    owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
    known = {name for var in op.reads() for name in var.type.names}
    made = {name for var in op.writes() for name in var.type.names if name.startswith("?")}
    return made <= known or (owner.sets_output_sizes and owner is op.defn)


def _is_filled(defn: type[OpDef]) -> bool:
    """True for an op whose few numbers the host makes in every step, and the device copies."""
    return callable(getattr(defn, "filled", None))


def _untold(op: Op) -> list[str]:
    """The optional inputs of a call whose elements the body of its kernels does not take."""
    found = _body(type(op.defn))
    if found is None or isinstance(op.defn, Pointwise):
        return []
    taken = {slot_of(name) for name, _ in parameters(*found)}
    given = {s: op.defn.inputs().get(s) for s, vars in op.inputs.items() if vars}
    slots = {s: slot for s, slot in given.items() if slot is not None and s not in taken}
    return [s for s, d in slots.items() if d.optional and not (d.companion or d.shape_only)]


def _emit(frame: Frame, step: Step) -> None:
    """Kernels for a step of the device, NumPy for one of the host."""
    if not isinstance(frame, TritonFrame):
        emit_step(frame, step)
    elif step.ops[0].kind in _COPIES:
        _emit_copy(frame, step)
    elif not step.ops[0].target:
        emit_step(frame, step)
        frame.measure(step)
    else:
        step = replace(step, ops=tuple(map(frame.named, step.ops)))
        _emit_there(frame, step)
        frame.measure(step)
        check_outputs(frame, step)


def _emit_there(frame: TritonFrame, step: Step) -> None:
    """The kernels of a step of the device."""
    tell_ops(frame, step)
    comment = [op.text + f"  {op.source}" * bool(op.source) for op in step.ops]
    first, *others = step.ops
    if isinstance(first.defn, Whole) and (first.part is not None or not has(first.defn, "triton")):
        emit_whole(frame, step, first.kind, comment, frame.launch)
    elif first.part is not None:
        emit_several(frame, step, fused_name(step.parts[0]), comment, frame.launch)
    elif _is_filled(type(first.defn)):
        out = frame.operand(first.outputs["Out"][0])
        frame.line(f"upload({out}, {call(first.defn, 'filled', {}, frame)})")
    elif isinstance(first.defn, Pointwise):
        _emit_pointwise(frame, step, comment)
    elif others:
        _emit_fused(frame, step, comment)
    else:
        _emit_op(frame, first, comment)


def _emit_pointwise(frame: TritonFrame, step: Step, comment: Sequence[str]) -> None:
    for whole in kernels_of(step, fused_name(step.ops), frame):
        for lanes in split(whole, partial(frame.scratch, on_device=True)):
            frame.launch(emit(lanes, frame.names, comment))


def _emit_fused(frame: TritonFrame, step: Step, comment: Sequence[str]) -> None:
    """A head whose kernel has a tail; or two kernels, where the tail has to wait for the head."""
    step = replace(step, ops=(wanted(step.ops[0]), *step.ops[1:]))
    tail = tail_of(frame, step)
    if tail is not None:
        _emit_op(frame, step.ops[0], comment, fused_name(step.ops), tail)
        return
    head, rest = head_and_tail(frame, step)
    _emit_op(frame, head, comment[:1])
    _emit_pointwise(frame, rest, comment[1:])


def _emit_copy(frame: TritonFrame, step: Step) -> None:
    tell_ops(frame, step)
    op = frame.named(step.ops[0])
    source, target = frame.operand(op.inputs["X"][0]), frame.operand(op.outputs["Out"][0])
    frame.line(f"{_COPIES[op.kind]}({target}, {source})")


def _emit_op(
    frame: TritonFrame, op: PlannedOp, comment: Sequence[str], name: str = "",
    tail: Tail | None = None,
) -> None:  # fmt: skip
    """An op's own kernels."""
    kernels = TritonKernelBuilder(frame, op, comment, frame.launch, name, tail)
    call(op.defn, "triton", kernels.operands(), kernels)
    kernels.finish()
