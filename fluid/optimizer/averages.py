"""Averages of parameters over training steps, for evaluation or saving.

Both classes collect the parameters on construction, so create them after `minimize` and before the
startup program runs. `apply` swaps the averages in and `restore` swaps them out again, by two small
separate programs, whose variables are in the same scope as the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from fluid import layers, unique_name
from fluid.executor import Executor
from fluid.framework import (
    Block,
    Parameter,
    Program,
    Variable,
    default_main_program,
    name_scope,
    recording_guard,
)
from fluid.layer_helper import LayerHelper
from fluid.optimizer.base import Optimizer, expect_static
from fluid.recording.arguments import typed
from fluid.regularizer import WeightDecayRegularizer

__all__ = ["ExponentialMovingAverage", "ModelAverage"]

Backups = list[tuple[Parameter, Variable]]
"""Parameters, and the variables with their backups while averages are applied."""


class _Averages:
    """Base class of averages; `apply_program` and `restore_program` swap them in and out."""

    apply_program: Program
    restore_program: Program

    @contextmanager
    def apply(self, executor: Executor, need_restore: bool = True) -> Generator[None]:
        """Replace parameters by their averages within a `with` block, or permanently."""
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Executor) -> None:
        """Restore the parameters' own values."""
        executor.run(self.restore_program)


class ModelAverage(_Averages, Optimizer):
    """Average of a parameter over the latest steps (Polyak & Juditsky, 1992).

    The window grows with training: `average_window_rate` times the number of updates, at least
    `min_average_window` and at most `max_average_window` steps.
    """

    @typed
    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        expect_static("ModelAverage")
        super().__init__(0.0, regularization=regularization, name=name)
        self.average_window = average_window_rate
        self.min_average_window = min_average_window
        self.max_average_window = max_average_window
        self.params_grads = _backups("", "tmp")
        for param, backup in self.params_grads:
            guard = default_main_program().optimized_guard([param, backup])
            with guard, name_scope("move_average"):
                self._append_average_accumulate_op(param)
        self.apply_program = _program(self.params_grads, self._add_average_apply_op)
        self.restore_program = _program(self.params_grads, _add_restore)

    def _append_average_accumulate_op(self, param: Parameter) -> None:
        self.helper = LayerHelper("average_accumulate")
        sums = {name: self._add_accumulator(name, param) for name in ("sum_1", "sum_2", "sum_3")}
        counts = ("num_accumulates", "old_num_accumulates", "num_updates")
        for name in counts:
            sums[name] = self._add_accumulator(name, param, dtype="int64", shape=[1])
        window = {"min_average_window": self.min_average_window}
        window |= {"max_average_window": self.max_average_window}
        self.helper.append_op(
            "average_accumulates",
            inputs={"param": param} | {f"in_{name}": var for name, var in sums.items()},
            outputs={f"out_{name}": var for name, var in sums.items()},
            attrs={"average_window": float(self.average_window), **window},
        )

    def _add_average_apply_op(self, block: Block, param: Variable, backup: Variable) -> None:
        def remembered(*names: str) -> list[Variable]:
            return [block.clone_variable(self._get_accumulator(name, param)) for name in names]

        sums = remembered("sum_1", "sum_2", "sum_3")
        counts = remembered("num_accumulates", "old_num_accumulates")
        layers.assign(param, output=backup)
        count = layers.sums(counts)
        total = layers.sums(sums)
        quotient = {"X": total, "Y": layers.cast(count, total.dtype)}
        block.append_op("elementwise_div", inputs=quotient, outputs={"Out": param})


