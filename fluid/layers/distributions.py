"""Probability distributions, whose samples, entropies and divergences are computed by ops.

Parameters are either numbers, lists and float32 arrays, which are broadcast and become constants of
the program, or all variables.
"""

from __future__ import annotations

import math
import warnings
from typing import Annotated, Any

import numpy as np

from fluid.framework import Variable
from fluid.layers.control.logic import less_than
from fluid.layers.mathematics.arithmetic import elementwise_add, elementwise_pow, elementwise_sub
from fluid.layers.mathematics.linalg import matmul
from fluid.layers.mathematics.random import (
    gaussian_random,
    uniform_random,
    uniform_random_batch_size_like,
)
from fluid.layers.mathematics.reductions import reduce_max, reduce_prod, reduce_sum
from fluid.layers.mathematics.shapes import diag, transpose
from fluid.layers.mathematics.shapes import shape as tensor_shape
from fluid.layers.nn import reshape
from fluid.layers.ops import exp, log
from fluid.layers.tensor import (
    assign,
    cast,
    create_tensor,
    fill_constant_batch_size_like,
    ones,
    zeros,
)
from fluid.recording.annotations import Array
from fluid.recording.arguments import UNCHECKED, is_numpy
from fluid.recording.checks import check_type, check_variable_and_dtype

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

_TENSORS = (np.ndarray, Variable, list)
_NUMBERS = (float, *_TENSORS)
Parameter = Annotated[float | Array | Variable | list[float], UNCHECKED]
"""A parameter of a distribution."""
_REALS = ("float32", "float64")


# ---- parameters ---------------------------------------------------------------------------------


def _parameters(owner: str, kinds: tuple[type, ...], **parameters: object) -> list[Variable]:
    """Return the parameters as variables, constants broadcast to one shape.

    Raises TypeError for other types and ValueError if variables and constants are mixed. Arrays are
    cast to float32, with a warning.
    """
    for name, value in parameters.items():
        check_type(value, name, kinds, owner)
        if is_numpy(value) and value.dtype != np.float32:
            warnings.warn(f"{owner}: {name} is {value.dtype}, and is cast to float32", stacklevel=3)
    variables = [value for value in parameters.values() if isinstance(value, Variable)]
    if 0 < len(variables) < len(parameters):
        raise ValueError(f"{owner}: {' and '.join(parameters)} must all be variables, or none")
    if variables:
        return variables
    arrays = [np.atleast_1d(np.asarray(value, np.float32)) for value in parameters.values()]
    return [assign(array, create_tensor("float32")) for array in np.broadcast_arrays(*arrays)]


def _check_sample(shape: object, seed: object) -> None:
    check_type(shape, "shape", list, "sample")
    check_type(seed, "seed", int, "sample")


def _move_samples_first(drawn: Variable, batch_axes: int) -> Variable:
    """Move the sample axes to the front."""
    axes = [*range(len(drawn.shape))]
    return transpose(drawn, axes[batch_axes:] + axes[:batch_axes])


# ---- distributions ------------------------------------------------------------------------------


