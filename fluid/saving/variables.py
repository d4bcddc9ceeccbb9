"""Selection of the variables to save, and their values in the global scope."""

from __future__ import annotations

from typing import TypeGuard, cast

from compiler.ir.program import VarKind
from compiler.ir.types import Array
from fluid.executor import Executor, fetch_var
from fluid.framework import Block, Parameter, Program, Variable, default_main_program

__all__ = [
    "clone_var_in_block",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_belong_to_optimizer",
    "is_parameter",
    "is_persistable",
]

_NEVER_SAVED = (VarKind.FEED, VarKind.FETCH, VarKind.READER)


def is_parameter(var: Variable) -> TypeGuard[Parameter]:
    """True for parameters, including the running statistics stored with them."""
    return isinstance(var, Parameter)


def has_fixed_shape(var: Variable) -> bool:
    """True for parameters, and for what no op of the program writes.

    Other state may be saved in another shape than declared, as in the reference, where an op gives
    it its shape. Ops that cannot compute with a loaded shape raise StateMismatch.
    """
    return is_parameter(var) or var.op is None


def is_persistable(var: Variable) -> bool:
    """True for persistable variables that can be saved."""
    return var.kind not in _NEVER_SAVED and var.persistable


def clone_var_in_block(block: Block, var: Variable) -> Variable:
    """Declare a persistable copy of a variable in another block; returns it."""
    return block.clone_variable(var, force_persistable=True)


def is_belong_to_optimizer(var: Variable) -> bool:
    """True for optimizer state: persistable, neither a parameter nor a feed."""
    return is_persistable(var) and not is_parameter(var) and not var.need_check_feed


def get_parameter_value(para: Variable, executor: Executor) -> Array:
    """A copy of a parameter's array in the global scope; `executor` is not used.

    Raises AssertionError for a variable that is not a parameter or has no value yet.
    """
    assert is_parameter(para), "The input variable is not parameter."
    return cast(Array, fetch_var(para.name))


def get_parameter_value_by_name(
    name: str, executor: Executor, program: Program | None = None
) -> Array:
    """`get_parameter_value` by name in a program, by default the main program."""
    parameter = (program or default_main_program()).global_block().var(name)
    return get_parameter_value(parameter, executor)


def get_program_parameter(program: Program) -> list[Parameter]:
    """The parameters of a program, in order of creation."""
    return [var for var in program.list_vars() if is_parameter(var)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """The persistable variables of a program, in order of creation."""
    return [var for var in program.list_vars() if is_persistable(var)]
