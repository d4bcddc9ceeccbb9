"""The state of the programs that are being recorded, to which a tried recording returns."""

from __future__ import annotations

from typing import cast

from fluid import unique_name
from fluid.dygraph.dygraph_to_static.values import Value
from fluid.framework import Program, default_main_program, default_startup_program

__all__ = ["ProgramState"]


class ProgramState:
    """The ops, variables and generated names of the default programs at one time."""

    def __init__(self) -> None:
        programs = [default_main_program(), default_startup_program()]
        self._programs = [_Saved(program) for program in programs]
        self._names = unique_name.generator, unique_name.generator.ids.copy()

    def restore(self) -> None:
        """Remove what was recorded since."""
        for program in self._programs:
            program.restore()
        generator, ids = self._names
        generator.ids = ids.copy()


class _Saved:
    """The state of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._attributes = {key: _copied(value) for key, value in vars(program).items()}
        self._blocks = [(block, list(block.ops), block.vars.copy()) for block in program.blocks]
        self._types = [
            (var, var.dims, var.element, var.op)
            for block in program.blocks
            for var in block.vars.values()
        ]

    def restore(self) -> None:
        version = self._program.version
        vars(self._program).update({key: _copied(value) for key, value in self._attributes.items()})
        self._program.version = version
        for block, ops, variables in self._blocks:
            block.ops, block.vars = list(ops), variables.copy()
        for var, dims, element, op in self._types:
            var.dims, var.element, var.op = dims, element, op
        self._program.touch()


def _copied(value: object) -> Value:
    return cast(Value, value).copy() if isinstance(value, dict | list) else value
