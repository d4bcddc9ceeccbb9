"""Static programs of eager functions: `TracedLayer`, `declarative`, `dygraph_to_static_func`.

In eager mode a decorated function runs eagerly, with the same speed and values: its ops are one
compiled program anyway (`fluid.eager`). Where a program is recorded, its branches and loops on
tensors become ops of that (`fluid.dygraph.dygraph_to_static`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar, cast

import numpy as np

from compiler.ir.types import Array
from compiler.support.tracebacks import entry_point
from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.dygraph.dygraph_to_static import operators
from fluid.dygraph.dygraph_to_static.program_translator import ProgramTranslator, save_recording
from fluid.dygraph.layers import Layer
from fluid.eager import traces
from fluid.eager.static_recording import StaticRecording, record
from fluid.eager.variables import VarBase
from fluid.executor import Executor
from fluid.framework import Program, in_dygraph_mode

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
        save_recording(self._recording, self._scope, dirname, feed, fetch)


def _listed(inputs: object) -> list[object]:
    return [*inputs] if isinstance(inputs, list | tuple) else [inputs]


def _array(value: object) -> Array:
    return value.array() if isinstance(value, VarBase) else np.asarray(value)


def declarative(dygraph_func: F) -> F:
    """Decorate a function whose program `ProgramTranslator.save_inference_model` saves.

    In eager mode it runs eagerly; where a program is recorded, branches and loops on tensors become
    ops of that.
    """

    @wraps(dygraph_func)
    def call(*args: object, **kwargs: object) -> object:
        translator = ProgramTranslator()
        if translator.enable_declarative and in_dygraph_mode():
            return translator.get_output(dygraph_func, *args, **kwargs)
        function = dygraph_func
        if translator.enable_declarative:
            function = operators.converted(dygraph_func)
        return function(*args, **kwargs)

    return cast(F, call)


def dygraph_to_static_func(dygraph_func: F) -> F:
    """Decorate a function whose branches and loops on tensors become ops of the default program.

    In eager mode, and after `ProgramTranslator().enable(False)`, it is called as it is.
    Raises OSError in a call if its source is not available.
    """

    @wraps(dygraph_func)
    def call(*args: object, **kwargs: object) -> object:
        if in_dygraph_mode():
            return dygraph_func(*args, **kwargs)
        return ProgramTranslator().get_func(dygraph_func)(*args, **kwargs)

    return cast(F, call)
