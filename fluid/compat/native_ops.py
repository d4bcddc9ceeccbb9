"""What scripts ask of Paddle's native module about op types and their gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compiler.ir import program as ir
from compiler.ir.autodiff.double_grad import SECOND
from compiler.ir.autodiff.grad_ops import gradient_ops
from compiler.ir.opdef import GradOp, Pointwise, find, is_registered
from compiler.ir.opdef.slots import GRAPH_ONLY
from compiler.ir.program import EMPTY, GRAD
from fluid.compat.descs import BlockDesc, OpDesc
from fluid.recording.op_records import plain
from runtime.gpu.cuda import gpu_count
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = [
    "get_grad_op_desc", "get_op_attrs_default_value", "get_variable_tensor", "has_grad_op_maker",
    "has_infer_inplace", "has_non_empty_grad_op_maker", "infer_no_need_buffer_slots",
    "op_support_gpu",
]  # fmt: skip


def has_grad_op_maker(op_type: str) -> bool:
    """True for every registered op; an op may have no gradient ops.

    Raises UnknownOp for a type that is not registered.
    """
    return bool(find(op_type))


def has_non_empty_grad_op_maker(op_type: str) -> bool:
    """Whether an op has a gradient. Raises UnknownOp for a type that is not registered."""
    defn = find(op_type)
    if issubclass(defn, GradOp):
        has_dedicated = defn.forward.is_piecewise_linear or defn.forward.linear_in
        return is_registered(op_type + SECOND) or bool(has_dedicated)
    return defn.grad_class is not None or (hasattr(defn, "grad_ops") or hasattr(defn, "block_grad"))


def has_infer_inplace(op_type: str) -> bool:
    """Whether an output of an op may take over the memory of an input."""
    defn = find(op_type)
    return issubclass(defn, Pointwise) or any(s.inplace for s in defn.outputs().values())


def op_support_gpu(op_type: str) -> bool:
    """Whether an op can run on a GPU of this machine."""
    return is_registered(op_type) and gpu_count() > 0


def infer_no_need_buffer_slots(
    op_type: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    attrs: Mapping[str, object],
) -> set[str]:
    """The input slots of which an op reads the shape and not the data."""
    return {name for name, slot in find(op_type).inputs().items() if slot.shape_only}


def get_op_attrs_default_value(op_type: bytes) -> dict[str, object]:
    """The defaults of the attributes that have one, by name."""
    attrs = find(op_type.decode()).attrs.items()
    defaults = {n: a.default for n, a in attrs if a.default is not None and n not in GRAPH_ONLY}
    always: dict[str, object]
    always = {"op_role": 4096, "op_role_var": [], "op_namescope": "", "op_callstack": []}
    plain_values: dict[str, object] = {name: plain(value) for name, value in defaults.items()}
    return plain_values | always | {"op_device": ""}


def get_grad_op_desc(
    op: OpDesc, no_grad_set: Collection[str], grad_sub_blocks: Sequence[BlockDesc]
) -> tuple[list[OpDesc], dict[str, str]]:
    """The ops of an op's gradient, and the variable that each gradient is of.

    `no_grad_set` names gradients that are left out. `grad_sub_blocks` are not used: the gradient
    of a block is made by `append_backward`.
    """
    plain_op = ir.OpDesc(op.type(), op.inputs(), op.outputs(), dict(op.described_op.attrs))
    gradients = gradient_ops(plain_op, lambda name: name + GRAD)
    for gradient_op in gradients:
        gradient_op.outputs = {
            s: _wanted(names, no_grad_set) for s, names in gradient_op.outputs.items()
        }
        gradient_op.attrs.setdefault("op_role", int(ir.OpRole.BACKWARD))
    named = {
        n
        for gradient_op in gradients
        for n in (*gradient_op.reads(), *gradient_op.writes())
        if n.endswith(GRAD)
    }
    return [OpDesc(gradient_op) for gradient_op in gradients], {
        n: n.removesuffix(GRAD) for n in sorted(named)
    }


def _wanted(names: Sequence[str], unwanted: Collection[str]) -> list[str]:
    """Gradients but those left out: of several the empty name keeps the place of each."""
    if len(names) == 1:
        return [name for name in names if name not in unwanted]
    return [EMPTY if name in unwanted else name for name in names]


def get_variable_tensor(scope: Scope, name: str) -> LoDTensor:
    """The tensor of a variable of a scope; ValueError where there is none of that name."""
    variable = scope.find_var(name)
    if variable is None:
        raise ValueError(f"variable {name!r} is not in the scope")
    return variable.get_tensor()
