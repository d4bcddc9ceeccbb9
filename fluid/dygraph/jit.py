"""Static programs of eager functions: `TracedLayer`, `declarative`, `ProgramTranslator`.

A decorated function runs eagerly, with the same speed and values: its ops are one compiled program
anyway (`fluid.eager`). Programs are recorded when they are saved or asked for.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from compiler.support.tracebacks import entry_point
from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.dygraph.layers import Layer
from fluid.eager import traces
from fluid.eager.static_recording import StaticRecording, record
from fluid.eager.variables import VarBase
from fluid.executor import Executor, scope_guard
from fluid.framework import Program, Variable, in_dygraph_mode
from fluid.recording.checks import check_type
from fluid.saving.inference_model import save_inference_model
from runtime.tensors.scope import Scope

__all__ = ["ProgramTranslator", "TracedLayer", "declarative", "dygraph_to_static_func"]

F = TypeVar("F", bound=Callable[..., object])


class TracedLayer:
    """A layer as a static program, which `trace` makes."""

    def __init__(self, recording: StaticRecording) -> None:
        self._recording = recording
        self._scope = recording.scope()
        self._executor = Executor(traces.place())
        self._compiled: CompiledProgram | None = None
        self._strategies: tuple[BuildStrategy | None, ExecutionStrategy | None] = (None, None)

    @property
    def program(self) -> Program:
        """The program."""
        return self._recording.program

    @staticmethod
    @entry_point
    def trace(layer: Layer, inputs: object) -> tuple[object, TracedLayer]:
        """Call a layer on inputs; return its outputs and a TracedLayer.

        Raises RuntimeError, with the line, for a branch that depends on a value, and AssertionError
        outside eager mode.
        """
        assert in_dygraph_mode(), "TracedLayer.trace can only be used in dygraph mode"
        assert isinstance(layer, Layer), f"{layer!r:.60} is no Layer"
        arguments = _listed(inputs)
        outputs = layer(*arguments)
        return outputs, TracedLayer(record(layer, arguments))

    def set_strategy(
        self,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
    ) -> None:
        """Set how the program is compiled; AssertionError once it has run."""
        assert self._compiled is None, "Cannot set strategy after run"
        self._strategies = build_strategy, exec_strategy

    @entry_point
    def __call__(self, inputs: Sequence[object]) -> list[object]:
        """Run the program on variables or arrays; returns arrays."""
        assert isinstance(inputs, list | tuple), "Inputs should be a list or tuple of variables"
        feeds = self._recording.feeds
        assert len(inputs) == len(feeds), f"the layer takes {len(feeds)} inputs, not {len(inputs)}"
        if self._compiled is None:
            build, execution = self._strategies
            self._compiled = CompiledProgram(self.program)
            if build is not None or execution is not None:
                self._compiled.with_data_parallel(
                    build_strategy=build, exec_strategy=execution, places=[traces.place()]
                )
        feed = {var.name: _array(value) for var, value in zip(feeds, inputs, strict=True)}
        return self._executor.run(self._compiled, feed, self._recording.outputs, scope=self._scope)

    @entry_point
    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Save the program and its parameters; `feed` and `fetch` select inputs and outputs."""
        _save(self._recording, self._scope, dirname, feed, fetch)


def _listed(inputs: object) -> list[object]:
    return [*inputs] if isinstance(inputs, list | tuple) else [inputs]


def _array(value: object) -> Any:
    return value.array() if isinstance(value, VarBase) else np.asarray(value)


def _save(
    recording: StaticRecording,
    scope: Scope,
    dirname: str,
    feed: Sequence[int] | None,
    fetch: Sequence[int] | None,
) -> None:
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
    _last: tuple[Callable[..., object], list[_Like]] | None = None

    def __new__(cls) -> ProgramTranslator:
        """Return the translator."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
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
    ) -> Any:
        """Call a function; returns its result."""
        _expect_function(dygraph_func, "get_output")
        if self.enable_declarative and not kwargs:
            self._last = dygraph_func, [_Like(argument) for argument in args]
        return dygraph_func(*args, **kwargs)

    def get_func(self, dygraph_func: F) -> F:
        """Return the function: called while a program is recorded, it appends its ops to that."""
        _expect_function(dygraph_func, "get_func")
        return dygraph_func

    @entry_point
    def get_program(
        self, dygraph_func: Callable[..., object], *args: object
    ) -> tuple[Program, Program, list[Variable], list[Variable]]:
        """Return the program of a call, its startup program, its inputs and its outputs."""
        _expect_function(dygraph_func, "get_program")
        recording = record(dygraph_func, args)
        return recording.program, recording.startup, recording.feeds, recording.outputs

    def get_code(self, dygraph_func: Callable[..., object]) -> str:
        """Return the source of a function; it is not rewritten."""
        _expect_function(dygraph_func, "get_code")
        return textwrap.dedent(inspect.getsource(dygraph_func))

    @entry_point
    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Save the function called last as a program; `feed` and `fetch` select variables.

        Raises RuntimeError if no function with `declarative` was called.
        """
        if self._last is None:
            raise RuntimeError("no function with `declarative` was called: there is no program")
        function, arguments = self._last
        recording = record(function, [argument.like for argument in arguments])
        _save(recording, recording.scope(), dirname, feed, fetch)


class _Like:
    """The shape and dtype of an argument; other values as they are."""

    def __init__(self, argument: object) -> None:
        self.shape: object = None
        self.dtype: object = None
        self.like: Any = argument
        if isinstance(argument, VarBase | np.ndarray):
            array = cast(Any, argument)
            self.shape, self.dtype, self.like = tuple(array.shape), array.dtype, self


def _expect_function(function: object, method: str) -> None:
    assert callable(function), f"Input dygraph_func is not a callable in {method}"


def declarative(dygraph_func: F) -> F:
    """Decorate a function whose program `ProgramTranslator.save_inference_model` saves."""

    @wraps(dygraph_func)
    def call(*args: object, **kwargs: object) -> object:
        return ProgramTranslator().get_output(dygraph_func, *args, **kwargs)

    return cast(F, call)


def dygraph_to_static_func(dygraph_func: F) -> F:
    """Return the function: called while a program is recorded, it appends its ops to that."""
    return dygraph_func
