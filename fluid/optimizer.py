"""Optimizers: the gradients of a loss, and one op that updates each parameter (fluid_spec A.4).

`minimize` sorts parameters by name and appends, in this order: clipping of gradients, weight
decay, learning rates of single parameters, updates. What an optimizer remembers of a parameter is
a persistable variable `<parameter>_<what>_<n>`, made by the startup program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fluid import layers, unique_name
from fluid.backward import append_backward, no_grad_names
from fluid.checks import check_type, check_variable
from fluid.clip import (
    GradientClipBase,
    append_gradient_clip_ops,
    correct_role_vars,
    error_clip_callback,
)
from fluid.framework import (
    Block,
    Operator,
    Parameter,
    Program,
    Variable,
    default_main_program,
    name_scope,
    program_guard,
)
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.missing import not_yet
from fluid.regularizer import WeightDecayRegularizer, append_regularization_ops

__all__ = [
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "Momentum",
    "MomentumOptimizer",
    "SGD",
    "SGDOptimizer",
]

ParamGrad = tuple[Parameter, Any]
"""A parameter and its gradient, or None where it has none."""


class Optimizer:
    """What optimizers share; one that derives from it says its accumulators and its op.

    `learning_rate` is a float or a variable that a schedule computes. `parameter_list`, variables
    or names, limits what is updated. Raises TypeError for arguments of other kinds.
    """

    type = ""

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: list[Any] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_type(learning_rate, "learning_rate", (float, Variable), self.__class__.__name__)
        check_type(grad_clip, "grad_clip", (GradientClipBase, type(None)), self.__class__.__name__)
        self.regularization = regularization
        self.helper: LayerHelper | None = None
        self._name = name
        self._parameter_list = parameter_list
        self._grad_clip = grad_clip
        self._learning_rate = learning_rate
        self._learning_rate_map: dict[Program, Variable] = {}
        self._accumulators: dict[str, dict[str, Variable]] = defaultdict(dict)
        self._dtype: Any = None

    # ---- what users call

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[Any] | None = None,
        no_grad_set: Collection[Any] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append what makes `loss` smaller: the ops of the updates, and (parameter, gradient).

        Pairs come in order of creation and have the gradients before clipping.
        """
        check_variable(loss, "loss", "minimize")
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[Any] | None = None,
        no_grad_set: Collection[Any] | None = None,
        callbacks: list[Callable[..., Any]] | None = None,
    ) -> list[ParamGrad]:
        """The first half of `minimize`: append the ops that compute gradients.

        Raises AssertionError, as the reference does, where the loss has not the shape (1,).
        """
        if loss.shape != (1,):
            raise AssertionError(
                f"The loss.shape should be (1,), but the current loss.shape is {loss.shape}. "
                "Maybe you should call fluid.layers.mean to process the current loss."
            )
        self._dtype = loss.dtype
        program = loss.block.program
        fixed = {param.name for param in program.all_parameters() if not param.trainable}
        with program_guard(program, startup_program):
            return append_backward(
                loss,
                parameter_list or self._parameter_list,
                fixed | no_grad_names(no_grad_set),
                [error_clip_callback] if callbacks is None else callbacks,
            )

    def apply_gradients(self, params_grads: Iterable[ParamGrad]) -> list[Operator]:
        """The second half of `minimize`: append what updates parameters; its update ops."""
        ordered = sorted(params_grads, key=lambda pair: pair[0].name)
        block = default_main_program().global_block()
        start = len(block.ops)
        clip = append_gradient_clip_ops if self._grad_clip is None else self._grad_clip
        clipped = clip(ordered)
        correct_role_vars(block, start, clipped)
        decayed = append_regularization_ops(clipped, self.regularization)
        return self._create_optimization_pass(decayed)

    def apply_optimize(
        self,
        loss: Variable,
        startup_program: Program | None,
        params_grads: Iterable[ParamGrad],
    ) -> list[Operator]:
        """`apply_gradients` in the program of `loss`."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def get_opti_var_name_list(self) -> list[str]:
        """The names of what it remembers, in order of creation."""
        return [var.name for kind in self._accumulators.values() for var in kind.values()]

    # ---- what an optimizer says

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        """Make what is remembered of each parameter; nothing unless said otherwise."""

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        """Append the op that updates a parameter."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it updates")

    def _finish_update(self, block: Block, parameters_and_grads: list[ParamGrad]) -> None:
        """Append what comes after all updates; nothing unless said otherwise."""

    # ---- how it is put together

    def _create_optimization_pass(self, parameters_and_grads: list[ParamGrad]) -> list[Operator]:
        block = default_main_program().global_block()
        start = len(block.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        trained = [pair for pair in parameters_and_grads if pair[0].trainable]
        self._create_accumulators(block, [param for param, _ in trained])
        self._create_global_learning_rate()
        for param, grad in trained:
            if grad is not None:
                with block.program._optimized_guard([param, grad]), name_scope("optimizer"):
                    self._append_optimize_op(block, (param, grad))
        self._finish_update(block, parameters_and_grads)
        return block._slice_ops(start, len(block.ops))

    def _add_accumulator(
        self,
        name: str,
        param: Parameter,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Iterable[int] | None = None,
        type: int | None = None,
    ) -> Variable:
        """Make a variable that remembers something of a parameter, of its shape by default.

        Raises ValueError where it is there already.
        """
        key = self._accumulator_key(name)
        if param.name in self._accumulators[key]:
            raise ValueError(f"Accumulator {key} already exists for parameter {param.name}")
        helper = self.helper or LayerHelper(self.__class__.__name__)
        var = helper.create_global_variable(
            name=unique_name.generate(f"{param.name}_{key}"),
            persistable=True,
            dtype=dtype or param.dtype,
            type=param.type if type is None else type,
            shape=param.shape if shape is None else shape,
            belong_to_optimizer=True,
        )
        helper.set_variable_initializer(var, Constant(float(fill_value)))
        self._accumulators[key][param.name] = var
        return var

    def _get_accumulator(self, name: str, param: Parameter) -> Variable:
        """What is remembered of a parameter under a name; ValueError where nothing is."""
        known = self._accumulators[self._accumulator_key(name)]
        if param.name not in known:
            raise ValueError(f"Accumulator {name} does not exist for parameter {param.name}")
        return known[param.name]

    def _accumulator_key(self, name: str) -> str:
        return name if self._name is None else f"{self._name}_{name}"

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """The learning rate of a program, the default one by default; None before `minimize`."""
        if isinstance(self._learning_rate, Variable):
            return self._learning_rate
        return self._learning_rate_map.get(program or default_main_program())

    def _create_global_learning_rate(self) -> None:
        if self._global_learning_rate() is not None:
            return
        self._learning_rate_map[default_main_program()] = layers.create_global_var(
            name=unique_name.generate("learning_rate"),
            shape=[1],
            value=self._learning_rate,
            dtype=self._dtype or "float32",
            persistable=True,
        )

    def _create_param_lr(self, param_and_grad: ParamGrad) -> Any:
        """The learning rate of one parameter: the global one times its own factor."""
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = self._global_learning_rate()
        if factor == 1.0:
            return rate
        program = default_main_program()
        with program._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return rate * factor

    def _append_update(
        self,
        block: Block,
        param_and_grad: ParamGrad,
        state: Mapping[str, Variable],
        attrs: Mapping[str, Any] | None = None,
        given: Mapping[str, Variable] | None = None,
    ) -> Operator:
        """Append the update op: slot `X` of `state` is read, and written through `XOut`.

        Slots of `given` are only read.
        """
        param, grad = param_and_grad
        rate = self._create_param_lr(param_and_grad)
        updated = {"Param": param, **state}
        return block.append_op(
            self.type,
            inputs={**updated, **(given or {}), "Grad": grad, "LearningRate": rate},
            outputs={f"{slot}Out": var for slot, var in updated.items()},
            attrs=attrs,
        )


class SGDOptimizer(Optimizer):
    """Stochastic gradient descent: `param -= rate * grad`."""

    type = "sgd"

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        return self._append_update(block, param_and_grad, {})


class MomentumOptimizer(Optimizer):
    """Remembers a velocity: `velocity = momentum * velocity + grad; param -= rate * velocity`.

    With `use_nesterov`, `param -= rate * (grad + momentum * velocity)`.
    """

    type = "momentum"

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        parameter_list: list[Any] | None = None,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        for param in parameters:
            self._add_accumulator("velocity", param)

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        state = {"Velocity": self._get_accumulator("velocity", param_and_grad[0])}
        attrs = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        return self._append_update(block, param_and_grad, state, attrs)


class _Moments(Optimizer):
    """What the Adam family shares: moving means by `beta1` and `beta2`, and an `epsilon`."""

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: list[Any] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _attrs(self) -> dict[str, Any]:
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}

    def _state(self, param: Parameter, slots: Mapping[str, str]) -> dict[str, Variable]:
        """The accumulators of a parameter by the slots they stand in."""
        return {slot: self._get_accumulator(name, param) for slot, name in slots.items()}


