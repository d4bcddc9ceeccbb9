"""Which variables of a program are saved, and their values in the global scope."""

from __future__ import annotations

from typing import Any

from compiler.ir.program import VarKind
from fluid.executor import Executor, fetch_var
from fluid.framework import Parameter, Program, Variable, default_main_program

__all__ = [
    "get_parameter_value",
    "get_parameter_value_by_name",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_belong_to_optimizer",
    "is_parameter",
    "is_persistable",
]

_NEVER_SAVED = (VarKind.FEED, VarKind.FETCH, VarKind.READER)


def is_parameter(var: Variable) -> bool:
    """True for what optimizers update, and for the running statistics beside it."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """True for what outlives a run and can be saved."""
    return var.kind not in _NEVER_SAVED and var.persistable


def is_belong_to_optimizer(var: Variable) -> bool:
    """True for what an optimizer remembers: persistable, neither a parameter nor to be fed."""
    return is_persistable(var) and not is_parameter(var) and not var.need_check_feed


def get_parameter_value(para: Variable, executor: Executor) -> Any:
    """A copy of a parameter's array in the global scope; `executor` is not needed here.

    Raises AssertionError for a variable that is no parameter, and where it has no value yet.
    """
    assert is_parameter(para), "The input variable is not parameter."
    return fetch_var(para.name)


def get_parameter_value_by_name(
    name: str, executor: Executor, program: Program | None = None
) -> Any:
    """`get_parameter_value` of the parameter of a name in a program, by default the main one."""
    found = (program or default_main_program()).global_block().var(name)
    return get_parameter_value(found, executor)


def get_program_parameter(program: Program) -> list[Parameter]:
    """The parameters of a program, in order of creation."""
    return [var for var in program.list_vars() if is_parameter(var)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """The variables of a program that outlive a run, in order of creation."""
    return [var for var in program.list_vars() if is_persistable(var)]
