"""Atomic calls: a call that fails undoes what it appended to programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from traceback import walk_tb
from typing import TypeVar, cast

from compiler.errors import CompileError
from compiler.support.tracebacks import passes_arguments
from fluid.framework import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_of,
)
from fluid.recording.arguments import ArgumentError, typed
from fluid.recording.checks import AxisError
from fluid.recording.op_records import is_ours

__all__ = ["atomic", "checked_all"]

F = TypeVar("F", bound=Callable[..., object])

_SLIPS = (ArithmeticError, AttributeError, LookupError, MemoryError)
"""Errors of Python and NumPy; ours among them say themselves what is wrong."""


def atomic(function: F) -> F:
    """Wrap a function to remove the blocks, variables and ops it appended if it fails.

    Python errors over unexpected arguments become an ArgumentError that shows them.

    >>> import fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 3])
    ...     try:
    ...         fluid.layers.fc(x, 2, act="rellu")
    ...     except fluid.core.EnforceNotMet:
    ...         print(repr(fluid.default_main_program().global_block()))
    <Block 0: 1 variables, 0 ops>
    """

    @passes_arguments
    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        is_eager = default_main_program().is_eager  # nothing is appended to it
        programs = [] if is_eager else _programs(*args, *kwargs.values())
        marks = [_Mark(program) for program in programs]
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            for mark in marks:
                mark.restore()
            if not _is_slip(error) or _is_the_users(error):
                raise
            received = ", ".join(f"{argument!r:.60}" for argument in (*args, *kwargs.values()))
            raise ArgumentError(f"{function.__name__} cannot take {received}") from error

    return cast(F, call)


def checked_all(names: Mapping[str, object]) -> dict[str, Callable[..., object]]:
    """The public functions among the names of a module, each `typed` and `atomic`.

    They are functions of that module, where `pickle` finds them.
    """
    public = {name: value for name, value in names.items() if not name.startswith("_")}
    functions = {name: value for name, value in public.items() if inspect.isfunction(value)}
    checked = {name: typed(atomic(value)) for name, value in functions.items()}
    for name, function in checked.items():
        function.__module__, function.__qualname__ = str(names["__name__"]), name
    return checked


def _programs(*arguments: object) -> list[Program]:
    """The default programs, those among arguments, and those of variables among them."""
    programs = [default_main_program(), default_startup_program()]
    programs += [argument for argument in arguments if isinstance(argument, Program)]
    programs += [program_of(argument) for argument in arguments if isinstance(argument, Variable)]
    return list(dict.fromkeys(programs))


def _is_slip(error: BaseException) -> bool:
    """Whether Python raised an error over unchecked arguments."""
    return isinstance(error, _SLIPS) and not isinstance(error, AxisError | CompileError)


def _is_the_users(error: BaseException) -> bool:
    """Whether the traceback of an error passes through a user function."""
    return not all(is_ours(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))


class _Mark:
    """A snapshot of a program's length: new variables are at the end, new ops anywhere."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.current = program.current_block_idx
        self.reads = len(program.readers)
        self.seeds_given = program.seed_count
        self.blocks = [(list(block.ops), len(block.vars)) for block in program.blocks]

    def restore(self) -> None:
        """Remove everything added since."""
        program = self.program
        program.current_block_idx, program.seed_count = self.current, self.seeds_given
        del program.blocks[len(self.blocks) :], program.readers[self.reads :]
        for block, (ops, count) in zip(program.blocks, self.blocks, strict=True):
            block.ops = ops
            for name in list(block.vars)[count:]:
                del block.vars[name]
        program.touch()