class ExponentialMovingAverage(_Averages):
    """Bias-corrected `average = decay * average + (1 - decay) * parameter`.

    `update` appends these ops. With `thres_steps`, a variable that counts steps, decay is
    min(decay, (thres_steps + 1) / (thres_steps + 10)).
    """

    @typed
    def __init__(
        self,
        decay: float = 0.999,
        thres_steps: Variable | None = None,
        name: str | None = None,
    ) -> None:
        expect_static("ExponentialMovingAverage")
        self._decay = decay
        self._thres_steps = thres_steps
        self._name = name or ""
        self._decay_var = self._get_ema_decay()
        self._step_counter_name = "@EMA_STEP_COUNTER@"
        self._params_tmps = _backups(self._name, "ema_tmp")
        self._ema_vars: dict[str, Variable] = {}
        for param, backup in self._params_tmps:
            with self._guard(param, backup), name_scope("moving_average"):
                self._ema_vars[param.name] = self._create_ema_vars(param)
        self.apply_program = _program(self._params_tmps, self._add_apply)
        self.restore_program = _program(self._params_tmps, _add_restore)

    def update(self) -> None:
        """Append the ops that update the averages; call it once, after `minimize`."""
        layers.autoincreased_step_counter(self._step_counter_name)
        for param, backup in self._params_tmps:
            with self._guard(param, backup), name_scope("moving_average"):
                average = self._ema_vars[param.name]
                moved = average * self._decay_var + param * (1 - self._decay_var)
                layers.assign(moved, output=average)

    def _guard(self, param: Parameter, backup: Variable) -> AbstractContextManager[None]:
        return param.block.program.optimized_guard([param, backup])

    def _get_ema_decay(self) -> Variable:
        with default_main_program().lr_schedule_guard():
            rate = layers.create_global_var(
                [1], self._decay, "float32", persistable=True, name="scheduled_ema_decay_rate"
            )
            if self._thres_steps is not None:
                self._schedule_decay(rate, self._thres_steps)
        return rate

    def _schedule_decay(self, rate: Variable, steps: Variable) -> None:
        ramp = (steps + 1.0) / (steps + 10.0)
        with layers.Switch() as switch:
            with switch.case(ramp < self._decay):
                layers.assign(ramp, rate)
            with switch.default():
                layers.assign(np.array([self._decay], np.float32), rate)

    def _create_ema_vars(self, param: Parameter) -> Variable:
        return layers.create_global_var(
            name=unique_name.generate(f"{self._name}{param.name}_ema"),
            shape=param.shape,
            value=0.0,
            dtype=param.dtype,
            persistable=True,
        )

    def _add_apply(self, block: Block, param: Variable, backup: Variable) -> None:
        """Append the swap of one parameter; before the first update the average is used
        uncorrected.
        """
        average = block.clone_variable(self._ema_vars[param.name])
        layers.assign(param, output=backup)
        layers.assign(average, output=param)
        step = self._step(block)
        with layers.Switch() as switch, switch.case(step > 0):
            missing = layers.elementwise_pow(block.clone_variable(self._decay_var), step)
            layers.assign(average / (1.0 - missing), output=param)

    def _step(self, block: Block) -> Variable:
        """Return the number of updates so far, as a float."""
        if not block.has_var(self._step_counter_name):
            name = self._step_counter_name
            layers.create_global_var([1], 0, "int64", persistable=True, name=name)
        return layers.cast(block.var(self._step_counter_name), "float32")


def _backups(prefix: str, suffix: str) -> Backups:
    """Create a backup variable for every parameter that is averaged."""
    params = default_main_program().global_block().all_parameters()
    return [
        (param, param.block.create_var(
            name=unique_name.generate(f"{prefix}{param.name}.{suffix}"),
            dtype=param.dtype,
            shape=param.shape,
            stop_gradient=True,
        ))
        for param in params
        if param.do_model_average is not False
    ]  # fmt: skip


def _program(backups: Backups, append: Callable[[Block, Variable, Variable], None]) -> Program:
    """Build a program by calling `append` for every parameter and its backup."""
    program = Program()
    block = program.global_block()
    with recording_guard(program):
        for param, backup in backups:
            append(block, block.clone_variable(param), block.clone_variable(backup))
    return program


def _add_restore(block: Block, param: Variable, backup: Variable) -> None:
    layers.assign(backup, output=param)
