"""`DGCMomentumOptimizer`: momentum with deep gradient compression.

Lin et al., 2018 (arXiv 1712.01887). A `dgc` op is appended to the backward pass for each compressed
gradient; `dgc_allreduce_sum` follows where gradients are all-reduced. Names and structure are those
of Paddle 1.8.5, whose `dgc` runs on GPUs only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

from fluid.clip import GradientClipBase, GradientClipByNorm
from fluid.framework import (
    Block,
    Operator,
    Parameter,
    Program,
    Variable,
    default_main_program,
    program_of,
    recording_guard,
)
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.optimizer.base import Optimizer, ParamGrad, expect_static
from fluid.recording.annotations import SlotValue
from fluid.recording.arguments import typed
from fluid.recording.atomic import atomic
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import VariableOrName
from fluid.regularizer import L1DecayRegularizer, L2DecayRegularizer, WeightDecayRegularizer

__all__ = ["DGCMomentumOptimizer"]

COUNTER, RANKS = "__g_dgc_counter__", "__g_nranks__"
"""Global variables: the step number, from 0, and the number of ranks."""

MIN_COMPRESSED_SIZE = 16384
"""Minimum number of elements of a parameter whose gradient is compressed."""


class DGCMomentumOptimizer(Optimizer):
    """Momentum with gradient compression from step `rampup_begin_step`.

    Only the largest elements of a gradient, a fraction 1 - `sparsity` of it, are sent; ranks
    accumulate the others locally. Each value of `sparsity` is used for an equal part of
    `rampup_step` steps, then the last one. Gradients of parameters with fewer than 16384 elements,
    sparse ones and those not in float32 are all-reduced uncompressed. It requires two or more
    ranks, with `CompiledProgram.with_data_parallel`, `ParallelExecutor` or the transpiler's
    collective mode: the first run on one rank raises EnforceNotMet.

    `grad_clip` clips each rank's gradient to its norm / sqrt(`num_trainers`), which is then
    required. Raises TypeError for another kind of clip, AssertionError for `num_trainers` that is
    no positive int and for a negative `rampup_begin_step`, ValueError for a sparsity outside (0,
    1].
    """

    _u_velocity_acc_str = "_dgc_u_"
    _v_velocity_acc_str = "_dgc_v_"

    type = "dgc_momentum"

    @typed
    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: list[float] = [0.999],  # noqa: B006
        parameter_list: list[VariableOrName] | None = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: object = None,
        name: str | None = None,
    ) -> None:
        expect_static("DGCMomentumOptimizer")
        clip = grad_clip if isinstance(grad_clip, GradientClipBase) else None
        super().__init__(learning_rate, parameter_list, regularization, clip, name)
        if rampup_begin_step < 0:
            raise AssertionError(f"rampup_begin_step must >= 0, but it is {rampup_begin_step}")
        if not sparsity or not all(0.0 < ratio <= 1.0 for ratio in sparsity):
            raise ValueError(f"sparsity has values above 0 and up to 1, not {sparsity}")
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)
        self._begin, self._rampup, self._sparsity = rampup_begin_step, rampup_step, sparsity
        self._rank_clip_norm = _rank_clip_norm(grad_clip, num_trainers)

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
        """As in `Optimizer`, followed by compression of the gradients."""
        param_grads = super().backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        with recording_guard(program_of(loss), startup_program):
            self._append_dgc_ops(param_grads)
        return param_grads

    @typed
    @atomic
    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """Second half of `minimize`: clip and decay uncompressed gradients, then append the
        updates.
        """
        ordered = sorted(params_grads, key=lambda pair: pair[0].name)
        dense = [pair for pair in ordered if not _is_compressed(*pair)]
        compressed = [pair for pair in ordered if _is_compressed(*pair)]
        decayed = self._clip_and_decay(dense)
        with self._restored_on_error():
            every = sorted([*decayed, *compressed], key=lambda pair: pair[0].name)
            return self._create_optimization_pass(every)

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        """Do nothing: `backward` created the accumulators."""

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        param, grad = param_and_grad
        velocity = self._get_accumulator("_dgc_u_", param)
        rate = self._create_param_lr(param_and_grad)
        inputs: dict[str, SlotValue] = {"Param": param, "Grad": grad}
        inputs |= {"Velocity": velocity, "LearningRate": rate}
        outputs: dict[str, SlotValue] = {"ParamOut": param, "VelocityOut": velocity}
        attrs: dict[str, object] = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        if not _is_compressed(param, grad):
            return block.append_op("momentum", inputs=inputs, outputs=outputs, attrs=attrs)
        inputs |= {"current_step": self._step, "nranks": self._ranks}
        outputs["Grad_out"] = grad
        attrs["rampup_begin_step"] = float(self._begin)
        return block.append_op(self.type, inputs=inputs, outputs=outputs, attrs=attrs)

    # ---- compression

    def _append_dgc_ops(self, params_grads: Sequence[ParamGrad]) -> None:
        program = default_main_program()
        vars(program)["_enable_dgc"] = True
        self._step, self._ranks = _counter(), _create_global(RANKS, -1.0)
        self.helper = LayerHelper(self.__class__.__name__)
        for param, grad in params_grads:
            self._add_accumulator("_dgc_u_", param)
            if grad is not None and _is_compressed(param, grad):
                self._add_accumulator("_dgc_v_", param)
                _remove_role(program.global_block(), param.name)
                self._append_dgc_op(program, param, grad)

    def _append_dgc_op(self, program: Program, param: Parameter, grad: Variable) -> None:
        block = program.global_block()
        u, v = (self._get_accumulator(name, param) for name in ("_dgc_u_", "_dgc_v_"))
        inputs = {"U": u, "V": v, "Grad": grad, "Param": param, **self._counter_inputs()}
        outputs = {"U_out": u, "V_out": v, "Grad_out": grad}
        with program.backward_role_guard():
            if self._rank_clip_norm is not None:
                self._append_clip(block, grad, self._rank_clip_norm)
            op = block.append_op(
                "dgc", inputs=inputs, outputs=outputs, attrs=self._dgc_attributes(param)
            )
        op.set_attr("op_role_var", [param.name, grad.name])

    def _append_clip(self, block: Block, grad: Variable, norm: float) -> None:
        attrs = {"max_norm": norm, "rampup_begin_step": float(self._begin)}
        inputs = {"X": grad, "current_step": self._step}
        block.append_op("dgc_clip_by_norm", inputs=inputs, outputs={"Out": grad}, attrs=attrs)

    def _counter_inputs(self) -> dict[str, Variable]:
        return {"current_step": self._step, "nranks": self._ranks}

    def _dgc_attributes(self, param: Parameter) -> dict[str, object]:
        """Return the attributes of a gradient's `dgc` op; a parameter's own regularizer has
        priority.
        """
        kind, coefficient = _decay(param.regularizer or self.regularization)
        return {
            "m": self._momentum,
            "sparsity": self._sparsity,
            "use_nesterov": self._use_nesterov,
            "rampup_begin_step": float(self._begin),
            "rampup_step": float(self._rampup),
            "regular_coeff": coefficient,
            "regular_type": kind,
        }


def _is_compressed(param: Parameter, grad: Variable | None) -> bool:
    """Return whether a gradient is compressed: large, dense and float32."""
    is_large = prod(map(abs, param.shape)) >= MIN_COMPRESSED_SIZE
    kinds = [variable.type for variable in (param, grad) if variable is not None]
    is_dense = all(kind == VarDesc.VarType.LOD_TENSOR for kind in kinds)
    return is_large and is_dense and param.dtype == VarDesc.VarType.FP32


def _remove_role(block: Block, param_name: str) -> None:
    """Remove the op role variable of a parameter's gradient from all ops but `dgc`."""
    for op in block.ops:
        names: list[str] = op.attrs.get("op_role_var") or []
        if op.role == 1 and param_name in names[::2]:
            place = names.index(param_name)
            op.set_attr("op_role_var", [*names[:place], *names[place + 2 :]])


