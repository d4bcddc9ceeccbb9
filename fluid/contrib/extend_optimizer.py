"""Optimizers with decoupled weight decay, as in AdamW."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from fluid.framework import Operator, Program, Variable, name_scope
from fluid.layers.mathematics.arithmetic import elementwise_sub
from fluid.layers.tensor import assign
from fluid.optimizer.base import Optimizer, ParamGrad
from fluid.recording.variable import VariableOrName

__all__ = ["DecoupledWeightDecay", "extend_with_decoupled_weight_decay"]


def _always(name: str) -> bool:
    return True


def _expect_coefficient(coeff: object) -> None:
    if not isinstance(coeff, float | Variable):
        raise TypeError(f"coeff must be a float or a Variable, not {type(coeff).__name__}")


def _expect_optimizer(base: object) -> None:
    if not (isinstance(base, type) and issubclass(base, Optimizer)):
        raise TypeError(f"base_optimizer must be a class of optimizers, not {base!r}")


class DecoupledWeightDecay:
    """Mixin of optimizers that subtracts `coeff · parameter` (its value before the update).

    `coeff` is a float or a Variable; `apply_decay_param_fun` takes a parameter's name and returns
    whether it decays; default: all. Raises TypeError for another `coeff`. Source: Loshchilov and
    Hutter, Decoupled Weight Decay Regularization, 2017.
    """

    def __init__(
        self,
        coeff: float | Variable = 0.0,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        **kwargs: object,
    ) -> None:
        _expect_coefficient(coeff)
        self._coeff = coeff
        self._applies = apply_decay_param_fun or _always
        self._decayed: set[str] = set()
        super().__init__(**kwargs)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append gradients, decay and updates; return the update ops and (parameter, gradient)
        pairs.
        """
        base = cast(Optimizer, super())
        pairs: list[ParamGrad] = base.backward(
            loss=loss, startup_program=startup_program, parameter_list=parameter_list,
            no_grad_set=no_grad_set,
        )  # fmt: skip
        is_zero = isinstance(self._coeff, float) and self._coeff == 0.0
        chosen = [] if is_zero else self._decaying(pairs)
        scaled = [(param, grad, self._scaled(param, grad)) for param, grad in chosen]
        for param, grad, decay in scaled:
            with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
                assign(elementwise_sub(param, decay), output=param)
        ops = base.apply_optimize(
            loss=loss, startup_program=startup_program, params_grads=pairs
        )  # fmt: skip
        return ops, pairs

    def _decaying(self, pairs: list[ParamGrad]) -> list[tuple[Variable, Variable]]:
        """Return the parameters that decay, with their gradients."""
        return [(p, grad) for p, grad in pairs if grad is not None and self._applies(p.name)]

    def _scaled(self, param: Variable, grad: Variable) -> Variable:
        """Return the amount to subtract; ValueError for a parameter that decays twice."""
        if param.name in self._decayed:
            raise ValueError(f"parameter {param.name!r} decays already in this optimizer")
        self._decayed.add(param.name)
        with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
            return param * self._coeff

    def __str__(self) -> str:
        return f"Weight Decay, params: {','.join(sorted(self._decayed))}"


def extend_with_decoupled_weight_decay(base_optimizer: type[Any]) -> type[Any]:
    """Return a subclass of an optimizer class with decoupled weight decay.

    Its first arguments are `weight_decay` and `apply_decay_param_fun`; the base's follow, by
    keyword. Raises TypeError for anything but an optimizer class.

    >>> import fluid
    >>> AdamW = extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    >>> AdamW(weight_decay=0.01, learning_rate=0.001).type
    'adam'
    """
    _expect_optimizer(base_optimizer)

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecay, base_optimizer):
        """An optimizer with decoupled weight decay."""

        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **kwargs: object,
        ) -> None:
            super().__init__(weight_decay, apply_decay_param_fun, **kwargs)

    return OptimizerWithDecoupledWeightDecay
