"""An optimizer wrapper for mixed precision: rewrites the program and scales the loss.

Small gradients underflow in float16, so the loss is multiplied by a scale, and gradients are
divided by it, in float32, before they are used (Micikevicius et al., 2018). bfloat16 has the range
of float32 and needs no scale (Kalamkar et al., 2019). Reference:
fluid.contrib.mixed_precision.decorator of release 1.8.5; `dtype` is as in release 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

from compiler.ir.types import DType
from fluid import layers, unique_name
from fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from fluid.contrib.mixed_precision.fp16_utils import (
    rewrite_program,
    update_loss_scaling,
    update_role_var_grad,
)
from fluid.framework import (
    Operator,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
)
from fluid.optimizer.base import Optimizer, ParamGrad
from fluid.recording.arguments import UNCHECKED, typed
from fluid.recording.atomic import atomic
from fluid.recording.variable import VariableOrName

__all__ = ["OptimizerWithMixedPrecision", "decorate"]

NARROW = {"float16": DType.FP16, "bfloat16": DType.BF16}
"""Half-precision dtypes by name."""


class OptimizerWithMixedPrecision:
    """Wraps an optimizer for mixed precision; created by `decorate`.

    Parameters and optimizer state remain float32, and so do checkpoints.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
        dtype: DType = DType.FP16,
    ) -> None:
        self._dtype = dtype
        self._optimizer = optimizer
        self._amp_lists = amp_lists
        self._train_program = default_main_program()
        self._startup_prog = default_startup_program()
        self._scaled_loss: Variable | None = None
        self._loss_scaling = _state("loss_scaling", init_loss_scaling, "float32")
        self._use_dynamic_loss_scaling = use_dynamic_loss_scaling
        if use_dynamic_loss_scaling:
            self._every = (
                layers.fill_constant([1], "int32", incr_every_n_steps),
                layers.fill_constant([1], "int32", decr_every_n_nan_or_inf),
            )
            self._ratios = incr_ratio, decr_ratio
            self._counters = (
                _state("num_good_steps", 0, "int32"),
                _state("num_bad_steps", 0, "int32"),
            )
        self._create_float32_learning_rate()

    def _create_float32_learning_rate(self) -> None:
        """Create the learning rate as float32, like the parameters."""
        self._optimizer.replace_constant_rate(lambda rate: _state("learning_rate", rate, "float32"))

    def get_loss_scaling(self) -> Variable:
        """Return the current loss scale: float32 [1], persistable."""
        return self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """Return the scaled loss; None before `minimize` or `backward`."""
        return self._scaled_loss

    @typed
    @atomic
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Rewrite the program and append backward and update ops; returns as
        `Optimizer.minimize`.
        """
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_gradients(pairs), pairs

    @typed
    @atomic
    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
        callbacks: list[Callable[..., object]] | None = None,
    ) -> list[ParamGrad]:
        """First half of `minimize`: return parameters with their unscaled gradients.

        Raises ValueError, before anything is changed, for a loss of another program than the one
        that was the default when `decorate` was called, or of more than one number.
        """
        self._check(loss)
        rewrite_program(self._train_program, self._amp_lists, self._dtype)
        self._scaled_loss = loss * self._loss_scaling if self._scales_loss else loss
        pairs = self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        update_role_var_grad(self._train_program, pairs)
        if not self._scales_loss:
            return pairs
        return [(param, self._unscaled(param, grad)) for param, grad in pairs]

    @property
    def _scales_loss(self) -> bool:
        """Return whether the loss is scaled, as float16 requires."""
        return self._dtype is DType.FP16

    def _check(self, loss: Variable) -> None:
        if loss.block.program is not self._train_program:
            raise ValueError(
                f"the loss {loss.name!r} is of another program than the default one when decorate "
                "was called: call decorate and minimize under the same program_guard"
            )
        if loss.shape != (1,):
            raise ValueError(
                f"the loss {loss.name!r} has shape {loss.shape}, expected (1,): average it with "
                "fluid.layers.mean"
            )

    def _unscaled(self, param: Variable, grad: Variable | None) -> Variable | None:
        if grad is None:
            return None
        with self._train_program.optimized_guard([param, grad]):
            return grad / self._loss_scaling

    @typed
    @atomic
    def apply_gradients(self, scaled_params_grads: list[ParamGrad]) -> list[Operator]:
        """Second half of `minimize`: append the loss scale and parameter updates; return the
        latter.

        If any gradient is not finite, all count as zeros.
        """
        if self._use_dynamic_loss_scaling:
            grads = [grad for _, grad in scaled_params_grads if grad is not None]
            self._append_scaling(grads)
        return self._optimizer.apply_gradients(scaled_params_grads)

    def _append_scaling(self, grads: list[Variable]) -> None:
        total = layers.reduce_sum(layers.concat([layers.reduce_sum(grad) for grad in grads]))
        is_finite = layers.isfinite(total)
        update_loss_scaling(
            is_finite, self._loss_scaling, *self._counters, *self._every, *self._ratios
        )
        with layers.Switch() as switch:
            with switch.case(is_finite):
                pass
            with switch.default():
                for grad in grads:
                    layers.assign(layers.zeros_like(grad), grad)


def _state(name: str, value: float, dtype: str) -> Variable:
    """Create a persistable scalar that the startup program initializes."""
    return layers.create_global_var(
        name=unique_name.generate(name), shape=[1], value=value, dtype=dtype, persistable=True
    )


@typed
def decorate(
    optimizer: Annotated[Optimizer, UNCHECKED],
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
    dtype: str = "float16",
) -> OptimizerWithMixedPrecision:
    """Wrap an optimizer so that ops in the white list of `amp_lists` compute in float16.

    With `dtype` "bfloat16" that type is used instead; the loss scale is then constantly 1 and the
    arguments for it have no effect. Raises ValueError for another `dtype`.

    The loss is multiplied by a scale, initially `init_loss_scaling`. With
    `use_dynamic_loss_scaling` it is multiplied by `incr_ratio` after more than `incr_every_n_steps`
    steps with finite gradients, and by `decr_ratio` after `decr_every_n_nan_or_inf` steps with
    others; gradients of the latter do not change parameters. Must be called while the program to be
    trained is the default main program.

    >>> import fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 4])
    ...     loss = fluid.layers.mean(fluid.layers.fc(x, 2))
    ...     optimizer = fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.1))
    ...     ops, pairs = optimizer.minimize(loss)
    ...     [op.type for op in fluid.default_main_program().global_block().ops[:3]]
    ['cast', 'cast', 'mul']
    """
    if dtype not in NARROW:
        names = " or ".join(map(repr, NARROW))
        raise ValueError(f"the dtype of decorate is {names}, not {dtype!r}")
    scales = dtype == "float16"
    return OptimizerWithMixedPrecision(
        optimizer,
        AutoMixedPrecisionLists() if amp_lists is None else amp_lists,
        init_loss_scaling if scales else 1.0,
        use_dynamic_loss_scaling and scales,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
        NARROW[dtype],
    )
