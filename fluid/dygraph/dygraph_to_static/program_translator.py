"""`ProgramTranslator`: the programs of functions that are written for eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import ClassVar, TypeVar

from compiler.support.tracebacks import entry_point
from fluid.dygraph.dygraph_to_static import operators
from fluid.dygraph.dygraph_to_static.conversion import (
    rewritten_source,
    undecorated,
    underlying_function,
)
from fluid.dygraph.dygraph_to_static.program_cache import (
    ConcreteProgram,
    FunctionSpec,
    ProgramCache,
    recorded,
)
from fluid.dygraph.dygraph_to_static.values import Value
from fluid.eager.static_recording import StaticRecording, record
from fluid.executor import Executor, scope_guard
from fluid.framework import Variable
from fluid.recording.checks import check_type
from fluid.saving.inference_model import save_inference_model
from runtime.tensors.scope import Scope

__all__ = [
    "ConcreteProgram", "FunctionSpec", "ProgramCache", "ProgramTranslator",
    "convert_function_with_cache", "convert_to_static", "save_recording",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])


def save_recording(
    recording: StaticRecording,
    scope: Scope,
    dirname: str,
    feed: Sequence[int] | None,
    fetch: Sequence[int] | None,
) -> None:
    """Save a recording as an inference model; `feed` and `fetch` select variables."""
    feeds = _chosen(recording.feeds, feed)
    outputs = _chosen(recording.outputs, fetch)
    names = [var.name for var in feeds]
    program = recording.program.clone()
    with scope_guard(scope):
        save_inference_model(dirname, names, outputs, Executor(), program)


def _chosen(variables: list[Variable], indices: Sequence[int] | None) -> list[Variable]:
    return variables if indices is None else [variables[index] for index in indices]


class ProgramTranslator:
    """The programs of functions with `declarative`; there is one translator."""

    _instance: ClassVar[ProgramTranslator | None] = None
    enable_declarative = True
    _program_cache: ProgramCache

    def __new__(cls) -> ProgramTranslator:
        """Return the translator."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._program_cache = ProgramCache()
        return cls._instance

    @classmethod
    def get_instance(cls) -> ProgramTranslator:
        """Return the translator."""
        return cls()

    @classmethod
    def reset(cls) -> None:
        """Forget what was called, and enable `declarative`."""
        cls._instance = None

    def enable(self, enable_declarative: bool) -> None:
        """Set whether `declarative` has an effect; functions run eagerly in any case."""
        check_type(enable_declarative, "enable_declarative", bool, "ProgramTranslator.enable")
        self.enable_declarative = enable_declarative

    def get_output(
        self, dygraph_func: Callable[..., object], *args: object, **kwargs: object
    ) -> Value:
        """Call a function; returns its result."""
        _expect_function(dygraph_func, "get_output")
        if self.enable_declarative:
            self._program_cache.called(FunctionSpec(dygraph_func, args, kwargs))
        return dygraph_func(*args, **kwargs)

    def get_func(self, dygraph_func: F) -> F:
        """Return a function that appends the ops of a call to the default program.

        Branches and loops on tensors become ops too, except after `enable(False)`. Raises OSError
        if its source is not available.
        """
        _expect_function(dygraph_func, "get_func")
        if not self.enable_declarative:
            return dygraph_func
        return operators.converted(undecorated(dygraph_func), required=True)

    @entry_point
    def get_program(
        self, dygraph_func: Callable[..., object], *args: object, **kwargs: object
    ) -> Value:
        """Return the program of a call, its startup program, its inputs and its outputs.

        After `enable(False)` the function is called, as in the reference.
        """
        _expect_function(dygraph_func, "get_program")
        if not self.enable_declarative:
            return dygraph_func(*args, **kwargs)
        function = operators.converted(undecorated(dygraph_func))
        recording = record(partial(function, **kwargs), args)
        return recording.program, recording.startup, recording.feeds, recording.outputs

    def get_program_cache(self) -> ProgramCache:
        """Return the programs of functions with `declarative` that were called."""
        return self._program_cache

    def get_code(self, dygraph_func: Callable[..., object]) -> str:
        """Return the source of a function as it is rewritten for programs.

        Raises OSError if its source is not available.
        """
        _expect_function(dygraph_func, "get_code")
        function = underlying_function(undecorated(dygraph_func))
        assert function is not None, "get_code takes a function or a method"
        return rewritten_source(function)

    @entry_point
    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Save the function called last as a program; `feed` and `fetch` select variables.

        Raises RuntimeError if no function with `declarative` was called.
        """
        if not len(self._program_cache):
            raise RuntimeError("no function with `declarative` was called: there is no program")
        recording = recorded(self._program_cache.last_call())
        save_recording(recording, recording.scope(), dirname, feed, fetch)


@lru_cache(maxsize=256)
def convert_to_static(dyfunc: Callable[..., object]) -> Value:
    """Return what `ProgramTranslator.get_func` does, the same one for the same function."""
    return operators.converted(undecorated(dyfunc), required=True)


convert_function_with_cache = convert_to_static


def _expect_function(function: object, method: str) -> None:
    assert callable(function), f"Input dygraph_func is not a callable in {method}"
