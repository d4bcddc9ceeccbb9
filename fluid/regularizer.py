"""Weight decay: terms added to gradients before the optimizer."""

from __future__ import annotations

from collections.abc import Iterable

from fluid.framework import Parameter, Variable, in_dygraph_mode, name_scope
from fluid.recording.arguments import typed
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import AbstractBlock, ParameterAndGradient

__all__ = [
    "L1Decay",
    "L1DecayRegularizer",
    "L2Decay",
    "L2DecayRegularizer",
    "WeightDecayRegularizer",
]

NEW_GRAD = "@NEWGRAD@"
"""Suffix of the dense gradient that replaces a sparse one."""


class WeightDecayRegularizer:
    """Base class of regularizers, which append ops that compute a parameter's term."""

    @typed
    def __init__(self, regularization_coeff: float = 0.0) -> None:
        self._regularization_coeff = regularization_coeff

    @property
    def coefficient(self) -> float:
        """The factor of the term."""
        return self._regularization_coeff

    def __call__(self, param: Parameter, grad: Variable, block: AbstractBlock) -> Variable:
        """Return the term to add to `grad`, of the shape of `param`."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    def _scaled(self, var: Variable, out: Variable, block: AbstractBlock) -> Variable:
        attrs = {"scale": self._regularization_coeff}
        block.append_op("scale", inputs={"X": var}, outputs={"Out": out}, attrs=attrs)
        return out

    def __str__(self) -> str:
        name = type(self).__name__.removesuffix("Regularizer")
        return f"{name}, regularization_coeff={self._regularization_coeff:f}"


class L2DecayRegularizer(WeightDecayRegularizer):
    """L2 decay, the gradient of coeff / 2 * sum(param ** 2): coeff * param."""

    def __call__(self, param: Parameter, grad: Variable, block: AbstractBlock) -> Variable:
        """Return the term coeff * param."""
        return self._scaled(param, _like(param, block), block)


class L1DecayRegularizer(WeightDecayRegularizer):
    """L1 decay, the gradient of `coeff * sum(|param|)`: `coeff * sign(param)`."""

    def __call__(self, param: Parameter, grad: Variable, block: AbstractBlock) -> Variable:
        """Return the term coeff * sign(param)."""
        decay = _like(param, block)
        block.append_op("sign", inputs={"X": param}, outputs={"Out": decay})
        return self._scaled(decay, decay, block)


def _like(param: Parameter, block: AbstractBlock) -> Variable:
    return block.create_var(dtype=param.dtype, shape=param.shape, lod_level=param.lod_level)


def append_regularization_ops(
    parameters_and_grads: Iterable[ParameterAndGradient],
    regularization: WeightDecayRegularizer | None = None,
) -> list[ParameterAndGradient]:
    """Add the term of each parameter's regularizer, or else `regularization`, to its gradient."""
    with name_scope("regularization"):
        return [_regularized(param, grad, regularization) for param, grad in parameters_and_grads]


def _regularized(
    param: Parameter, grad: Variable | None, regularization: WeightDecayRegularizer | None
) -> ParameterAndGradient:
    regularizer = param.regularizer or regularization
    if grad is None or regularizer is None:
        return param, grad
    with param.block.program.optimized_guard([param, grad]):
        term = regularizer(param, grad, grad.block)
        decayed = _decayed(param, grad)
        grad.block.append_op("sum", inputs={"X": [grad, term]}, outputs={"Out": decayed})
    return param, decayed


def _decayed(param: Parameter, grad: Variable) -> Variable:
    """Return the variable for the sum: the gradient's own, if it is dense and no user's."""
    if in_dygraph_mode():
        return _like(param, grad.block)
    if grad.type != VarDesc.VarType.SELECTED_ROWS:
        return grad
    return grad.block.create_var(
        name=grad.name + NEW_GRAD,
        dtype=param.dtype,
        shape=param.shape,
        lod_level=param.lod_level,
    )


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer
