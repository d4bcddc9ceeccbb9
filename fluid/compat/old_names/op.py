"""Single ops that are run on the variables of a scope, without a program."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from compiler.ir.opdef import find
from fluid.compat.native_ops import op_support_gpu
from fluid.compat.old_names.op_creation import (
    OpDescCreationMethod,
    OpInfo,
    create_op_creation_method,
    is_str,
)
from fluid.compat.old_names.op_rows import ran_on_rows
from fluid.compat.old_names.op_variables import (
    Result,
    copy_tensor,
    declare,
    declare_output,
    has_no_rows,
    holds_rows,
    is_sparse,
    sparse_result,
    values_of,
)
from fluid.compat.op_protos import OpProtoHolder, get_all_op_protos
from fluid.executor import Executor
from fluid.framework import Block, Program, recording_guard
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = [
    "OpDescCreationMethod", "OpInfo", "Operator", "create_op_creation_method", "get_all_op_protos",
    "is_str",
]  # fmt: skip

Names = dict[str, list[str]]

_MERGING = ("sum", "clip", "clip_by_norm")
"""Ops whose sparse results have each row once."""


def _listed(names: object) -> list[str]:
    return [names] if isinstance(names, str) else list(cast(Iterable[str], names))


class Operator:
    """One op: its type, variables by slot, and attributes, to be run in a scope.

    `Operator("scale", X="x", Out="y", scale=2.0).run(scope, place)`. A slot takes a name or a list
    of names. A keyword that is neither a slot nor an attribute is ignored, with a warning. Raises
    CompileError for an unknown type.
    """

    def __init__(self, type: str, **kwargs: object) -> None:
        self._type, self._definition = type, find(type)
        self._inputs = self._taken(kwargs, self._definition.inputs())
        self._outputs = self._taken(kwargs, self._definition.outputs())
        if kwargs.get("remote_prefetch") and kwargs.get("table_names"):
            self._outputs.pop("W_Out", None)  # the table stays on its servers
        unknown = [name for name in kwargs if name not in self._definition.attrs]
        for name in unknown:
            text = f"op {type} has neither a slot nor an attribute {name!r}: it is ignored"
            warnings.warn(text, stacklevel=2)
        self._attrs = {name: value for name, value in kwargs.items() if name not in unknown}

    def _taken(self, kwargs: dict[str, object], slots: Iterable[str]) -> Names:
        return {slot: _listed(kwargs.pop(slot)) for slot in slots if slot in kwargs}

    @staticmethod
    def types() -> list[str]:
        """All op types."""
        return [proto.type for proto in get_all_op_protos()]

    @staticmethod
    def get_op_info(t: str) -> OpInfo:
        """Describe an op type; ValueError for an unknown one."""
        return create_op_creation_method(OpProtoHolder.instance().get_op_proto(t))

    @staticmethod
    def get_op_inputs(type: str) -> list[tuple[str, bool]]:
        """The input slots of an op type, each with whether it takes several variables."""
        return Operator.get_op_info(type).inputs

    @staticmethod
    def get_op_outputs(type: str) -> list[tuple[str, bool]]:
        """The output slots of an op type, each with whether it takes several variables."""
        return Operator.get_op_info(type).outputs

    @staticmethod
    def get_op_input_names(type: str) -> list[str]:
        """The input slots of an op type."""
        return [name for name, _ in Operator.get_op_inputs(type)]

    @staticmethod
    def get_op_output_names(type: str) -> list[str]:
        """The output slots of an op type."""
        return [name for name, _ in Operator.get_op_outputs(type)]

    @staticmethod
    def get_op_attr_names(type: str) -> list[str]:
        """The attributes of an op type."""
        return Operator.get_op_info(type).attrs

    def type(self) -> str:
        """The type of the op."""
        return self._type

    def input(self, name: str) -> list[str]:
        """The variables of an input slot."""
        return list(self._inputs.get(name, []))

    def output(self, name: str) -> list[str]:
        """The variables of an output slot."""
        return list(self._outputs.get(name, []))

    def inputs(self) -> Names:
        """The variables of all input slots."""
        return {slot: list(names) for slot, names in self._inputs.items()}

    def outputs(self) -> Names:
        """The variables of all output slots."""
        return {slot: list(names) for slot, names in self._outputs.items()}

    def input_vars(self) -> list[str]:
        """All variables that are read."""
        return [name for names in self._inputs.values() for name in names]

    def output_vars(self) -> list[str]:
        """All variables that are written."""
        return [name for names in self._outputs.values() for name in names]

    def support_gpu(self) -> bool:
        """Whether programs may run this op on a GPU."""
        return op_support_gpu(self._type)

    def run(self, scope: Scope, place: Place) -> None:
        """Compute the outputs from the variables of a scope, and put them there.

        Variables may be tensors, tensor arrays or SelectedRows. Sparse outputs become SelectedRows,
        and their rows are those of the reference: a sum has each row once. An op without sparse
        variant computes the values of an output that is SelectedRows in the scope. Raises
        ValueError for an input that is not in the scope.
        """
        if ran_on_rows(self._type, self._inputs | self._outputs, self._attrs, scope, place):
            return
        op = self._without_empty_rows(scope)
        if op is None:
            return
        program = Program()
        with recording_guard(program, Program()):
            block, feed = program.global_block(), dict[str, object]()
            for name in dict.fromkeys(op.input_vars()):
                feed |= declare(block, scope, name)
            for name in op.output_vars():
                if not block.has_var(name):
                    feed |= declare_output(block, scope, name)
            block.append_op(op._type, op._inputs, op._outputs, op._attrs)
            sparse = [name for name in op.output_vars() if holds_rows(scope, name)]
            if not all(is_sparse(block, name) for name in sparse):
                op._run_on_values(scope, place)
                return
            results = [op._result(block, name) for name in op._computed(block)]
        fetch = [name for result in results for name in result.fetched]
        values = iter(Executor(place).run(program, feed, fetch, return_numpy=False))
        for result in results:
            result.store(scope, place, [next(values) for _ in result.fetched])

    def _computed(self, block: Block) -> list[str]:
        """The outputs, without optional ones that the op does not compute here."""
        slots = self._definition.outputs()
        found = {
            name: None
            for slot, names in self._outputs.items()
            for name in names
            if not slots[slot].optional or block.var(name).dims is not None
        }
        return list(found)

    def _without_empty_rows(self, scope: Scope) -> Operator | None:
        """This op, or a `sum` without its inputs that have no rows; None if there are no others.

        Such a sum has no rows either.
        """
        if self._type != "sum":
            return self
        names = [name for name in self._inputs["X"] if not has_no_rows(scope, name)]
        if names:
            return Operator(self._type, X=names, **self._outputs, **self._attrs)
        (result,) = self._outputs["Out"]
        if holds_rows(scope, result):
            first = scope.var(self._inputs["X"][0]).get_selected_rows()
            rows = scope.var(result).get_selected_rows()
            rows.set_rows([])
            rows.set_height(first.height())
        return None

    def _run_on_values(self, scope: Scope, place: Place) -> None:
        """Compute tensors from the values of SelectedRows; results have the same rows."""
        inner = Scope()
        sparse = [name for name in self.input_vars() if holds_rows(scope, name)]
        for name in self.input_vars():
            copy_tensor(values_of(scope, name), values_of(inner, name), place)
        self.run(inner, place)
        for name in self.output_vars():
            result = values_of(inner, name)
            copy_tensor(result, values_of(scope, name), place)
            if holds_rows(scope, name):
                source = scope.var(sparse[0]).get_selected_rows() if sparse else None
                rows = scope.var(name).get_selected_rows()
                rows.set_rows([] if source is None else source.rows())
                rows.set_height(result.shape()[0] if source is None else source.height())

    def _result(self, block: Block, name: str) -> Result:
        """What is fetched of an output."""
        var = block.var(name)
        if var.type == VarDesc.VarType.LOD_TENSOR_ARRAY:
            return Result(name, [name], is_array=True)
        if not is_sparse(block, name):
            return Result(name, [name])
        result = sparse_result(block, name, merged=self._type in _MERGING)
        sections = cast(list[int], self._attrs.get("height_sections", []))
        if not sections:
            return result
        return replace(result, height=sections[self._outputs["Out"].index(name)])