class AdamOptimizer(_Moments):
    """Adaptive moments (Kingma & Ba, 2015); `lazy_mode` matters for sparse gradients only."""

    type = "adam"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: list[Any] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        rest = (parameter_list, regularization, grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *rest)
        self._lazy_mode = lazy_mode

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        for param in parameters:
            self._add_accumulator("moment1", param)
            self._add_accumulator("moment2", param)
            self._add_accumulator("beta1_pow_acc", param, fill_value=self._beta1, shape=[1])
            self._add_accumulator("beta2_pow_acc", param, fill_value=self._beta2, shape=[1])

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        slots = {"Moment1": "moment1", "Moment2": "moment2"}
        slots |= {"Beta1Pow": "beta1_pow_acc", "Beta2Pow": "beta2_pow_acc"}
        state = self._state(param_and_grad[0], slots)
        attrs = {**self._attrs(), "lazy_mode": self._lazy_mode}
        return self._append_update(block, param_and_grad, state, attrs)


class AdamaxOptimizer(_Moments):
    """Adam with the largest gradient seen in place of the second moment (Kingma & Ba, 2015)."""

    type = "adamax"

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        for param in parameters:
            self._add_accumulator("moment", param)
            self._add_accumulator("inf_norm", param)
            self._add_accumulator("beta1_pow_acc", param, fill_value=self._beta1, shape=[1])

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        state = self._state(param_and_grad[0], {"Moment": "moment", "InfNorm": "inf_norm"})
        power = self._state(param_and_grad[0], {"Beta1Pow": "beta1_pow_acc"})
        return self._append_update(block, param_and_grad, state, self._attrs(), power)

    def _finish_update(self, block: Block, parameters_and_grads: list[ParamGrad]) -> None:
        """Advance the power of beta1 of every parameter that was updated."""
        updated = [pair for pair in parameters_and_grads if pair[1] is not None]
        for param, grad in (pair for pair in updated if pair[0].trainable):
            power = self._get_accumulator("beta1_pow_acc", param)
            guard = block.program._optimized_guard([param, grad])
            slots = {"inputs": {"X": power}, "outputs": {"Out": power}}
            with guard, name_scope("adamx"):
                block.append_op("scale", **slots, attrs={"scale": self._beta1})


SGD = SGDOptimizer
Momentum = MomentumOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer

__getattr__ = not_yet(__name__, globals())
