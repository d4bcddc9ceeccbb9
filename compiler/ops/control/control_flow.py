"""Control flow of programs: ops that own a block.

None has numerics of its own: conversion to a graph replaces them.
Slots and attributes are declared here so that programs can be validated, together with the op that
owns the gradient block, and its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from compiler.ir.autodiff.grad_ops import Inside
from compiler.ir.opdef import Attr, OpDef, Slot, Slots, attr, attr_list, reads, writes
from compiler.ir.program import GRAD, BlockRef, OpDesc
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import element_type

# ---- ops that own a block -----------------------------------------------------------------------


def _many(read: Iterable[str], written: Iterable[str]) -> dict[str, Slot]:
    """Return slots for any number of variables, for names that cannot be class members."""
    inputs = {name: replace(reads(many=True, optional=True), name=name) for name in read}
    outputs = {name: replace(writes(many=True, optional=True), name=name) for name in written}
    return inputs | outputs


class BlockOwner(OpDef):
    """An op that runs the block `sub_block`, whose ops can access the enclosing variables.

    The scope slot holds what each run saves for the gradient.
    """

    sub_block = attr(BlockRef(0))
    skip_eager_deletion_vars = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}


class ConditionalBlockInfer(BlockOwner, op="conditional_block_infer"):
    """`conditional_block` for inference programs. Reference: conditional_block_op.cc."""

    no_kernel_reason = "the host executes control flow"

    Cond = reads(many=True)
    Input = reads(many=True, optional=True)
    Out = writes(many=True, optional=True)
    Scope = writes(optional=True)
    is_scalar_condition = attr(False)


class ConditionalBlock(ConditionalBlockInfer, op="conditional_block"):
    """Run the block `sub_block` if Cond is true; Out lists the outer variables that it writes.

    Cond is one boolean if `is_scalar_condition`, else the block runs if no Cond is empty. Input
    lists the outer variables that the block reads. Reference: conditional_block_op.cc.
    """

    no_kernel_reason = "the host executes control flow"

    may_not_run: ClassVar[bool] = True

    def arriving(self, op: OpDesc) -> list[str]:
        return []

    def carried(self, op: OpDesc) -> list[str]:
        return []

    def block_grad(self, op: OpDesc, inside: Inside) -> OpDesc:
        read = _with(op.inputs.get("Input", []), inside.passed)
        written = op.outputs.get("Out", [])
        inputs = {"Cond": op.inputs["Cond"], "Input": read, "Out": written}
        scope = {"Out" + GRAD: inside.taken(written), "Scope": op.outputs.get("Scope", [])}
        attrs = {"is_scalar_condition": self.is_scalar_condition}
        return OpDesc(op.type + "_grad", inputs | scope, {"Input" + GRAD: inside.left(read)}, attrs)


class While(BlockOwner, op="while"):
    """Run the block `sub_block` while Condition, which the block updates, is true.

    X lists the outer variables that the block reads, Out those it writes. Reference: while_op.cc.
    """

    no_kernel_reason = "the host executes control flow"

    X = reads(many=True, optional=True)
    Condition = reads()
    Out = writes(many=True, optional=True)
    StepScopes = writes(optional=True)
    is_test = attr(False)

    def arriving(self, op: OpDesc) -> list[str]:
        return []

    def carried(self, op: OpDesc) -> list[str]:
        return [name for name in op.outputs.get("Out", []) if name in op.inputs.get("X", [])]

    def block_grad(self, op: OpDesc, inside: Inside) -> OpDesc:
        read = _with(op.inputs.get("X", []), inside.passed)
        inputs = {"X": read, "Out": op.outputs.get("Out", [])}
        taken = {"Out" + GRAD: [inside.grad(name) for name in inside.asked]}
        scopes = {"StepScopes": op.outputs.get("StepScopes", [])}
        attrs = {**op.attrs, "original_output_grad": [name + GRAD for name in inside.asked]}
        outputs = {"X" + GRAD: inside.left(read)}
        return OpDesc(op.type + "_grad", inputs | taken | scopes, outputs, attrs)


class Recurrent(BlockOwner, op="recurrent"):
    """Run the block `sub_block` for each step: a slice of the first axis of each of `inputs`.

    Inside, an input's name denotes its step, and `ex_states` the values of `states` from the
    previous run, initially `initial_states`; `outputs` stack the inner variables of their names
    over the steps. `reverse` starts with the last step. Reference: recurrent_op.cc.
    """

    no_kernel_reason = "the host executes control flow"

    slots: ClassVar[dict[str, Slot]] = _many(
        ["inputs", "initial_states", "parameters"], ["outputs", "step_scopes"]
    )
    has_states = attr(False)
    ex_states = attr_list(str)
    states = attr_list(str)
    reverse = attr(False)
    is_train = attr(True)

    def arriving(self, op: OpDesc) -> list[str]:
        return [*op.outputs.get("outputs", []), *self.states]

    def carried(self, op: OpDesc) -> list[str]:
        return []

    def block_grad(self, op: OpDesc, inside: Inside) -> OpDesc:
        scopes = op.outputs.get("step_scopes", [])
        outside = op.outputs.get("outputs", [])
        inputs = {**op.inputs, "outputs": outside, "outputs" + GRAD: inside.taken(outside)}
        inputs |= {"step_scopes": scopes, "step_scopes" + GRAD: scopes}
        outputs = {
            "inputs" + GRAD: inside.left(op.inputs.get("inputs", [])),
            "initial_states" + GRAD: inside.left(
                op.inputs.get("initial_states", []), self.ex_states
            ),
            "parameters" + GRAD: inside.left(op.inputs.get("parameters", [])),
        }
        return OpDesc(op.type + "_grad", inputs, outputs, op.attrs)


class ConditionalBlockGrad(BlockOwner, op="conditional_block_grad"):
    """Run the gradient of a conditional block if it ran. Reference: conditional_block_op.cc."""

    no_kernel_reason = "the host executes control flow"

    slots: ClassVar[dict[str, Slot]] = _many(
        ["Cond", "Input", "Out", "Out@GRAD", "Scope"], ["Input@GRAD"]
    )
    is_scalar_condition = attr(False)


class WhileGrad(BlockOwner, op="while_grad"):
    """Run the gradient of a loop's block for each of its runs, in reverse order.

    `original_output_grad` are the inner names of Out@GRAD. Reference: while_op.cc.
    """

    no_kernel_reason = "the host executes control flow"

    slots: ClassVar[dict[str, Slot]] = _many(["X", "Out", "Out@GRAD", "StepScopes"], ["X@GRAD"])
    is_test = attr(False)
    original_output_grad = attr_list(str)


class RecurrentGrad(BlockOwner, op="recurrent_grad"):
    """Run the gradient of a step's block for every step, in reverse order.

    Reference: recurrent_op.cc.
    """

    no_kernel_reason = "the host executes control flow"

    slots: ClassVar[dict[str, Slot]] = _many(
        [*Recurrent.slots, "outputs@GRAD", "step_scopes@GRAD"],
        ["inputs@GRAD", "initial_states@GRAD", "parameters@GRAD"],
    )
    attrs: ClassVar[dict[str, Attr[Any]]] = Recurrent.attrs


class RnnMemoryHelper(OpDef, op="rnn_memory_helper"):
    """Out = X: an output or state of a step of `recurrent`. Reference: rnn_memory_helper_op.cc.

    Its gradient is zeros of `dtype` if there is no incoming gradient, as for the last step's state.
    """

    no_kernel_reason = "the host executes control flow"

    X = reads()
    Out = writes()
    dtype = attr(DType.FP32.code)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def numpy(self, X: Array) -> Array:
        return X

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def grad(self, X: Array, Out: Shape, d_Out: Array | None) -> dict[str, Array]:
        return {"X": np.zeros(X.shape, element_type(self.dtype)) if d_Out is None else d_Out}


def _with(names: list[str], more: Iterable[str]) -> list[str]:
    """Return the union of names, in order."""
    return list(dict.fromkeys([*names, *more]))
