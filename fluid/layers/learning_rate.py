"""Learning rate schedules, computed by ops of the program.

The counter `@LR_DECAY_COUNTER@` is incremented by the first op of the program; it is 0 in the first
step, 1 for `noam_decay`. In eager mode they return the objects of `fluid.dygraph` of the same kind,
which optimizers call in each step. Reference: learning_rate_scheduler.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from fluid.eager.learning_rates import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LearningRateDecay,
    LinearLrWarmup,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
)
from fluid.framework import Variable, default_main_program, in_dygraph_mode
from fluid.layers import control_flow, nn, ops, tensor
from fluid.layers.mathematics.arithmetic import elementwise_min

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]

Rate = float | Variable
"""A constant, or a variable that the program computes."""

Schedule = TypeVar("Schedule", bound=Callable[..., Variable])


def _schedule(
    eager: Callable[..., LearningRateDecay],
) -> Callable[[Schedule], Schedule]:
    """Decorate a schedule so that its ops have the role LRSched; `eager` replaces it in eager mode.

    `eager` takes the same arguments.
    """

    def decorate(schedule: Schedule) -> Schedule:
        @functools.wraps(schedule)
        def marked(*args: object, **kwargs: object) -> Variable | LearningRateDecay:
            if in_dygraph_mode():
                return eager(*args, **kwargs)
            with default_main_program().lr_schedule_guard():
                return schedule(*args, **kwargs)

        return cast(Schedule, marked)

    return decorate


def _eager_noam(d_model: float, warmup_steps: int, learning_rate: float = 1.0) -> NoamDecay:
    return NoamDecay(d_model, warmup_steps, learning_rate=learning_rate)


def _eager_piecewise(boundaries: Sequence[int], values: Sequence[float]) -> PiecewiseDecay:
    return PiecewiseDecay(boundaries, values, 0)


def _decay_step_counter(begin: int = 0) -> Variable:
    """Return the step number as float32; the first is `begin`."""
    return tensor.cast(nn.autoincreased_step_counter("@LR_DECAY_COUNTER@", begin), "float32")


def _elapsed_periods(decay_steps: Rate, staircase: bool) -> Variable:
    """Return step / `decay_steps`, rounded down if `staircase`."""
    periods = _decay_step_counter() / decay_steps
    return ops.floor(periods) if staircase else periods


@_schedule(_eager_noam)
def noam_decay(d_model: Rate, warmup_steps: Rate, learning_rate: Rate = 1.0) -> Variable:
    """Return `rate * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)` (Vaswani et al.
    2017).
    """
    step = _decay_step_counter(1)
    slope = step**-0.5
    ramp = (warmup_steps**-1.5) * step
    return learning_rate * (d_model**-0.5) * elementwise_min(slope, ramp)


@_schedule(ExponentialDecay)
def exponential_decay(
    learning_rate: Rate, decay_steps: Rate, decay_rate: Rate, staircase: bool = False
) -> Variable:
    """Return `rate * decay_rate ** (step / decay_steps)`."""
    return learning_rate * (decay_rate ** _elapsed_periods(decay_steps, staircase))


@_schedule(NaturalExpDecay)
def natural_exp_decay(
    learning_rate: Rate, decay_steps: Rate, decay_rate: Rate, staircase: bool = False
) -> Variable:
    """Return `rate * e ** (-decay_rate * step / decay_steps)`."""
    return learning_rate * ops.exp(-1 * decay_rate * _elapsed_periods(decay_steps, staircase))


@_schedule(InverseTimeDecay)
def inverse_time_decay(
    learning_rate: Rate, decay_steps: Rate, decay_rate: Rate, staircase: bool = False
) -> Variable:
    """Return `rate / (1 + decay_rate * step / decay_steps)`."""
    return learning_rate / (1 + decay_rate * _elapsed_periods(decay_steps, staircase))


@_schedule(PolynomialDecay)
def polynomial_decay(
    learning_rate: Rate,
    decay_steps: float,
    end_learning_rate: Rate = 0.0001,
    power: Rate = 1.0,
    cycle: bool = False,
) -> Variable:
    """Return `(rate - end) * (1 - step / decay_steps) ** power + end`, constant after decay_steps.

    If `cycle`, `decay_steps` grows to the next multiple not below the step instead.
    """
    step = _decay_step_counter()
    if cycle:
        span = decay_steps * _started_cycles(step, decay_steps)
    else:
        span = decay_steps
        step = elementwise_min(step, tensor.fill_constant([1], "float32", float(span)))
    return (learning_rate - end_learning_rate) * ((1 - step / span) ** power) + end_learning_rate


def _started_cycles(step: Variable, decay_steps: float) -> Variable:
    cycles = ops.ceil(step / decay_steps)
    zero = tensor.fill_constant([1], "float32", 0.0)
    one = tensor.fill_constant([1], "float32", 1.0)
    with control_flow.Switch() as switch, switch.case(step == zero):
        tensor.assign(one, cycles)
    return cycles


@_schedule(_eager_piecewise)
def piecewise_decay(boundaries: Sequence[float], values: Sequence[float]) -> Variable:
    """Return values[i] before step boundaries[i], and the last value after all of them.

    Raises ValueError unless there is one more value than boundaries.
    """
    if len(values) - len(boundaries) != 1:
        raise ValueError("len(values) - len(boundaries) should be 1")
    step = _decay_step_counter()
    rate = _rate("learning_rate")
    with control_flow.Switch() as switch:
        for boundary, value in zip(boundaries, values, strict=False):
            limit = tensor.fill_constant([1], "float32", float(boundary), force_cpu=True)
            constant = tensor.fill_constant([1], "float32", float(value))
            with switch.case(step < limit):
                tensor.assign(constant, rate)
        last = tensor.fill_constant([1], "float32", float(values[-1]))
        with switch.default():
            tensor.assign(last, rate)
    return rate


@_schedule(CosineDecay)
def cosine_decay(learning_rate: Rate, step_each_epoch: Rate, epochs: Rate) -> Variable:
    """Return `rate / 2 * (cos(epoch * pi / epochs) + 1)`; an epoch has `step_each_epoch` steps."""
    epoch = ops.floor(_decay_step_counter() / step_each_epoch)
    return learning_rate * 0.5 * (ops.cos(epoch * math.pi / epochs) + 1)


@_schedule(LinearLrWarmup)
def linear_lr_warmup(
    learning_rate: Rate | LearningRateDecay, warmup_steps: float, start_lr: float, end_lr: float
) -> Variable:
    """Increase linearly from `start_lr` to `end_lr` in `warmup_steps`, then return
    `learning_rate`.

    A decay of eager mode is only for eager mode: TypeError.
    """
    if isinstance(learning_rate, LearningRateDecay):
        raise TypeError(f"a program has no {type(learning_rate).__name__}: use the layer instead")
    rate = _rate("learning_rate_warmup")
    step = _decay_step_counter()
    with control_flow.Switch() as switch:
        with switch.case(step < warmup_steps):
            share = step / float(warmup_steps)
            tensor.assign(start_lr + (float(end_lr) - float(start_lr)) * share, rate)
        with switch.default():
            if not isinstance(learning_rate, Variable):
                learning_rate = tensor.fill_constant([1], "float32", float(learning_rate))
            tensor.assign(learning_rate, rate)
    return rate


def _rate(name: str) -> Variable:
    return tensor.create_global_var([1], 0.0, "float32", persistable=True, name=name)
