"""Which ops a target's kernels can compute: has a body, known sizes, accepted inputs."""

from __future__ import annotations

from collections.abc import Container

from compiler.ir.analysis.data_dependent_sizes import infer_with_distinct_sizes, numbers_of
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Op, Var
from compiler.ir.opdef import GradOp, OpDef, Pointwise, listed, slot_of
from compiler.ir.opdef.global_reductions import KEY, Whole
from compiler.ir.opdef.slot_values import slot_reads
from compiler.ir.types import TOKEN, DType


def why_no_kernel(op: Op, types: Container[DType], has_kernel: bool, on_gpu: bool = False) -> str:
    """The reason why an op has no kernel for operands of these types; empty if it has one."""
    owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
    if not has_kernel:
        return owner.no_kernel_reason or f"{op.kind} has no kernel"
    reason = owner.no_kernel_for_attributes()
    if reason:
        return reason
    if not _is_sized(op):
        return "its sizes are data-dependent"
    if any(var.type.dtype not in types for var in _data_vars(op)):
        return "its operands are not numeric"
    unaccepted = _unaccepted_inputs(op)
    if unaccepted:
        return f"the kernels of {op.kind} do not accept {unaccepted[0]}"
    missing = [slot for slot in _missing_inputs(op) if not (on_gpu and slot == KEY)]
    if missing:
        return f"the kernels of {op.kind} need {missing[0]}"
    slots = op.defn.inputs().items()
    operands = {s: slot.hold([var.type for var in op.inputs.get(s, ())]) for s, slot in slots}
    hooks = ("host_only", "host_instead_of_gpu") if on_gpu else ("host_only",)
    try:
        reasons = [str(getattr(owner, hook)(operands)) for hook in hooks if hasattr(owner, hook)]
        return "; ".join(reason for reason in reasons if reason)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"its kernels cannot have these sizes: {error}"


def has_kernel_body(defn: type[OpDef]) -> bool:
    """True if a class has kernels for at least some attributes and types."""
    return issubclass(defn, Pointwise | Whole) or _body(defn) is not None


def _body(defn: type[OpDef]) -> tuple[type[OpDef], str] | None:
    """The class and method of an op's kernel body, if it has one."""
    body = (defn.forward, "kernel_grad") if issubclass(defn, GradOp) else (defn, "kernel")
    return body if callable(getattr(*body, None)) else None


def _data_vars(op: Op) -> list[Var]:
    """The operands of an op except tokens."""
    return [var for var in op.reads() + op.writes() if var.type != TOKEN]


def _is_sized(op: Op) -> bool:
    """True if all sizes are known before a kernel is launched.

    New names in the outputs must be sizes that the op's body sets, as declared by its class.
    """
    vars = op.reads() + op.writes()
    if any(var.type.is_array or UNKNOWN in var.type.shape for var in vars):
        return False
    if numbers_of(op) and infer_with_distinct_sizes(op) is None:
        return False
    owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
    input_names = {name for var in op.reads() for name in var.type.names}
    outputs = {name for var in op.writes() for name in var.type.names if name.startswith("?")}
    return outputs <= input_names or (owner.sets_output_sizes and owner is op.defn)


def _unaccepted_inputs(op: Op) -> list[str]:
    """The optional inputs of an op that its kernel body does not accept."""
    body = _body(type(op.defn))
    if body is None or isinstance(op.defn, Pointwise):
        return []
    taken = {*map(slot_of, slot_reads(*body).names), *body[0].unread_by_kernels}
    inputs = {s: op.defn.inputs().get(s) for s, vars in op.inputs.items() if vars}
    slots = {s: slot for s, slot in inputs.items() if slot is not None and s not in taken}
    unread = {s for s, d in slots.items() if d.companion or d.shape_only}
    if any(d.sizes_only for d in slots.values()) and _are_resolved(op):
        unread |= {s for s, d in slots.items() if d.sizes_only}
    return [s for s, d in slots.items() if d.optional and s not in unread]


def _missing_inputs(op: Op) -> list[str]:
    """The optional inputs that an op's kernel body reads, but the op does not have.

    On a GPU the pass `draw_keys` adds the RNG key of an op that has kernels.
    """
    body = _body(type(op.defn))
    if body is None or isinstance(op.defn, Pointwise):
        return []
    reads = slot_reads(*body)
    inputs = op.defn.inputs()
    return [
        s for s in sorted(reads.needed - reads.optional) if s in inputs and not op.inputs.get(s)
    ]


def _are_resolved(op: Op) -> bool:
    """True if the sizes of outputs come from the values of size inputs, not from attributes.

    Those of attributes must be compared with the values.
    """
    inferred = op.defn.infer_types(op.defn.types_of(op.inputs))
    return any(tensor_type.is_open for types in inferred.values() for tensor_type in listed(types))