def _rank_clip_norm(clip: object, trainers: int | None) -> float | None:
    """Return the norm to which a rank's gradient is clipped."""
    if clip is None:
        return None
    if not isinstance(clip, GradientClipByNorm):
        raise TypeError(
            "The type of grad_clip should be 'GradientClipByNorm', because DGCMomentumOptimizer "
            f"only support GradientClipByNorm, not {type(clip).__name__}"
        )
    if not isinstance(trainers, int) or trainers <= 0:
        raise AssertionError(f"num_trainers should be an int above 0, but it is {trainers!r}")
    return float(clip.clip_norm * trainers**-0.5)


def _decay(regularizer: object) -> tuple[int, float]:
    """Return the kind of weight decay as an enum value of `dgc`, and its coefficient."""
    if regularizer is None:
        return 0, 0.0
    if type(regularizer) is L1DecayRegularizer:
        return 1, float(regularizer.coefficient)
    if type(regularizer) is L2DecayRegularizer:
        return 2, float(regularizer.coefficient)
    raise AssertionError("regularization must be None|L1Decay|L2Deacy")


def _create_global(name: str, value: float) -> Variable:
    """Create a persistable scalar of the program, once."""
    helper = LayerHelper("global_step_counter")
    variable, is_new = helper.create_or_get_global_variable(
        name=name, dtype="float32", shape=[1], persistable=True, belong_to_optimizer=True
    )
    if is_new:
        helper.set_variable_initializer(variable, Constant(value, force_cpu=True))
        variable.stop_gradient = True
    return variable


def _counter() -> Variable:
    """Return the step number, which the first op of the program increments; 0 in the first step."""
    counter, block = _create_global(COUNTER, -1.0), default_main_program().global_block()
    if not any(op.type == "increment" and COUNTER in op.output_arg_names for op in block.ops):
        block.prepend_op(
            "increment", inputs={"X": counter}, outputs={"Out": counter}, attrs={"step": 1.0}
        )
    return counter
