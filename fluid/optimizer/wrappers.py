"""Optimizers that wrap another one: lookahead, recomputation and pipelines.

`LookaheadOptimizer` keeps a slow copy of every parameter; `RecomputeOptimizer` recomputes parts of
the forward pass in the backward pass instead of storing them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, NoReturn, Protocol

from fluid import layers
from fluid.backward import append_backward
from fluid.clip import error_clip_callback
from fluid.framework import (
    Block,
    Operator,
    Program,
    Variable,
    block_of,
    default_startup_program,
    program_of,
    recording_guard,
)
from fluid.optimizer.base import Optimizer, ParamGrad, expect_static
from fluid.recording.arguments import UNCHECKED, typed
from fluid.recording.checks import check_type, check_variable
from fluid.recording.variable import VariableFields, VariableOrName
from runtime.device import CPUPlace

__all__ = [
    "LookaheadOptimizer",
    "PipelineOptimizer",
    "RecomputeOptimizer",
]


class RecomputeOptimizer(Optimizer):
    """Wraps `optimizer` to save memory by recomputing forward segments between checkpoints.

    Only the variables of `_set_checkpoints` are stored for the backward pass, which recomputes the
    others segment by segment. The results are identical.
    """

    @typed
    def __init__(self, optimizer: Optimizer) -> None:
        expect_static("RecomputeOptimizer")
        self._optimizer = optimizer
        self._checkpoints: list[Variable | str] | None = None
        self._learning_rate = optimizer._learning_rate
        self._learning_rate_map = optimizer._learning_rate_map

    def set_checkpoints(self, checkpoints: list[Variable | str]) -> None:
        """Set the variables that are stored for the backward pass."""
        check_type(checkpoints, "checkpoints", list, "_set_checkpoints")
        self._checkpoints = checkpoints

    _set_checkpoints = set_checkpoints

    def load(self, stat_dict: object) -> NoReturn:
        """Raise NotImplementedError, as in the reference."""
        raise NotImplementedError(
            "RecomputeOptimizer cannot load state: load that of the optimizer it wraps (fluid.load)"
        )

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """As in the wrapped optimizer; AssertionError if no checkpoints were set."""
        check_variable(loss, "loss", "minimize")
        if self._checkpoints is None:
            raise AssertionError("You should call _set_checkpoints first")
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
        callbacks: list[Callable[..., object]] | None = None,
    ) -> list[ParamGrad]:
        """Append the ops that compute gradients, preceded by recomputed forward ops."""
        self._dtype = self._optimizer._dtype = loss.dtype
        callbacks = [error_clip_callback] if callbacks is None else callbacks
        with recording_guard(program_of(loss), startup_program):
            rest = no_grad_set, callbacks, self._checkpoints
            return list[ParamGrad](append_backward(loss, parameter_list, *rest))

    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """As in the wrapped optimizer."""
        return self._optimizer.apply_gradients(params_grads)

    def apply_optimize(
        self,
        loss: Variable,
        startup_program: Program | None,
        params_grads: Sequence[ParamGrad],
    ) -> list[Operator]:
        """As in the wrapped optimizer."""
        return self._optimizer.apply_optimize(loss, startup_program, params_grads)


class _Minimizer(Protocol):
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> object:
        """Append the ops that minimize a loss."""
        ...


Minimizer = Annotated[_Minimizer | None, UNCHECKED]
"""An optimizer, or an object with its method `minimize`."""


class LookaheadOptimizer:
    """Lookahead: every `k` steps, parameters are interpolated with slow copies (Zhang et al.,
    2019).

    `slow += alpha * (fast - slow)`, and the parameter, which `inner_optimizer` updates, is set to
    slow. Raises AssertionError for arguments out of range.
    """

    type = "lookahead"

    @typed
    def __init__(self, inner_optimizer: Minimizer, alpha: float = 0.5, k: int = 5) -> None:
        expect_static("LookaheadOptimizer")
        if inner_optimizer is None:
            raise AssertionError("inner optimizer can not be None")
        if not 0.0 <= alpha <= 1.0:
            raise AssertionError(f"alpha should be from 0 to 1, but it is {alpha}")
        is_number = isinstance(k, int)  # pyright: ignore[reportUnnecessaryIsInstance] - 2.0
        if not is_number or k <= 0:
            raise AssertionError(f"k should be a positive integer, but it is {k!r}")
        self.inner_optimizer = inner_optimizer
        self.alpha = alpha
        self.k = k

    def minimize(self, loss: Variable, startup_program: Program | None = None) -> object:
        """Append the inner optimizer's ops and the updates of the slow copies; returns as it
        does.
        """
        result = self.inner_optimizer.minimize(loss, startup_program=startup_program)
        startup = startup_program or default_startup_program()
        with recording_guard(program_of(loss), startup):
            slow = _slow_copies(block_of(loss), startup.global_block())
            self._append_look(slow)
        return result

    def _append_look(self, slow: dict[str, tuple[Variable, Variable]]) -> None:
        k = _state("lookahead_k", self.k, "int32")
        alpha = _state("lookahead_alpha", self.alpha, "float32")
        step = _state("lookahead_step", 0, "int32")
        layers.increment(step, 1.0)
        zero = layers.fill_constant([1], "int32", 0)
        one = layers.fill_constant([1], "float32", 1.0)
        remainder = layers.elementwise_mod(step, k)
        with layers.Switch() as switch, switch.case(remainder == zero):
            for fast, slow_param in slow.values():
                share = layers.elementwise_mul(fast, alpha)
                rest = layers.elementwise_mul(slow_param, layers.elementwise_sub(one, alpha))
                moved = layers.elementwise_add(share, rest)
                layers.assign(moved, output=slow_param)
                layers.assign(moved, output=fast)


def _slow_copies(main: Block, startup: Block) -> dict[str, tuple[Variable, Variable]]:
    """Create a slow copy of every parameter, initialized to the parameter's initial value."""
    copies: dict[str, tuple[Variable, Variable]] = {}
    for param in main.program.all_parameters():
        fields: VariableFields = {
            "name": f"{param.name}@SLOW",
            "shape": param.shape,
            "dtype": param.dtype,
            "persistable": True,
        }
        copies[param.name] = (param, main.program.global_block().create_var(**fields))
        started = startup.create_var(**fields)
        startup.append_op("assign", inputs={"X": param.name}, outputs={"Out": started})
    return copies


