"""Optimizers: each class declares its op, its accumulators and the op's attributes.

The base class is in `base`, parameter averages in `averages`, wrappers of other optimizers in
`wrappers`, gradient compression in `dgc`.
"""

from __future__ import annotations

from collections.abc import Callable

from fluid.clip import GradientClipBase
from fluid.compat.missing import not_yet
from fluid.framework import Block, Parameter, Variable, name_scope
from fluid.optimizer.averages import ExponentialMovingAverage, ModelAverage
from fluid.optimizer.base import AccumulatorFields, Optimizer, ParamGrad, Rate
from fluid.optimizer.dgc import DGCMomentumOptimizer
from fluid.optimizer.wrappers import LookaheadOptimizer, PipelineOptimizer, RecomputeOptimizer
from fluid.recording.arguments import typed
from fluid.recording.variable import VariableOrName
from fluid.regularizer import WeightDecayRegularizer

__all__ = [
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "PipelineOptimizer",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGD",
    "SGDOptimizer",
]


class SGDOptimizer(Optimizer):
    """Stochastic gradient descent: `param -= rate * grad`."""

    type = "sgd"


class MomentumOptimizer(Optimizer):
    """Momentum: `velocity = momentum * velocity + grad; param -= rate * velocity`.

    With `use_nesterov`, `param -= rate * (grad + momentum * velocity)`.
    """

    _velocity_acc_str = "velocity"

    type = "momentum"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        parameter_list: list[VariableOrName] | None = None,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {"Velocity": {"name": "velocity"}}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"mu": self._momentum, "use_nesterov": self._use_nesterov}


class LarsMomentumOptimizer(Optimizer):
    """Momentum with layer-wise learning rates from the norms of parameter and gradient (LARS)."""

    _velocity_acc_str = "velocity"

    type = "lars_momentum"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._momentum = momentum
        self._lars_coeff = float(lars_coeff)
        self._lars_weight_decay = float(lars_weight_decay)

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {"Velocity": {"name": "velocity"}}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        rates = {"lars_coeff": self._lars_coeff, "lars_weight_decay": self._lars_weight_decay}
        return {"mu": self._momentum, **rates}


class AdagradOptimizer(Optimizer):
    """Adagrad: gradients divided by the root of the sum of their squares (Duchi et al., 2011).

    The sum is initialized to `initial_accumulator_value`.
    """

    _moment_acc_str = "moment"

    type = "adagrad"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._epsilon = epsilon
        self.initial_accumulator_value = initial_accumulator_value

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {"Moment": {"name": "moment", "fill_value": self.initial_accumulator_value}}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"epsilon": self._epsilon}


class DecayedAdagradOptimizer(Optimizer):
    """Adagrad with an exponential moving average of squares instead of their sum."""

    _moment_acc_str = "moment"

    type = "decayed_adagrad"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        decay: float = 0.95,
        epsilon: float = 1e-6,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._decay = decay
        self._epsilon = epsilon

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {"Moment": {"name": "moment"}}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"decay": self._decay, "epsilon": self._epsilon}


class AdadeltaOptimizer(Optimizer):
    """Adadelta: step sizes from moving averages of squared gradients and updates (Zeiler, 2012).

    The op has no learning rate; `learning_rate` exists because all optimizers have one.
    """

    _avg_squared_grad_acc_str = "_avg_squared_grad"
    _avg_squared_update_acc_str = "_avg_squared_update"

    type = "adadelta"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._epsilon = epsilon
        self._rho = rho

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {
            "AvgSquaredGrad": {"name": "_avg_squared_grad"},
            "AvgSquaredUpdate": {"name": "_avg_squared_update"},
        }

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"epsilon": self._epsilon, "rho": self._rho}


class RMSPropOptimizer(Optimizer):
    """RMSProp: gradients divided by the root of their mean square, with momentum.

    `centered` subtracts the square of the mean gradient first.
    """

    _momentum_acc_str = "momentum"
    _mean_square_acc_str = "mean_square"
    _mean_grad_acc_str = "mean_grad"

    type = "rmsprop"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._rho = rho
        self._epsilon = epsilon
        self._momentum = momentum
        self._centered = centered

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        slots = {"Moment": "momentum", "MeanSquare": "mean_square", "MeanGrad": "mean_grad"}
        return {slot: {"name": name} for slot, name in slots.items()}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        moving = {"decay": self._rho, "momentum": self._momentum, "centered": self._centered}
        return {"epsilon": self._epsilon, **moving}


class FtrlOptimizer(Optimizer):
    """FTRL: sparse parameters by `l1` and `l2` regularization (McMahan et al., 2013).

    The reference 1.8.5 passes `l1` to the op's attribute `l2`; here it is `l2`.
    """

    _squared_acc_str = "squared"
    _linear_acc_str = "linear"

    type = "ftrl"

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._l1 = l1
        self._l2 = l2
        self._lr_power = lr_power

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        return {"SquaredAccumulator": {"name": "squared"}, "LinearAccumulator": {"name": "linear"}}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"l1": self._l1, "l2": self._l2, "lr_power": self._lr_power}


