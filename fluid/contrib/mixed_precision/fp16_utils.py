"""Program rewriting for mixed precision, and the loss scale update.

Reference: fluid.contrib.mixed_precision.fp16_utils of release 1.8.5, which produces the same
programs, op by op, except for one bug: here an op inside a branch or a loop reads the float32 copy
that was made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from compiler.ir.program import BlockRef, OpRole
from compiler.ir.types import DType
from fluid import layers
from fluid.compat.descs import BlockDesc, OpDesc
from fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from fluid.framework import Block, Operator, Program, Variable
from fluid.optimizer.base import ParamGrad
from fluid.recording.var_types import var_type

__all__ = [
    "find_op_index",
    "find_true_post_op",
    "find_true_prev_op",
    "rewrite_program",
    "update_loss_scaling",
    "update_role_var_grad",
]

TEXT = {DType.FP16: "fp16", DType.BF16: "bf16", DType.FP32: "fp32"}
HOLDERS = {"LOD_TENSOR", "SELECTED_ROWS", "LOD_TENSOR_ARRAY"}


def rewrite_program(
    main_prog: Program, amp_lists: AutoMixedPrecisionLists, dtype: DType = DType.FP16
) -> None:
    """Rewrite the global block to compute in `dtype` (float16 or bfloat16) or float32, per lists.

    A gray op follows its inputs: float32 if any comes from an op in float32, half precision if any
    comes from one that is, unchanged otherwise. Casts are inserted before the first op that needs
    them.
    """
    block = main_prog.global_block()
    half = _half_precision_ops(block, amp_lists)
    for op in list(block.ops):
        if op in half:
            _set_compute_dtype(block, op, dtype if half[op] else DType.FP32, dtype)
    main_prog.touch()


def _half_precision_ops(block: Block, lists: AutoMixedPrecisionLists) -> dict[Operator, bool]:
    """Return whether each op computes in half precision; unchanged ops have no entry."""
    chosen: dict[Operator, bool] = {}
    written: dict[str, bool | None] = {}
    for op in block.ops:
        is_half = _is_half_precision(op, lists, {written.get(name) for name in op.reads()})
        if is_half is not None:
            chosen[op] = is_half
        written |= dict.fromkeys(op.writes(), is_half)
    return chosen


def _is_half_precision(
    op: Operator, lists: AutoMixedPrecisionLists, read: set[bool | None]
) -> bool | None:
    """Return whether an op computes in half precision, from the decisions for its producers."""
    named = lists.black_varnames or set()
    if not named.isdisjoint([*op.reads(), *op.writes()]) or op.type in lists.black_list:
        return False
    if op.type in lists.white_list:
        return True
    if op.type not in lists.gray_list:
        return False
    return next((is_half for is_half in (False, True) if is_half in read), None)


def _set_compute_dtype(block: Block, op: Operator, wanted: DType, half: DType) -> None:
    """Cast the inputs of an op and set the dtype of its outputs."""
    index = op.idx
    for slot in op.input_names:
        if not _keeps_float32(op, slot, "X", wanted):
            for name in op.input(slot):
                _cast_input(block, index, op, block.var(name), wanted, half)
    if wanted is half:
        for slot in op.output_names:
            if not _keeps_float32(op, slot, "Y", wanted):
                _mark_outputs(block, op, slot, half)


def _cast_input(
    block: Block, index: int, op: Operator, var: Variable, wanted: DType, half: DType
) -> None:
    """Cast an input of an op to a dtype; a variable that the op also writes is unchanged."""
    other = DType.FP32 if wanted is half else half
    differs = var.element is other and var.type.name in HOLDERS and var.name not in op.writes()
    if differs:
        _replace_by_cast(block, index, op, var, wanted)
    if op.has_attr("in_dtype") and (op.type == "cast" if differs else var.element is wanted):
        op.set_attr("in_dtype", int(var_type(wanted)))


def _keeps_float32(op: Operator, slot: str, sole: str, wanted: DType) -> bool:
    """Return whether a slot remains float32: statistics and parameters of batch norm do."""
    return wanted is not DType.FP32 and op.type == "batch_norm" and slot != sole


def _rename_arg(op: Operator, old_name: str, new_name: str) -> None:  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    """Rename a variable in all slots of an op."""
    op.rename_input(old_name, new_name)
    op.rename_output(old_name, new_name)


def _dtype_to_str(dtype: int) -> str:  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    """Return "fp16" for float16 and "fp32" for any other element type."""
    return "fp16" if DType.of(int(dtype)) is DType.FP16 else "fp32"


def _replace_by_cast(block: Block, index: int, op: Operator, var: Variable, wanted: DType) -> None:
    """Replace a variable, in an op and the blocks it owns, by a cast inserted before the op."""
    name = f"{var.name}.cast_{TEXT[wanted]}"
    if name not in block.vars:
        out = block.create_var(
            name=name, dtype=var_type(wanted), persistable=False, stop_gradient=False
        )
        attrs = {"in_dtype": int(var.dtype), "out_dtype": int(out.dtype)}
        block.insert_op(index, "cast", {"X": [var]}, {"Out": [out]}, attrs)
    op.rename_input(var.name, name)
    for inner in _owned_blocks(op):
        if var.name not in inner.vars:
            for inner_op in inner.ops:
                inner_op.rename_input(var.name, name)


def _owned_blocks(op: Operator) -> list[Block]:
    """Return the blocks an op owns, recursively."""
    refs = [value for value in op.attrs.values() if isinstance(value, BlockRef)]
    program = cast(Program, op.block.owner)
    blocks = [program.block(int(ref)) for ref in refs]
    return blocks + [
        owned for block in blocks for inner in block.ops for owned in _owned_blocks(inner)
    ]


def _mark_outputs(block: Block, op: Operator, slot: str, half: DType) -> None:
    """Mark float32 outputs as half precision."""
    for name in op.output(slot):
        var = block.var(name)
        if var.type.name in HOLDERS and var.element is DType.FP32:
            var.element = half
            if op.has_attr("out_dtype"):
                op.set_attr("out_dtype", int(var_type(half)))


def update_role_var_grad(main_prog: Program, params_grads: list[ParamGrad]) -> None:
    """Set the op role variables to the half-precision gradients and move their casts to the end.

    Gradients are then exchanged between trainers in half precision.
    """
    block = main_prog.global_block()
    for param, grad in params_grads:
        if grad is None:
            continue
        writers = [op for op in block.ops if grad.name in op.writes()]
        op = writers[-1]
        if grad.element is not DType.FP32 or op.type != "cast":
            continue
        op.remove_attr("op_role_var")
        (half,) = op.input("X")
        source = next(producer for producer in reversed(block.ops) if half in producer.writes())
        source.set_attr("op_role_var", [param.name, half, *source.attrs.get("op_role_var", [])])
        op.set_attr("op_role", int(OpRole.OPTIMIZE))
        block.ops.remove(op)
        block.ops.append(op)
    main_prog.touch()


def find_true_prev_op(ops: Sequence[Operator], cur_op: Operator, var_name: str) -> Operator | None:
    """Return the only op before `cur_op` that writes a variable, or None.

    Raises ValueError if several write it.
    """
    before = ops[: _position(ops, cur_op)]
    writers = [op for op in before if var_name in op.writes()]
    if len(writers) > 1:
        raise ValueError(f"There must be only one previous op that outputs {var_name} variable")
    return writers[0] if writers else None


def find_true_post_op(
    ops: Sequence[Operator], cur_op: Operator, var_name: str
) -> list[Operator] | None:
    """Return the ops after `cur_op` that read a variable; None if there are none."""
    after = ops[_position(ops, cur_op) + 1 :]
    return [op for op in after if var_name in op.reads()] or None


def _position(ops: Sequence[Operator], wanted: Operator) -> int:
    """Return the index of an op, the number of ops if it is not among them."""
    return next((index for index, op in enumerate(ops) if op is wanted), len(ops))


def find_op_index(block_desc: BlockDesc, cur_op_desc: OpDesc) -> int:
    """Return the position of an op in a block, by their descriptions; -1 if it is not in it."""
    indices = range(block_desc.op_size())
    return next((index for index in indices if block_desc.op(index) == cur_op_desc), -1)


def update_loss_scaling(
    is_overall_finite: Variable,
    prev_loss_scaling: Variable,
    num_good_steps: Variable,
    num_bad_steps: Variable,
    incr_every_n_steps: Variable,
    decr_every_n_nan_or_inf: Variable,
    incr_ratio: float,
    decr_ratio: float,
) -> None:
    """Append ops that increase the loss scale after many good steps, decrease it after bad ones.

    A step is good if all gradients are finite. The scale remains finite and at least 1.
    """
    zero_steps = layers.fill_constant(shape=[1], dtype="int32", value=0)
    counters = num_good_steps, num_bad_steps, zero_steps
    with layers.Switch() as switch:
        with switch.case(is_overall_finite):
            enough = layers.less_than(incr_every_n_steps, num_good_steps + 1)
            with layers.Switch() as growing:
                with growing.case(enough):
                    _increase(prev_loss_scaling, incr_ratio)
                    _reset_counters(*counters)
                with growing.default():
                    layers.increment(num_good_steps)
                    layers.assign(zero_steps, num_bad_steps)
        with switch.default():
            enough = layers.less_than(decr_every_n_nan_or_inf, num_bad_steps + 1)
            with layers.Switch() as shrinking:
                with shrinking.case(enough):
                    _decrease(prev_loss_scaling, decr_ratio)
                    _reset_counters(*counters)
                with shrinking.default():
                    layers.assign(zero_steps, num_good_steps)
                    layers.increment(num_bad_steps)


def _reset_counters(
    num_good_steps: Variable, num_bad_steps: Variable, zero_steps: Variable
) -> None:
    layers.assign(zero_steps, num_good_steps)
    layers.assign(zero_steps, num_bad_steps)


def _increase(scale: Variable, ratio: float) -> None:
    larger = scale * ratio
    is_finite = layers.isfinite(larger)
    with layers.Switch() as switch:
        with switch.case(is_finite):
            layers.assign(larger, scale)
        with switch.default():
            pass


def _decrease(scale: Variable, ratio: float) -> None:
    smaller = scale * ratio
    least = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
    is_less = layers.less_than(smaller, least)
    with layers.Switch() as switch:
        with switch.case(is_less):
            layers.assign(least, scale)
        with switch.default():
            layers.assign(smaller, scale)
