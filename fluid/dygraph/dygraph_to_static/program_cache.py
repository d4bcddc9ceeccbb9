"""The programs of functions by the types of their arguments, which `ProgramTranslator` keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from fluid.dygraph.dygraph_to_static import operators
from fluid.dygraph.dygraph_to_static.conversion import undecorated
from fluid.dygraph.dygraph_to_static.partial_program import PartialProgramLayer
from fluid.dygraph.dygraph_to_static.values import Value
from fluid.dygraph.layers import Layer
from fluid.eager.static_recording import StaticRecording, record
from fluid.eager.variables import VarBase
from fluid.framework import Parameter, Program, Variable

__all__ = ["ConcreteProgram", "FunctionSpec", "ProgramCache"]

MAX_CALLS = 64
"""Kinds of calls that are remembered; a function that is forgotten is recorded again."""


class FunctionSpec:
    """A call of a function, which equals others with the same shapes, dtypes and other values.

    Of arrays and variables only shape and dtype are kept.
    """

    def __init__(
        self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        self._func = func
        self._args = [_like(value) for value in args]
        self._kwargs = {name: _like(value) for name, value in kwargs.items()}

    @property
    def dyfunc(self) -> Callable[..., object]:
        """The function."""
        return self._func

    @property
    def args(self) -> list[Value]:
        """Its positional arguments; those that are fed have a shape and a dtype."""
        return self._args

    @property
    def kwargs(self) -> dict[str, Value]:
        """Its arguments by keyword."""
        return self._kwargs

    def is_method(self) -> bool:
        """Whether the first argument is a layer."""
        return bool(self._args) and isinstance(self._args[0], Layer)

    def parameters(self, include_sublayer: bool = True) -> Sequence[Parameter]:
        """Return the parameters of the layer whose method it is; none for a function."""
        return self._args[0].parameters(include_sublayer) if self.is_method() else []

    def _key(self) -> tuple[object, ...]:
        named = tuple(sorted(self._kwargs.items(), key=lambda item: item[0]))
        return self._func, *map(_hashable, self._args), *((k, _hashable(v)) for k, v in named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class Like:
    """The shape and dtype of an argument."""

    def __init__(self, shape: tuple[int, ...], dtype: object) -> None:
        self.shape, self.dtype = shape, dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Like) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.shape, str(self.dtype)))


def _like(value: object) -> Value:
    if isinstance(value, VarBase | np.ndarray):
        array = cast(Value, value)
        return Like(tuple(array.shape), array.dtype)
    return value


def _hashable(value: Value) -> object:
    """A value that is equal for equal arguments; by identity for what cannot be hashed."""
    try:
        hash(value)
    except TypeError:
        return repr(cast(object, value)) if isinstance(value, list | tuple | dict) else id(value)
    return value


class ConcreteProgram:
    """The program of one kind of call: its inputs, outputs and parameters."""

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        parameters: Sequence[VarBase],
        func: Callable[..., object],
        main_program: Program,
        startup_program: Program | None = None,
    ) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.parameters = list(parameters)
        self.function = func
        self.main_program, self.startup_program = main_program, startup_program

    @staticmethod
    def from_func_spec(func_spec: FunctionSpec) -> ConcreteProgram:
        """Record the program of a call. Raises what recording raises."""
        made = recorded(func_spec)
        read = list(made.variables.values())
        ends = made.feeds, made.outputs
        return ConcreteProgram(*ends, read, func_spec.dyfunc, made.program, made.startup)


def recorded(spec: FunctionSpec) -> StaticRecording:
    """Record the program of a call, whose branches and loops on tensors become ops."""
    function = operators.converted(undecorated(spec.dyfunc))
    return record(partial(function, **spec.kwargs), spec.args)


class ProgramCache:
    """The calls of functions with `declarative`, and the programs of those that are asked for."""

    def __init__(self) -> None:
        self._caches: OrderedDict[FunctionSpec, tuple[ConcreteProgram, PartialProgramLayer] | None]
        self._caches = OrderedDict()

    def called(self, spec: FunctionSpec) -> None:
        """Remember a call as the last one."""
        self._caches.setdefault(spec, None)
        self._caches.move_to_end(spec)
        if len(self._caches) > MAX_CALLS:
            self._caches.popitem(last=False)

    def __getitem__(self, spec: FunctionSpec) -> tuple[ConcreteProgram, PartialProgramLayer]:
        """Return the program of a call and a layer that runs it; TypeError for anything else."""
        if not isinstance(spec, FunctionSpec):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass others
            raise TypeError(f"the key must be a FunctionSpec, not {type(spec).__name__}")
        cached = self._caches.get(spec)
        if cached is None:
            cached = self._caches[spec] = self._build_once(spec)
        return cached

    def _build_once(self, spec: FunctionSpec) -> tuple[ConcreteProgram, PartialProgramLayer]:
        program = ConcreteProgram.from_func_spec(spec)
        layer = PartialProgramLayer(
            program.main_program, program.inputs, program.outputs, program.parameters
        )
        return program, layer

    def last(self) -> tuple[FunctionSpec, tuple[ConcreteProgram, PartialProgramLayer]]:
        """Return the last call with its program and layer; AssertionError if there was none."""
        spec = self.last_call()
        return spec, self[spec]

    def last_call(self) -> FunctionSpec:
        """Return the last call; AssertionError if there was none."""
        assert self._caches, "no function with `declarative` was called: there is no program"
        return next(reversed(self._caches))

    def __len__(self) -> int:
        return len(self._caches)
