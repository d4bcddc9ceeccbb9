"""What the reference's modules ask of eager mode: its tracer, its place, and who may be called."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import NoReturn, TypeVar, cast

from compiler.ir.types import Array
from fluid import unique_name
from fluid.eager import traces
from fluid.eager.programs import EagerProgram
from fluid.eager.variables import VarBase
from fluid.framework import Program, default_main_program, in_dygraph_mode, recording_guard
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.variable import VarType
from runtime.device import Place

__all__ = [
    "Tracer", "current_expected_place", "dygraph_guard", "dygraph_not_support", "dygraph_only",
    "dygraph_place_guard", "dygraph_tracer", "fake_interface_only", "param_guard",
    "program_desc_tracing_guard", "switch_to_static_graph", "var_base_to_np", "varbase_creator",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])


class Tracer:
    """Records ops of an eager program; `Tracer()` is that of a new one."""

    def __init__(self, program: EagerProgram | None = None) -> None:
        self._program = EagerProgram() if program is None else program
        self._static = Program(), Program()

    @property
    def program(self) -> EagerProgram:
        """The program."""
        return self._program

    @property
    def static_programs(self) -> tuple[Program, Program]:
        """The main and startup program that layers append to while eager mode is left."""
        return self._static

    def trace_op(
        self,
        type: str,
        inputs: Slots,
        outputs: Slots,
        attrs: Attributes,
        stop_gradient: bool = False,
    ) -> None:
        """Record an op; its outputs get no gradient if `stop_gradient` is set."""
        trained = self._train_mode
        self._train_mode = trained and not stop_gradient
        try:
            self._program.current_block().append_op(type, inputs, outputs, attrs)
        finally:
            self._train_mode = trained

    def train_mode(self) -> None:
        """Record gradients from now on."""
        self._train_mode = True

    def eval_mode(self) -> None:
        """Record no gradients from now on."""
        self._train_mode = False

    @property
    def _train_mode(self) -> bool:
        return self._program.trains

    @_train_mode.setter
    def _train_mode(self, value: bool) -> None:
        self._program.trains = value

    @property
    def _expected_place(self) -> Place:
        return traces.place()

    @_expected_place.setter
    def _expected_place(self, place: Place) -> None:
        traces.set_place(place)


def dygraph_tracer() -> Tracer | None:
    """The tracer of eager mode, None outside of it."""
    program = default_main_program()
    if not isinstance(program, EagerProgram):
        return None
    if program.tracer is None:
        program.tracer = Tracer(program)
    return cast(Tracer, program.tracer)


def current_expected_place() -> Place | None:
    """The place where ops of eager mode run, None outside of it."""
    return traces.place() if in_dygraph_mode() else None


@contextmanager
def dygraph_guard(tracer: Tracer | None) -> Generator[None]:
    """Enter the eager mode of a tracer within a `with` block; with None, leave eager mode."""
    current = dygraph_tracer()
    if tracer is current:
        yield
    elif tracer is not None:
        with recording_guard(tracer.program, tracer.program):
            yield
    elif current is not None:
        with recording_guard(*current.static_programs):
            yield


@contextmanager
def dygraph_place_guard(place: Place) -> Generator[None]:
    """Run ops of eager mode at a place within a `with` block."""
    before = traces.set_place(place)
    try:
        yield
    finally:
        traces.set_place(before)


def switch_to_static_graph(func: F) -> F:
    """Decorate a function to run outside eager mode."""

    @wraps(func)
    def call(*args: object, **kwargs: object) -> object:
        with dygraph_guard(None):
            return func(*args, **kwargs)

    return cast(F, call)


def dygraph_only(func: F) -> F:
    """Decorate a function that raises AssertionError outside eager mode."""
    return _only(func, True, f"We Only support {func.__name__} in imperative mode, please use "
                 "fluid.dygraph.guard() as context to run it in imperative Mode")  # fmt: skip


def dygraph_not_support(func: F) -> F:
    """Decorate a function that raises AssertionError in eager mode."""
    return _only(func, False, f"We don't support {func.__name__} in imperative mode")


def _only(func: F, is_eager: bool, message: str) -> F:
    @wraps(func)
    def call(*args: object, **kwargs: object) -> object:
        assert in_dygraph_mode() is is_eager, message
        return func(*args, **kwargs)

    return cast(F, call)


def fake_interface_only(func: F) -> F:
    """Decorate a method that only eager variables have: it raises AssertionError."""

    @wraps(func)
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError(
            f"{func.__name__!r} should be called by imperative Varible in imperative mode, please "
            "use fluid.dygraph.guard() as context to run it in imperative mode"
        )

    return cast(F, call)


def varbase_creator(
    type: int = VarType.LOD_TENSOR,
    name: str | None = None,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    persistable: bool | None = None,
    **kwargs: object,
) -> VarBase:
    """Create a variable that an op will write."""
    name = name or unique_name.generate("generated_var")
    element = VarType.FP32 if dtype is None else dtype
    return VarBase(dtype=element, dims=shape, name=name, type=type, persistable=persistable)


def var_base_to_np(var_base: VarBase) -> Array:
    """The value of a variable, as `numpy()`."""
    warnings.warn("_var_base_to_np is deprecated, please use var_base.numpy()", stacklevel=2)
    return var_base.numpy()


@contextmanager
def param_guard(parameters: Mapping[str, object]) -> Generator[None]:
    """Do nothing: parameters of eager mode are declared in a program when its ops read them."""
    yield


@contextmanager
def program_desc_tracing_guard(enable: bool) -> Generator[None]:
    """Do nothing: `TracedLayer.trace` records a program by another call of the layer."""
    yield


# ---- the names that scripts take from `fluid.framework` and `fluid.dygraph.base`

_current_expected_place = current_expected_place
_dygraph_guard = dygraph_guard
_dygraph_only_ = dygraph_only
_dygraph_not_support_ = dygraph_not_support
_dygraph_place_guard = dygraph_place_guard
_dygraph_tracer = dygraph_tracer
_fake_interface_only_ = fake_interface_only
_switch_to_static_graph_ = switch_to_static_graph
_var_base_to_np = var_base_to_np
_varbase_creator = varbase_creator