class DpsgdOptimizer(Optimizer):
    """Differentially private SGD: gradients clipped to norm `clip`, plus noise (CCS 2016).

    The noise has standard deviation `sigma` and is divided by `batch_size`.
    """

    type = "dpsgd"

    @typed
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: list[VariableOrName] | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list)
        self._clip = clip
        self._batch_size = batch_size
        self._sigma = sigma
        self._seed: int | None = None

    def _attrs(self, param: Parameter) -> dict[str, object]:
        noise = {"batch_size": self._batch_size, "sigma": self._sigma, "seed": self._seed or 0}
        return {"clip": self._clip, **noise}


class _Moments(Optimizer):
    """Base class of the Adam family: moving averages with `beta1` and `beta2`, and `epsilon`."""

    @typed
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _attrs(self, param: Parameter) -> dict[str, object]:
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}


class AdamOptimizer(_Moments):
    """Adam: adaptive moment estimation (Kingma & Ba, 2015).

    `beta1` and `beta2` may be variables. With `lazy_mode` only the rows of a sparse gradient are
    updated.
    """

    _moment1_acc_str = "moment1"
    _moment2_acc_str = "moment2"
    _beta1_pow_acc_str = "beta1_pow_acc"
    _beta2_pow_acc_str = "beta2_pow_acc"

    type = "adam"

    @typed
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        rest = (parameter_list, regularization, grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *rest)
        self._lazy_mode = lazy_mode

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        first = 0.9 if isinstance(self._beta1, Variable) else self._beta1
        second = 0.999 if isinstance(self._beta2, Variable) else self._beta2
        return {
            "Moment1": {"name": "moment1"},
            "Moment2": {"name": "moment2"},
            "Beta1Pow": {"name": "beta1_pow_acc", "fill_value": first, "shape": [1]},
            "Beta2Pow": {"name": "beta2_pow_acc", "fill_value": second, "shape": [1]},
        }

    def _extra_inputs(self) -> dict[str, Variable]:
        betas = {"Beta1Tensor": self._beta1, "Beta2Tensor": self._beta2}
        return {slot: beta for slot, beta in betas.items() if isinstance(beta, Variable)}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        attrs = {**super()._attrs(param), "lazy_mode": self._lazy_mode}
        return {name: value for name, value in attrs.items() if not isinstance(value, Variable)}


class LambOptimizer(AdamOptimizer):
    """LAMB: Adam with layer-wise learning rates from the norms of parameter and step (You et al.,
    2019).

    Parameters for which `exclude_from_weight_decay_fn` returns true do not decay.
    """

    type = "lamb"

    @typed
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        rest = (parameter_list, regularization, grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *rest)
        self._weight_decay = lamb_weight_decay
        self._exclude_from_weight_decay_fn = exclude_from_weight_decay_fn

    def _attrs(self, param: Parameter) -> dict[str, object]:
        excluded = self._exclude_from_weight_decay_fn
        decay = 0.0 if excluded is not None and excluded(param) else self._weight_decay
        betas = {"beta1": self._beta1, "beta2": self._beta2}
        return {**betas, "epsilon": self._epsilon, "weight_decay": decay}


class AdamaxOptimizer(_Moments):
    """Adam with the infinity norm of past gradients as second moment (Kingma & Ba, 2015)."""

    _moment_acc_str = "moment"
    _inf_norm_acc_str = "inf_norm"
    _beta1_pow_acc_str = "beta1_pow_acc"

    type = "adamax"

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        beta1 = self._beta1
        if isinstance(beta1, Variable):
            raise TypeError("beta1 of AdamaxOptimizer must be a number, not a Variable")
        return {
            "Moment": {"name": "moment"},
            "InfNorm": {"name": "inf_norm"},
            "Beta1Pow": {"name": "beta1_pow_acc", "fill_value": beta1, "shape": [1]},
        }

    def _finish_update(self, block: Block, parameters_and_grads: list[ParamGrad]) -> None:
        """Append the update of beta1's power for every updated parameter."""
        for param, grad in parameters_and_grads:
            if grad is None or not param.trainable:
                continue
            power = self._get_accumulator("beta1_pow_acc", param)
            guard = block.program.optimized_guard([param, grad])
            with guard, name_scope("adamx"):
                block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self._beta1})


SGD = SGDOptimizer
Momentum = MomentumOptimizer
Adagrad = AdagradOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Dpsgd = DpsgdOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
LarsMomentum = LarsMomentumOptimizer
Lamb = LambOptimizer

__getattr__ = not_yet(__name__, globals())
