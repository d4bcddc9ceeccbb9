"""Eager mode: what enables it, makes variables in it, and controls gradients."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from threading import get_ident
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from compiler.ir.types import Array
from compiler.support.tracebacks import entry_point
from fluid import unique_name
from fluid.eager import traces
from fluid.eager.complex_variable import ComplexVariable
from fluid.eager.programs import EagerBlock, EagerProgram, constant, gradients_disabled
from fluid.eager.variables import VarBase
from fluid.framework import (
    Variable,
    default_main_program,
    in_dygraph_mode,
    recording_guard,
)
from runtime.device import CPUPlace, Place

__all__ = [
    "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative", "guard",
    "no_grad", "to_variable",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])

_owners: list[int] = []
"""The threads that entered eager mode, outermost first."""

_enabled: list[AbstractContextManager[None]] = []
"""The context that `enable_dygraph` entered."""


@contextmanager
def guard(place: Place | None = None) -> Generator[None]:
    """Run ops when their values are needed, within a `with` block; see `fluid.eager`.

    `place` is where they run, by default the CPU. Names of parameters begin at 0 again. A thread
    that is started within a guard shares that: its own guards have no effect.
    """
    owner = _owners[-1] if _owners else get_ident()
    if in_dygraph_mode() and owner != get_ident():
        yield
        traces.current().run()
        return
    program = EagerProgram()
    _owners.append(get_ident())
    before = traces.set_place(place)
    try:
        with recording_guard(program, program), unique_name.guard():
            yield
        traces.current().run()
    finally:
        _owners.pop()
        traces.set_place(before)


def enable_dygraph(place: Place | None = None) -> None:
    """Enter eager mode, as `guard` does, until `disable_dygraph`."""
    if not in_dygraph_mode():
        _enabled.append(guard(place or CPUPlace()))
        _enabled[-1].__enter__()


def disable_dygraph() -> None:
    """Leave the mode that `enable_dygraph` entered."""
    if _enabled:
        _enabled.pop().__exit__(None, None, None)


enable_imperative = enable_dygraph
disable_imperative = disable_dygraph


@entry_point
def to_variable(value: Any, name: str | None = None, zero_copy: bool | None = None) -> VarBase:
    """Return a variable with a copy of an array as its value; a variable is returned as it is.

    A complex array becomes a `ComplexVariable`. While a program of a function is recorded
    (`declarative`), its variables are returned as they are.

    Raises AssertionError outside eager mode and TypeError for a value of another type, as the
    reference does.
    """
    program = default_main_program()
    block = program.current_block()
    if program.follows_layers and isinstance(value, Variable):
        return cast(VarBase, value)
    if not isinstance(block, EagerBlock):
        raise AssertionError(
            "'to_variable' can only be called in dygraph mode: within fluid.dygraph.guard()"
        )
    if isinstance(value, Variable | ComplexVariable):
        return cast(VarBase, value)
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(
            "The type of input value is invalid, expected type is 'ndarray', 'Variable' or "
            f"'ComplexVariable', but received {type(value)}."
        )
    array: Array = np.asarray(cast(object, value))
    if not np.iscomplexobj(array):
        return constant(block, value, name)
    names = (None, None) if name is None else (f"{name}.real", f"{name}.imag")
    parts: tuple[Array, Array] = (np.real(array), np.imag(array))
    real, imag = map(partial(constant, block), map(np.ascontiguousarray, parts), names)
    return cast(VarBase, ComplexVariable(real, imag))


class no_grad:
    """Context manager, and decorator, in which ops get no gradients."""

    def __new__(cls, function: Callable[..., object] | None = None) -> Any:
        """Return a context manager, or the decorated function."""
        context = super().__new__(cls)
        return context if function is None else context(function)

    def __init__(self, function: Callable[..., object] | None = None) -> None:
        self._context: AbstractContextManager[None] | None = None

    def __call__(self, function: F) -> F:
        """Return a function that runs in this context."""

        @wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            with gradients_disabled():
                return function(*args, **kwargs)

        return cast(F, call)

    def __enter__(self) -> None:
        self._context = gradients_disabled()
        self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._context is not None:
            self._context.__exit__(kind, error, traceback)
