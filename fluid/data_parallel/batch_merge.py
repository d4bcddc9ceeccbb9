"""Gradients of several passes over a batch, merged before the update: `multi_batch_merge_pass`.

Source: `framework/ir/multi_batch_merge_pass.cc` of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from compiler.ir.program import OpRole
from fluid.framework import Program
from fluid.recording.block import Block
from fluid.recording.operator import Operator

__all__ = ["BATCH_MERGE", "merge_batches"]

BATCH_MERGE = "multi_batch_merge_pass"
UPDATES = OpRole.OPTIMIZE | OpRole.DIST | OpRole.RPC
RUNNING = {"Mean": "MeanOut", "Variance": "VarianceOut"}
"""The running statistics of batch_norm: input and output slots."""


def merge_batches(program: Program, repeats: int) -> None:
    """Compute forward and backward `repeats` times, and update by the mean of the gradients.

    The gradient `g` of repetition 1 is `g.repeat.1`. A batch norm has running statistics of its own
    for each repetition where the program has variables of such names. Raises NotImplementedError
    for a program with readers, whose repetitions would not read other batches.
    """
    if program.readers:
        raise NotImplementedError(
            f"{BATCH_MERGE} repeats steps on what is fed, and the program reads from a loader; "
            "set the batch size of the loader instead"
        )
    block = program.global_block()
    schedule = [op for op in block.ops if op.role & OpRole.LRSCHED]
    updates = [op for op in block.ops if op.role & UPDATES]
    others = {id(op) for op in [*schedule, *updates]}
    passes = [op for op in block.ops if id(op) not in others]
    written = {name for op in passes for name in op.writes()}
    params = {g: p for g, p in _params_by_gradient(updates).items() if g in written}
    copies = [_repeated(block, op, params, number) for number in range(repeats) for op in passes]
    block.ops = [*schedule, *copies]
    for gradient, param in params.items():
        _append_mean(block, param, gradient, repeats)
    block.ops += updates
    program.touch()


def _params_by_gradient(updates: Iterable[Operator]) -> dict[str, str]:
    """The parameter of each gradient that an op uses to update it."""
    names: list[list[str]] = [op.attrs.get("op_role_var") or [] for op in updates]
    return {
        gradient: param
        for pairs in names
        for param, gradient in zip(pairs[::2], pairs[1::2], strict=True)
    }


def _repeated(block: Block, op: Operator, gradients: Collection[str], number: int) -> Operator:
    """A copy of an op on the gradients and running statistics of a repetition."""
    copied = op.copied_to(block)
    for name in {*op.reads(), *op.writes()} & set(gradients):
        _declare(block, name, _name(name, number))
        copied.rename_input(name, _name(name, number))
        copied.rename_output(name, _name(name, number))
        copied.attrs.pop("op_role_var", None)
    for read, written in RUNNING.items() if op.type == "batch_norm" else ():
        own = _name(op.inputs[read][0], number)
        if own in block.vars:
            copied.inputs[read] = copied.outputs[written] = [own]
    return copied


def _declare(block: Block, name: str, copy: str) -> None:
    if copy not in block.vars:
        block.vars[copy] = declared = block.var(name).copied_to(block)
        declared.name = copy


def _append_mean(block: Block, param: str, gradient: str, repeats: int) -> None:
    """Append the mean of the repeated gradients of a parameter."""
    names = [_name(gradient, number) for number in range(repeats)]
    role = {"op_role": int(OpRole.BACKWARD)}
    pair = {**role, "op_role_var": [param, gradient]}
    out = {"Out": gradient}
    block.append_op("sum", {"X": names}, out, role)
    block.append_op("scale", {"X": gradient}, out, {"scale": 1.0 / repeats, **pair})


def _name(name: str, number: int) -> str:
    return f"{name}.repeat.{number}"