class Distribution:
    """Base class of distributions; subclasses override the methods they support."""

    def sample(self, *args: Any, **kwargs: Any) -> Variable:
        """Draw samples; NotImplementedError if unsupported."""
        raise self._unsupported("sample")

    def entropy(self) -> Variable:
        """Return the entropy in nats; NotImplementedError if unsupported."""
        raise self._unsupported("entropy")

    def log_prob(self, value: Variable) -> Variable:
        """Return the log density at `value`; NotImplementedError if unsupported."""
        raise self._unsupported("log_prob")

    def kl_divergence(self, other: Distribution) -> Variable:
        """Return KL(self || other); NotImplementedError if unsupported."""
        raise self._unsupported("kl_divergence")

    def _unsupported(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {method}, as in Paddle 1.8")


class Uniform(Distribution):
    """Uniform distribution on [`low`, `high`).

    >>> import fluid
    >>> batch = fluid.layers.Uniform([1.0, 2.0], [3.0, 4.0])
    >>> batch.sample([5]).shape, batch.entropy().shape
    ((5, 2), (2,))
    """

    def __init__(self, low: Parameter, high: Parameter) -> None:
        self.low, self.high = _parameters("Uniform", _NUMBERS, low=low, high=high)
        self._of_variables = isinstance(low, Variable)
        self._of_numbers = isinstance(low, float) and isinstance(high, float)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Draw samples of shape `shape` + parameter shape; just `shape` if both are floats.

        Paddle 1.8 samples constant parameters from `2 * low - high` upwards, and assigns samples of
        variable parameters to the wrong instances.
        """
        _check_sample(shape, seed)
        batch = list((self.low + self.high).shape)
        if self._of_variables:
            return self._sampled(shape, batch, seed)
        sizes = shape + batch
        drawn = uniform_random(sizes, min=0.0, max=1.0, seed=seed)
        width = zeros(sizes, self.low.dtype) + (self.high - self.low)
        out = drawn * width + self.low
        return reshape(out, shape) if self._of_numbers else out

    def _sampled(self, shape: list[int], batch: list[int], seed: int) -> Variable:
        like, sizes = self.low + self.high, batch + shape
        nothing = fill_constant_batch_size_like(like, sizes, self.low.dtype, 0.0)
        drawn = uniform_random_batch_size_like(nothing, nothing.shape, min=0.0, max=1.0, seed=seed)
        above = elementwise_add(nothing, self.high, axis=0)
        width = elementwise_sub(above, self.low, axis=0)
        out = elementwise_add(drawn * width, self.low, axis=0)
        return _move_samples_first(out, len(batch))

    def log_prob(self, value: Variable) -> Variable:
        """Return the log density at `value`: -inf at and outside `low` and `high`."""
        check_variable_and_dtype(value, "value", _REALS, "log_prob")
        above, below = less_than(self.low, value), less_than(value, self.high)
        inside = cast(above, value.dtype) * cast(below, value.dtype)
        return log(inside) - log(self.high - self.low)

    def entropy(self) -> Variable:
        """Return the entropy in nats."""
        return log(self.high - self.low)


class Normal(Distribution):
    """Normal distribution with mean `loc` and standard deviation `scale`.

    >>> import fluid
    >>> batch = fluid.layers.Normal(1.0, [11.0, 22.0])
    >>> batch.sample([5]).shape, batch.kl_divergence(fluid.layers.Normal([0.0], [1.0])).shape
    ((5, 2), (2,))
    """

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        self.loc, self.scale = _parameters("Normal", _NUMBERS, loc=loc, scale=scale)
        self._of_variables = isinstance(loc, Variable)
        self._of_numbers = isinstance(loc, float) and isinstance(scale, float)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Draw samples of shape `shape` + parameter shape; just `shape` if both are floats.

        Paddle 1.8 assigns samples of variable parameters to the wrong instances.
        """
        _check_sample(shape, seed)
        batch = list((self.loc + self.scale).shape)
        if self._of_variables:
            return self._sampled(shape, batch, seed)
        sizes = shape + batch
        drawn = gaussian_random(sizes, seed=seed)
        out = drawn * (zeros(sizes, self.loc.dtype) + self.scale) + self.loc
        return reshape(out, shape) if self._of_numbers else out

    def _sampled(self, shape: list[int], batch: list[int], seed: int) -> Variable:
        nothing = self._zeros(batch + shape)
        drawn = gaussian_random(tensor_shape(nothing), seed=seed)
        spread = drawn * elementwise_add(nothing, self.scale, axis=0)
        return _move_samples_first(elementwise_add(spread, self.loc, axis=0), len(batch))

    def _zeros(self, shape: list[int]) -> Variable:
        """Return zeros of shape `shape` + parameter shape."""
        like = self.loc + self.scale
        return fill_constant_batch_size_like(like, shape, self.loc.dtype, 0.0)

    def entropy(self) -> Variable:
        """Return the entropy in nats."""
        nothing = self._zeros(list((self.loc + self.scale).shape))
        return 0.5 + 0.5 * math.log(2 * math.pi) + log(self.scale + nothing)

    def log_prob(self, value: Variable) -> Variable:
        """Return the log density at `value`."""
        check_variable_and_dtype(value, "value", _REALS, "log_prob")
        variance, log_scale = self.scale * self.scale, log(self.scale)
        squared = (value - self.loc) * (value - self.loc)
        return -1.0 * squared / (2.0 * variance) - log_scale - math.log(math.sqrt(2 * math.pi))

    def kl_divergence(self, other: Distribution) -> Variable:
        """Return the Kullback-Leibler divergence KL(self || other)."""
        check_type(other, "other", Normal, "kl_divergence")
        assert isinstance(other, Normal)
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        shift = (self.loc - other.loc) / other.scale
        return 0.5 * (ratio + shift * shift - 1.0 - log(ratio))


class Categorical(Distribution):
    """Categorical distribution with probabilities softmax(`logits`) over the last axis.

    >>> import fluid
    >>> fluid.layers.Categorical([[0.5, 0.5, 1.0], [0.1, 2.0, 0.3]]).entropy().shape
    (2, 1)
    """

    def __init__(self, logits: Array | Variable | list[float]) -> None:
        (self.logits,) = _parameters("Categorical", _TENSORS, logits=logits)

    def _shifted(self) -> Variable:
        """Return the logits minus their maximum, for numerical stability."""
        return self.logits - reduce_max(self.logits, dim=-1, keep_dim=True)

    def entropy(self) -> Variable:
        """Return the entropy in nats; the last axis has size 1."""
        logits = self._shifted()
        powers = exp(logits)
        total = _total(powers)
        return -1.0 * _total(powers / total * (logits - log(total)))

    def kl_divergence(self, other: Distribution) -> Variable:
        """Return the Kullback-Leibler divergence KL(self || other); the last axis has size 1."""
        check_type(other, "other", Categorical, "kl_divergence")
        assert isinstance(other, Categorical)
        logits, others = self._shifted(), other._shifted()
        powers, other_powers = exp(logits), exp(others)
        total, other_total = _total(powers), _total(other_powers)
        probabilities = powers / total
        return _total(probabilities * (logits - log(total) - others + log(other_total)))


def _total(values: Variable) -> Variable:
    return reduce_sum(values, dim=-1, keep_dim=True)


class MultivariateNormalDiag(Distribution):
    """Normal distribution with mean `loc` [k] and diagonal covariance matrix `scale` [k, k].

    >>> import fluid
    >>> loc, scale = fluid.data("mvn_loc", [2]), fluid.data("mvn_scale", [2, 2])
    >>> fluid.layers.MultivariateNormalDiag(loc, scale).entropy().shape
    (1,)
    """

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        parameters = {"loc": loc, "scale": scale}
        self.loc, self.scale = _parameters("MultivariateNormalDiag", _TENSORS, **parameters)

    def _ones(self) -> tuple[Variable, Variable]:
        """Return an all-ones and an identity matrix."""
        sizes = list(self.scale.shape)
        everywhere = ones(sizes, self.loc.dtype)
        return everywhere, diag(ones(sizes[:1], self.loc.dtype))

    def _determinant(self) -> Variable:
        everywhere, diagonal = self._ones()
        return reduce_prod(self.scale + everywhere - diagonal)

    def _inverse(self) -> Variable:
        everywhere, diagonal = self._ones()
        return elementwise_pow(self.scale, everywhere - 2 * diagonal)

    def entropy(self) -> Variable:
        """Return the entropy in nats, [1]."""
        constant = self.scale.shape[0] * (1.0 + math.log(2 * math.pi))
        return 0.5 * (constant + log(self._determinant()))

    def kl_divergence(self, other: Distribution) -> Variable:
        """Return the Kullback-Leibler divergence KL(self || other), [1]."""
        check_type(other, "other", MultivariateNormalDiag, "kl_divergence")
        assert isinstance(other, MultivariateNormalDiag)
        trace = reduce_sum(other._inverse() * self.scale)
        scaled = matmul(other.loc - self.loc, other._inverse())
        squared = matmul(scaled, other.loc - self.loc)
        logarithms = log(other._determinant()) - log(self._determinant())
        return 0.5 * (trace + squared - self.scale.shape[0] + logarithms)
