"""Base class of optimizers: gradients of a loss, and one op that updates each parameter.

`minimize` sorts parameters by name and appends, in this order: `sgd` of a table whose rows lie on
servers, gradient clipping, weight decay, per-parameter learning rates, updates. Accumulators are
persistable variables `<parameter>_<accumulator>_<n>`, initialized by the startup program.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Required, TypeAlias, TypedDict, cast

import numpy as np

from compiler.ir.opdef import find
from compiler.ir.program import OpRole
from fluid import layers, unique_name
from fluid.backward import append_backward, no_grad_names
from fluid.clip import (
    GradientClipBase,
    append_gradient_clip_ops,
    correct_role_vars,
    error_clip_callback,
)
from fluid.eager import traces
from fluid.eager.learning_rates import LearningRateDecay, LearningRateEpochDecay
from fluid.eager.mode import to_variable
from fluid.eager.programs import EagerBlock, KnownOp, gradients_disabled
from fluid.eager.variables import ParamBase, VarBase
from fluid.executor import global_scope
from fluid.framework import (
    Block,
    Operator,
    Parameter,
    Program,
    Variable,
    default_main_program,
    in_dygraph_mode,
    name_scope,
    program_of,
    recording_guard,
)
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import Array, DTypeLike
from fluid.recording.arguments import UNCHECKED, ArgumentError, typed
from fluid.recording.atomic import atomic
from fluid.recording.checks import check_type
from fluid.recording.variable import ParameterAndGradient, VariableOrName
from fluid.regularizer import WeightDecayRegularizer, append_regularization_ops
from runtime.device import CPUPlace

__all__ = ["Optimizer", "ParamGrad", "Rate", "expect_static"]

Rate: TypeAlias = Annotated[float | Variable | LearningRateDecay, UNCHECKED]
"""A learning rate: a number, a variable, or in eager mode an object that computes the next one."""

ParamGrad = ParameterAndGradient
"""A parameter and its gradient, or None if it has none."""


class AccumulatorFields(TypedDict, total=False):
    """The arguments of `Optimizer._add_accumulator` for an accumulator of every parameter."""

    name: Required[str]
    fill_value: float
    shape: list[int]


def expect_static(optimizer: str) -> None:
    """Raise RuntimeError in eager mode, where there is no program for an optimizer to rewrite."""
    if in_dygraph_mode():
        raise RuntimeError(f"In dygraph, don't support {optimizer}: it rewrites a program")


class Optimizer:
    """Base class of optimizers; subclasses declare their op, accumulators and attributes.

    `learning_rate` is a float or a variable computed by a schedule. `parameter_list`, variables or
    names, restricts the updated parameters. Raises TypeError for arguments of other types.
    """

    type = ""

    @typed
    def __init__(
        self,
        learning_rate: Rate,
        parameter_list: list[VariableOrName] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        allowed = (float, Variable, LearningRateDecay) if in_dygraph_mode() else (float, Variable)
        check_type(learning_rate, "learning_rate", allowed, self.__class__.__name__)
        if in_dygraph_mode() and parameter_list is None:
            raise AttributeError(
                "parameter_list argument given to the Optimizer should not be None in dygraph mode."
            )
        self.regularization = regularization
        self.helper: LayerHelper | None = None
        self._name = name
        self._parameter_list = parameter_list
        self._grad_clip = grad_clip
        self._learning_rate = learning_rate
        self._learning_rate_map: dict[Program, Variable] = {}
        self._accumulators: dict[str, dict[str, Variable]] = defaultdict(dict)
        self._known_updates: dict[str, KnownOp] = {}
        self._accumulators_to_load: Mapping[str, object] = {}
        self._opti_name_list: list[str] = []
        self._dtype: DTypeLike | None = None

    # ---- public methods

    @typed
    @atomic
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: list[VariableOrName] | None = None,
        no_grad_set: Collection[VariableOrName] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append backward and update ops; return the update ops and (parameter, gradient) pairs.

        Pairs are in order of creation and have the gradients before clipping. In eager mode,
        `backward` of the loss must have been called.
        """
        if in_dygraph_mode():
            return self._update(self._gradients(parameter_list))
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

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
        """First half of `minimize`: append the ops that compute gradients.

        Raises AssertionError, as the reference does, unless the loss has shape (1,). In eager mode,
        returns the gradients that `loss.backward()` computed.
        """
        if in_dygraph_mode():
            return self._gradients(parameter_list)
        if loss.shape != (1,):
            raise AssertionError(
                f"The loss.shape should be (1,), but the current loss.shape is {loss.shape}. "
                "Maybe you should call fluid.layers.mean to process the current loss."
            )
        self._dtype = loss.dtype
        program = program_of(loss)
        fixed = {param.name for param in program.all_parameters() if not param.trainable}
        with recording_guard(program, startup_program):
            pairs = append_backward(
                loss,
                parameter_list or self._parameter_list,
                fixed | no_grad_names(no_grad_set),
                [error_clip_callback] if callbacks is None else callbacks,
            )
            return list[ParamGrad](pairs)

    @typed
    @atomic
    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """Second half of `minimize`: append the update ops and return them.

        Raises ArgumentError for a pair whose first item is a Variable, but no Parameter.
        """
        for variable, _ in params_grads:
            _expect_parameter(variable)
        ordered = sorted(params_grads, key=lambda pair: pair[0].name)
        tables = _distributed_tables(default_main_program())
        with self._restored_on_error():
            updates = [
                self._append_table_update(param, grad)
                for param, grad in ordered
                if param.name in tables and grad is not None
            ]
            decayed = self._clip_and_decay([pair for pair in ordered if pair[0].name not in tables])
            return self._create_optimization_pass(decayed) + updates

    def _clip_and_decay(self, params_grads: list[ParamGrad]) -> list[ParamGrad]:
        """Append clipping and weight decay; return parameters with the resulting gradients."""
        block = default_main_program().current_block()
        start = len(block.ops)
        clip = append_gradient_clip_ops if self._grad_clip is None else self._grad_clip
        clipped = clip(params_grads)
        correct_role_vars(block, start, clipped)
        return append_regularization_ops(clipped, self.regularization)

    def apply_optimize(
        self,
        loss: Variable,
        startup_program: Program | None,
        params_grads: Sequence[ParamGrad],
    ) -> list[Operator]:
        """Call `apply_gradients` in the program of `loss`."""
        if in_dygraph_mode():
            return self._update(list(params_grads))[0]
        with recording_guard(program_of(loss), startup_program):
            return self.apply_gradients(params_grads)

    @contextmanager
    def _restored_on_error(self) -> Generator[None]:
        """Context manager that restores the accumulators if an error discards the program's
        changes.
        """
        saved = {kind: dict(by_param) for kind, by_param in self._accumulators.items()}
        names, rates = list(self._opti_name_list), dict(self._learning_rate_map)
        try:
            yield
        except BaseException:
            self._accumulators = defaultdict(dict, saved)
            self._opti_name_list, self._learning_rate_map = names, rates
            raise

    # ---- eager mode

    def _gradients(self, parameter_list: Sequence[VariableOrName] | None) -> list[ParamGrad]:
        """Return the trainable parameters that have a gradient, with it."""
        params = [cast(ParamBase, p) for p in parameter_list or self._parameter_list or ()]
        pairs = [(param, param.gradient_or_zeros()) for param in params if param.trainable]
        return [(param, gradient) for param, gradient in pairs if gradient is not None]

    def _update(self, pairs: list[ParamGrad]) -> tuple[list[Operator], list[ParamGrad]]:
        """Record clipping, weight decay and updates; the trace runs before the next op."""
        with gradients_disabled():
            if type(self).apply_gradients is not Optimizer.apply_gradients:
                operators = self.apply_gradients(pairs)
            else:
                ordered = sorted(pairs, key=lambda pair: pair[0].name)
                changes = self._grad_clip is not None or self.regularization is not None
                if changes or any(p.regularizer or p.gradient_clip_attr for p, _ in ordered):
                    ordered = self._clip_and_decay(ordered)
                operators = self._create_optimization_pass(ordered)
        traces.current().is_complete = True
        return operators, pairs

    def clear_gradients(self) -> None:
        """Set the gradients of the parameters to zero (eager mode)."""
        for param in self._parameter_list or ():
            if isinstance(param, ParamBase) and param.trainable:
                param.clear_gradient()

    def current_step_lr(self) -> float:
        """Return the learning rate of the current step (eager mode)."""
        rate: Any = self._global_learning_rate()
        if rate is None:
            rate = self._learning_rate
        if isinstance(rate, LearningRateEpochDecay):
            rate = rate()
        elif isinstance(rate, LearningRateDecay):
            rate = rate.step()
        return rate.numpy()[0] if isinstance(rate, VarBase) else rate

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of the accumulators in order of creation."""
        return list(self._opti_name_list)

    def state_dict(self) -> dict[str, Any]:
        """Return the accumulators by name; empty before `minimize`.

        In eager mode, also the state of a learning rate that decays: "LR_Scheduler", and
        "global_step", the number of its next step.
        """
        accumulators = (var for kind in self._accumulators.values() for var in kind.values())
        by_name = {var.name: var for var in accumulators}
        state: dict[str, Any] = {name: by_name[name] for name in self._opti_name_list}
        rate = self._learning_rate
        if isinstance(rate, LearningRateDecay):
            state["LR_Scheduler"] = rate.state_dict()
            if not isinstance(rate, LearningRateEpochDecay):
                state["global_step"] = to_variable(
                    np.array([rate.step_num], "int32"), "global_step"
                )
        return state

    def set_dict(self, state_dict: Mapping[str, object]) -> None:
        """Set the accumulators in the global scope to arrays, by name.

        Raises AssertionError, before anything is set, if a name is missing or an array does not
        have the shape and dtype of its variable.
        """
        if in_dygraph_mode():
            self._load(state_dict)
            return
        state = {name: (var, state_dict.get(name)) for name, var in self.state_dict().items()}
        arrays = {name: _state_array(var, value) for name, (var, value) in state.items()}
        for name, array in arrays.items():
            global_scope().var(name).get_tensor().set(array, CPUPlace())

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        """Set the accumulators that exist; others are set when they are created."""
        rate = self._learning_rate
        if isinstance(rate, LearningRateDecay):
            rate.set_dict(state_dict["LR_Scheduler"])
            if not isinstance(rate, LearningRateEpochDecay):
                assert "global_step" in state_dict, (
                    "Global step not in state dict, Dygraph use LearningRateDecay, global_step "
                    "must in state_dict"
                )
                rate.step_num = int(np.asarray(state_dict["global_step"]).item())
        self._accumulators_to_load = state_dict
        for kind in self._accumulators.values():
            for var in kind.values():
                self._load_accumulator(cast(VarBase, var))

    def _load_accumulator(self, var: VarBase) -> None:
        assert var.name in self._accumulators_to_load, f"optimizer variable {var.name} not found"
        var.set_value(self._accumulators_to_load[var.name])

    # ---- overridden by subclasses

    def _accumulator_slots(self) -> dict[str, AccumulatorFields]:
        """Return the accumulators of a parameter, by input slot of the op.

        Each is a dict of arguments for `_add_accumulator`: name, optionally fill_value and shape.
        """
        return {}

    def _attrs(self, param: Parameter) -> dict[str, object]:
        """Return the attributes of the op that updates a parameter."""
        return {}

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        """Create the accumulators of each parameter."""
        for param in parameters:
            for fields in self._accumulator_slots().values():
                self._add_accumulator(param=param, **fields)

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        """Append the op that updates a parameter; its class declares which slots are overwritten.

        Raises NotImplementedError if the optimizer does not declare an op.
        """
        if not self.type:
            raise NotImplementedError(f"{type(self).__name__} does not declare an op")
        param, grad = param_and_grad
        inputs: dict[str, Variable | None] = {"Param": param, "Grad": grad}
        inputs |= self._extra_inputs()
        for slot, fields in self._accumulator_slots().items():
            inputs[slot] = self._get_accumulator(fields["name"], param)
        definition = find(self.type)
        if "LearningRate" in definition.inputs():
            inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        written = {name: slot.inplace for name, slot in definition.outputs().items()}
        outputs = {name: inputs[slot] for name, slot in written.items()}
        attrs = self._attrs(param)
        return block.append_op(self.type, inputs=inputs, outputs=outputs, attrs=attrs)

    def _append_table_update(self, param: Parameter, grad: Variable) -> Operator:
        """Append `sgd` for a table whose rows lie on servers, which keep nothing else of a row."""
        if self.type != "sgd":
            warnings.warn(
                f"the table {param.name!r} with is_distributed=True is updated by sgd, not by "
                f"{self.type}: servers remember nothing of its rows; use is_sparse=True instead",
                stacklevel=2,
            )
        block = default_main_program().current_block()
        with block.program.optimized_guard([param, grad]), name_scope("optimizer"):
            self._create_global_learning_rate()
            rate = self._create_param_lr((param, grad))
            inputs = {"Param": param, "Grad": grad, "LearningRate": rate}
            return block.append_op("sgd", inputs=inputs, outputs={"ParamOut": param})

    def _record_updates(self, block: Block, pairs: Iterable[ParamGrad]) -> None:
        """Append the update ops of eager mode: their slots are the same in each step."""
        assert isinstance(block, EagerBlock)
        has_rate = "LearningRate" in find(self.type).inputs()
        with block.eager_program.role_guard(OpRole.OPTIMIZE):
            for pair in pairs:
                param, grad = pair
                if grad is None:
                    continue
                known = self._known_updates.get(param.name)
                if known is None:
                    known = self._known_updates[param.name] = self._known_update(param)
                inputs = {**known.inputs, "Grad": grad, **self._extra_inputs()}
                if has_rate:
                    inputs["LearningRate"] = self._create_param_lr(pair)
                block.append_known(known, inputs, self._attrs(param))

    def _known_update(self, param: Parameter) -> KnownOp:
        """Return the update of a parameter, with the slots that hold it or its accumulators."""
        inputs: dict[str, Variable] = {"Param": param}
        for slot, fields in self._accumulator_slots().items():
            inputs[slot] = self._get_accumulator(fields["name"], param)
        written = {name: slot.inplace for name, slot in find(self.type).outputs().items()}
        outputs = {name: inputs[slot] for name, slot in written.items() if slot in inputs}
        return KnownOp(self.type, inputs, outputs)

    def _extra_inputs(self) -> dict[str, Variable]:
        """Return user variables that the op reads additionally, by slot."""
        return {}

    def _finish_update(self, block: Block, parameters_and_grads: list[ParamGrad]) -> None:
        """Append ops after all updates; nothing by default."""

    # ---- implementation

    def _create_optimization_pass(self, parameters_and_grads: list[ParamGrad]) -> list[Operator]:
        block = default_main_program().current_block()
        start = len(block.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        trained = [pair for pair in parameters_and_grads if pair[0].trainable]
        known = self._known_updates
        self._create_accumulators(block, [p for p, _ in trained if p.name not in known])
        self._create_global_learning_rate()
        if in_dygraph_mode() and type(self)._append_optimize_op is Optimizer._append_optimize_op:
            self._record_updates(block, trained)
            trained = []
        for param, grad in trained:
            if grad is not None:
                with block.program.optimized_guard([param, grad]), name_scope("optimizer"):
                    self._append_optimize_op(block, (param, grad))
        self._finish_update(block, parameters_and_grads)
        return block.slice_ops(start, len(block.ops))

    def _add_accumulator(
        self,
        name: str,
        param: Parameter,
        dtype: DTypeLike | None = None,
        fill_value: float = 0.0,
        shape: Iterable[int] | None = None,
        type: int | None = None,
        device: str | None = None,
    ) -> Variable:
        """Create an accumulator of a parameter, of its shape by default.

        `device` has no effect. Raises ValueError if it already exists.
        """
        key = self._accumulator_key(name)
        existing = self._accumulators[key].get(param.name)
        if existing is not None:
            if in_dygraph_mode():
                return existing
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
        self._opti_name_list.append(var.name)
        if self._accumulators_to_load:
            self._load_accumulator(cast(VarBase, var))
        return var

    def _get_accumulator(self, name: str, param: Variable) -> Variable:
        """Return an accumulator of a parameter by name; ValueError if it does not exist."""
        accumulators = self._accumulators[self._accumulator_key(name)]
        if param.name not in accumulators:
            raise ValueError(f"Accumulator {name} does not exist for parameter {param.name}")
        return accumulators[param.name]

    def _accumulator_key(self, name: str) -> str:
        return name if self._name is None else f"{self._name}_{name}"

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """Return the learning rate of a program (default: the default one); None before
        `minimize`.
        """
        if isinstance(self._learning_rate, Variable):
            return self._learning_rate
        return self._learning_rate_map.get(program or default_main_program())

    def replace_constant_rate(self, variable: Callable[[float], Variable]) -> None:
        """Use a variable in the default main program for a learning rate that is a float."""
        if isinstance(self._learning_rate, float):
            self._learning_rate_map[default_main_program()] = variable(self._learning_rate)

    def _create_global_learning_rate(self) -> None:
        rate = self._learning_rate
        if isinstance(rate, LearningRateDecay):
            self._learning_rate_map[default_main_program()] = rate()
            return
        if isinstance(rate, Variable) or self._global_learning_rate() is not None:
            return
        self._learning_rate_map[default_main_program()] = layers.create_global_var(
            name=unique_name.generate("learning_rate"),
            shape=[1],
            value=rate,
            dtype=self._dtype or "float32",
            persistable=True,
        )

    def _create_param_lr(self, param_and_grad: ParamGrad) -> Variable:
        """Return a parameter's learning rate: the global one times its own factor."""
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = self._global_learning_rate()
        assert rate is not None
        if factor == 1.0:
            return rate
        program = default_main_program()
        with program.lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return rate * factor


def _state_array(var: Variable, value: object) -> Array:
    """Return the array for an accumulator; AssertionError if shape or dtype do not match."""
    array = None if value is None else np.asarray(value)
    if array is None or (array.shape, array.dtype) != (var.shape, var.element.numpy):
        actual = "none" if array is None else f"{array.dtype} of shape {array.shape}"
        raise AssertionError(
            f"optimizer variable {var.name} is {var.element.numpy} of shape {var.shape}, "
            f"but the state passed has {actual}"
        )
    return array


def _distributed_tables(program: Program) -> set[str]:
    """The tables of `layers.embedding(is_distributed=True)`."""
    lookups = [op for op in program.global_block().ops if op.type == "lookup_table"]
    return {op.inputs["W"][0] for op in lookups if op.attrs.get("is_distributed")}


def _expect_parameter(variable: object) -> None:
    """Raise ArgumentError for a plain variable, as loaded inference models have."""
    if isinstance(variable, Variable) and not isinstance(variable, Parameter):
        name, shape = variable.name, list(variable.shape)
        raise ArgumentError(
            f"{name!r} is a Variable, not a Parameter, so an optimizer cannot update it: the "
            "variables of a loaded inference model are no parameters. Before minimize, call "
            f"program.global_block().create_parameter(name={name!r}, shape={shape}, "
            f"dtype='{variable.element.numpy}'), which keeps its value"
        )
