"""Single ops that are run on the variables of a scope, without a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from compiler.ir.opdef import find
from fluid.compat.old_names.op_variables import Result, declare, sparse_result
from fluid.compat.op_protos import get_all_op_protos
from fluid.executor import Executor
from fluid.framework import Block, Program, program_guard
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["Operator", "get_all_op_protos"]

Names = dict[str, list[str]]


def _listed(names: object) -> list[str]:
    return [names] if isinstance(names, str) else list(cast(Iterable[str], names))


class Operator:
    """One op: its type, variables by slot, and attributes, to be run in a scope.

    `Operator("scale", X="x", Out="y", scale=2.0).run(scope, place)`. A slot takes a name or a list
    of names. Raises CompileError for an unknown type, and TypeError for a keyword that is neither a
    slot nor an attribute of it.
    """

    def __init__(self, type: str, **kwargs: object) -> None:
        self._type, self._definition = type, find(type)
        self._inputs = self._taken(kwargs, self._definition.inputs())
        self._outputs = self._taken(kwargs, self._definition.outputs())
        unknown = [name for name in kwargs if name not in self._definition.attrs]
        if unknown:
            raise TypeError(f"op {type} has neither a slot nor an attribute {unknown[0]!r}")
        self._attrs = kwargs

    def _taken(self, kwargs: dict[str, object], slots: Iterable[str]) -> Names:
        return {slot: _listed(kwargs.pop(slot)) for slot in slots if slot in kwargs}

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

    def run(self, scope: Scope, place: Place) -> None:
        """Compute the outputs from the variables of a scope, and put them there.

        Inputs may be tensors or SelectedRows. Sparse outputs become SelectedRows, and their rows
        are those of the reference: a sum has each row once. Raises ValueError for an input that is
        not in the scope.
        """
        program = Program()
        with program_guard(program, Program()):
            block, feed = program.global_block(), dict[str, object]()
            for name in dict.fromkeys(self.input_vars()):
                feed |= declare(block, scope, name)
            for name in self.output_vars():
                if not block.has_var(name):
                    block.create_var(name=name)
            block.append_op(self._type, self._inputs, self._outputs, self._attrs)
            results = [self._result(block, name) for name in dict.fromkeys(self.output_vars())]
        fetch = [name for result in results for name in result.fetched]
        values = iter(Executor(place).run(program, feed, fetch, return_numpy=False))
        for result in results:
            result.store(scope, place, [next(values) for _ in result.fetched])

    def _result(self, block: Block, name: str) -> Result:
        """What is fetched of an output."""
        var = block.var(name)
        if var.type != VarDesc.VarType.SELECTED_ROWS:
            return Result(name, [name])
        return sparse_result(block, name, merged=self._type == "sum")
