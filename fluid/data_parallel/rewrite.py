"""Insertion of collectives into a training program: gradients are scaled and all-reduced.

`insert_all_reduces` edits the program in place: a clone in data-parallel runs, the user's program
in the transpiler's `grad_allreduce` mode. The ops, their order and their attributes are those of
Paddle 1.8.5's `transpiler/collective.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from compiler.ir.program import OpDesc, OpRole
from fluid.recording.annotations import Attributes
from fluid.recording.block import BlockProgram

__all__ = [
    "computes_gradients",
    "gradient_pairs",
    "insert_all_reduces",
    "insert_gradient_scale",
    "loss_gradients",
    "remove_loss_gradients",
    "set_rank_count",
    "sum_of",
    "synchronize_batch_norms",
]

_SYNC_TYPES = {"batch_norm": "sync_batch_norm", "batch_norm_grad": "sync_batch_norm_grad"}


def insert_all_reduces(
    program: BlockProgram,
    ranks: int,
    rings: int = 1,
    scale: bool = True,
    fuse: bool = True,
    params: Collection[str] | None = None,
) -> list[str]:
    """All-reduce every parameter gradient over `ranks` ranks, after scaling the loss gradient.

    Returns the names of the reduced gradients, the last one first; with `params`, only the
    gradients of these.

    After the op that writes the loss gradient comes `scale` by 1/ranks, unless `scale` is false.
    After each op with gradients in `op_role_var` come one `c_sync_calc_stream` and one
    `c_allreduce_sum` per gradient, the last one first; ring ids alternate from the last op with
    gradients to the first. Before the first optimizer op comes one `c_sync_comm_stream` per ring.
    Gradients of parameters with `is_distributed` are not reduced. Without `fuse` each gradient is
    reduced separately, before the next op (attribute `use_calc_stream`). Only the global block is
    edited.
    """
    if scale:
        insert_gradient_scale(program, ranks)
    set_rank_count(program, ranks)
    summed = _insert_sums(program, rings, {} if fuse else {"use_calc_stream": True}, params)
    if summed:
        _insert_comm_syncs(program, summed[-1], rings)
    return summed


def set_rank_count(program: BlockProgram, ranks: int) -> None:
    """Set the number of ranks in ops that compress gradients."""
    block = program.global_block()
    numbers = {op.inputs["nranks"][0] for op in block.ops if op.type == "dgc"}
    for name in sorted(numbers):
        dtype = int(block.vars[name].dtype)
        attrs = {"shape": [1], "dtype": dtype, "value": float(ranks), "op_role": 0}
        block.insert_op(0, "fill_constant", {}, {"Out": name}, attrs)


def sum_of(op: OpDesc) -> tuple[str, dict[str, str], dict[str, object]]:
    """The all-reduce op for a gradient that `op` completes, with its extra inputs and attributes.

    A compressed gradient is sent without its zeros.
    """
    if op.type != "dgc":
        return "c_allreduce_sum", {}, {}
    begin = {"rampup_begin_step": op.attrs["rampup_begin_step"]}
    return "dgc_allreduce_sum", {"current_step": op.inputs["current_step"][0]}, begin


def insert_gradient_scale(program: BlockProgram, ranks: int) -> None:
    """Multiply the gradient of the loss by 1/ranks, right after the op that writes it."""
    block = program.global_block()
    for index, op in reversed(list(enumerate(block.ops))):
        if _is_loss_gradient(op):
            name = op.writes()[0]
            attrs = {"scale": 1.0 / ranks, "op_role": int(OpRole.BACKWARD)}
            block.insert_op(index + 1, "scale", {"X": name}, {"Out": name}, attrs)


def loss_gradients(program: BlockProgram) -> list[str]:
    """Names of the loss gradients: the outputs of ops whose role is Backward and Loss."""
    return [op.writes()[0] for op in program.global_block().ops if _is_loss_gradient(op)]


def remove_loss_gradients(program: BlockProgram) -> None:
    """Remove the ops that write the loss gradient; the user feeds it instead."""
    block = program.global_block()
    for index, op in reversed(list(enumerate(block.ops))):
        if _is_loss_gradient(op):
            block.remove_op(index)


def synchronize_batch_norms(program: BlockProgram) -> None:
    """Replace each batch_norm and its gradient by the op with statistics over all ranks."""
    for block in program.blocks:
        for op in block.ops:
            op.type = _SYNC_TYPES.get(op.type, op.type)
    program.touch()


def gradient_pairs(op: OpDesc) -> Iterator[tuple[str, str]]:
    """The (parameter, gradient) names in `op_role_var` of a backward op; none for other ops."""
    if op.role & OpRole.BACKWARD:
        names: list[str] = op.attrs.get("op_role_var") or []
        yield from zip(names[::2], names[1::2], strict=True)


def _is_loss_gradient(op: OpDesc) -> bool:
    return op.role & (OpRole.BACKWARD | OpRole.LOSS) == OpRole.BACKWARD | OpRole.LOSS


def _insert_sums(
    program: BlockProgram, rings: int, attrs: Attributes, params: Collection[str] | None
) -> list[str]:
    """Insert the all-reduces of all gradients; returns their names, the last one first."""
    block, summed = program.global_block(), list[str]()
    for index, op in reversed(list(enumerate(block.ops))):
        pairs = [pair for pair in gradient_pairs(op) if _is_common(program, pair[0], params)]
        for _, gradient in pairs:
            kind, inputs, own = sum_of(op)
            where = {"ring_id": len(summed) % rings, **(own or attrs)}
            summed.append(gradient)
            _insert(program, index + 1, kind, gradient, where, inputs)
        if pairs:
            _insert(program, index + 1, "c_sync_calc_stream", pairs[0][1], {})
    return summed


def _insert_comm_syncs(program: BlockProgram, name: str, rings: int) -> None:
    """Insert a wait for the all-reduces of each ring before the first optimizer op."""
    ops = program.global_block().ops
    first = next((i for i, op in enumerate(ops) if op.role & OpRole.OPTIMIZE), None)
    if first is not None:
        for ring in range(rings):
            _insert(program, first + ring, "c_sync_comm_stream", name, {"ring_id": ring})


def _insert(
    program: BlockProgram,
    index: int,
    kind: str,
    name: str,
    attrs: Attributes,
    inputs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Insert a collective on one variable, in place, with the role Backward."""
    attrs, inputs = {**attrs, "op_role": int(OpRole.BACKWARD)}, {"X": name, **inputs}
    program.global_block().insert_op(index, kind, inputs, {"Out": name}, attrs)


def _is_common(program: BlockProgram, name: str, params: Collection[str] | None) -> bool:
    """Whether all ranks update a parameter: it is in `params`, if given, and not distributed."""
    chosen = params is None or name in params
    return chosen and not getattr(program.global_block().vars.get(name), "is_distributed", False)


def computes_gradients(program: BlockProgram) -> bool:
    """Whether any op of the main block belongs to the backward pass."""
    return any(op.role & OpRole.BACKWARD for op in program.global_block().ops)
