"""Running the ops of a program in eager mode, so that they get gradients as called layers do.

Ops are recorded one by one. A loop or a branch is run as Python runs one: its condition is
computed, and its block's ops are recorded as often as they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from compiler.errors import CompileError
from compiler.ir import program as ir
from compiler.ir.opdef.slots import GRAPH_ONLY
from compiler.ir.types import DType
from fluid.eager.programs import EagerBlock
from fluid.eager.variables import VarBase
from fluid.framework import Program
from fluid.recording.annotations import SlotValue
from fluid.recording.operator import Operator

__all__ = ["replay"]

_RECORDED = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device")
"""Attributes that say where an op was recorded."""


def replay(
    program: Program, block: EagerBlock, given: Mapping[str, VarBase], *, is_test: bool
) -> dict[str, VarBase]:
    """Record the ops of a program on variables by name; returns those and what the ops computed.

    `is_test` becomes the attribute of the ops that have it. Raises CompileError for a variable that
    no op has computed, and for ops on tensor arrays, readers, files and other computers.
    """
    values = dict(given)
    _Replay(block, values, is_test).run(program.global_block())
    return values


class _Replay:
    """One run of a program."""

    def __init__(self, block: EagerBlock, values: dict[str, VarBase], is_test: bool) -> None:
        self._block = block
        self._values = values
        self._is_test = is_test

    def run(self, block: ir.Block) -> None:
        for op in cast("list[Operator]", block.ops):
            if op.type == "while":
                body = op.block_attr("sub_block")
                while self._is_true(op, "Condition"):
                    self.run(body)
            elif op.type == "conditional_block":
                if self._is_true(op, "Cond"):
                    self.run(op.block_attr("sub_block"))
            elif op.type == "select_input":
                index = int(self._value(op, op.input("Mask")[0]))
                self._values[op.output("Out")[0]] = self._value(op, op.input("X")[index])
            elif op.type not in ("feed", "fetch"):
                self._append(op)

    def _is_true(self, op: Operator, slot: str) -> bool:
        return all(bool(self._value(op, name).array().all()) for name in op.input(slot))

    def _value(self, op: Operator, name: str) -> VarBase:
        if name not in self._values:
            raise CompileError(f"{op.type} reads {name!r}, which no op before it has computed")
        return self._values[name]

    def _append(self, op: Operator) -> None:
        attrs = {
            name: value
            for name, value in op.attrs.items()
            if name not in GRAPH_ONLY and name not in _RECORDED
        }
        if any(isinstance(value, ir.BlockRef) for value in attrs.values()):
            raise CompileError(f"{op.type} cannot run in eager mode: it has a block")
        if "is_test" in attrs:
            attrs["is_test"] = self._is_test
        inputs: dict[str, SlotValue] = {
            slot: [self._value(op, name) for name in names]
            for slot, names in op.inputs.items()
            if names
        }
        read = {name for names in op.inputs.values() for name in names}
        outputs: dict[str, SlotValue] = {}
        written: dict[str, VarBase] = {}
        for slot, names in op.outputs.items():
            for name in names:
                var = self._values.get(name)
                is_updated = name in read and var is not None and bool(var.node.state_name)
                if var is None or not is_updated:
                    var = VarBase.of(self._block, None, self._element(op, name))
                written[name] = var
            if names:
                outputs[slot] = [written[name] for name in names]
        self._block.append_op(op.type, inputs, outputs, attrs)
        self._values |= written

    def _element(self, op: Operator, name: str) -> DType:
        declared = op.block.lookup(name)
        return DType.FP32 if declared is None else declared.element