def _state(name: str, value: float, dtype: str) -> Variable:
    return layers.create_global_var([1], value, dtype, persistable=True, name=name)


class PipelineOptimizer:
    """Minimizes with the optimizer that it wraps; the program is one section, run on one device.

    Release 1.8.5 cuts a program at `cut_list` and runs the sections on the devices of `place_list`
    at the same time, with the same updates. What it passed to them is in `program._pipeline_opt`,
    for one section of the whole program.

    >>> import fluid
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 4])
    ...     hidden = fluid.layers.fc(x, 3)
    ...     loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
    ...     pipeline = fluid.optimizer.PipelineOptimizer(
    ...         fluid.optimizer.SGD(0.1), cut_list=[[hidden], [loss]],
    ...         place_list=[fluid.CPUPlace()] * 3, concurrency_list=[1, 1, 1])
    ...     pipeline.minimize(loss)
    >>> len(main._pipeline_opt["section_program_list"]), main.global_block().ops[-1].type
    (1, 'sgd')
    """

    def __init__(
        self,
        optimizer: Minimizer,
        cut_list: list[object] | None = None,
        place_list: list[object] | None = None,
        concurrency_list: list[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        expect_static("PipelineOptimizer")
        if optimizer is None:
            raise AssertionError("optimizer can not be None")
        self._optimizer = optimizer
        self._places = place_list or [CPUPlace()]
        self._concurrency = concurrency_list or [1]
        self._settings = {
            "queue_size": queue_size,
            "start_cpu_core_id": start_cpu_core_id,
            "sync_steps": sync_steps,
        }

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> None:
        """Append the gradients and the updates of the wrapped optimizer, and describe the section.

        Raises as the wrapped optimizer's `minimize`.
        """
        self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        program = program_of(loss)
        section = {"program": program, "input_set": set[str](), "output_set": set[str]()}
        program.pipeline_opt = self._settings | {
            "trainer": "PipelineTrainer",
            "device_worker": "Section",
            "section_program_list": [section],
            "place_list": self._places[:1],
            "concurrency_list": self._concurrency[:1],
            "param_need_sync": [],
        }
