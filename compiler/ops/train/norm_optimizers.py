"""Updates that depend on a parameter as a whole: on its norm, or on its averaging window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.ir.opdef import Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import FINITE, WIDE
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.types import Array, TensorType
from compiler.ops.shape.random import normal_numbers
from compiler.ops.type_checks import require_same_dtype, require_same_shape, require_scalar

_MOMENTS = ("Moment1", "Moment2", "Velocity")


class WholeUpdate(Whole):
    """The base of updates by a gradient of Param's type and a scalar learning rate."""

    Param = reads()
    Grad = reads()
    LearningRate = reads()
    ParamOut = writes(inplace="Param")

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the overwritten values; ShapeError if Grad and Param differ in type."""
        require_same_dtype(self.kind, Param=types["Param"], Grad=types["Grad"])
        moments = {slot: types[slot] for slot in _MOMENTS if slot in types}
        require_same_shape(self.kind, Param=types["Param"], Grad=types["Grad"], **moments)
        require_scalar(self.kind, LearningRate=types["LearningRate"])
        return {slot: types[declared.inplace] for slot, declared in self.outputs().items()}


def averaged(
    grad: Value, first: Value, second: Value, beta1: float, beta2: float
) -> tuple[Value, Value]:
    """Moving averages of gradients, and of their squares."""
    squares = second * beta2 + grad * grad * (1.0 - beta2)
    return first * beta1 + grad * (1.0 - beta1), squares


class Lamb(WholeUpdate, op="lamb"):
    """Adam with layer-wise learning rates (You et al., 2019): the step is scaled by |Param|.

    move = Moment1 / (sqrt(Moment2) + epsilon) + weight_decay * Param;
    Param -= LearningRate * |Param| / |move| * move, without the ratio if a norm is 0. There is no
    bias correction: Beta1Pow and Beta2Pow are not used, as in the reference (lamb_op.h).
    """

    Moment1 = reads()
    Moment2 = reads()
    Beta1Pow = reads()
    Beta2Pow = reads()
    Moment1Out = writes(inplace="Moment1")
    Moment2Out = writes(inplace="Moment2")
    weight_decay = required(float)
    beta1 = attr(0.9)
    beta2 = attr(0.999)
    epsilon = attr(1e-6)

    def numpy(
        self, Param: Array, Grad: Array, LearningRate: Array, Moment1: Array, Moment2: Array
    ) -> dict[str, Array]:
        moments: tuple[Array, Array] = averaged(Grad, Moment1, Moment2, self.beta1, self.beta2)
        first, second = moments
        move = first / (np.sqrt(second) + self.epsilon) + Param * self.weight_decay
        length, distance = np.sqrt(np.vdot(Param, Param)), np.sqrt(np.vdot(move, move))
        ratio = length / distance if length > 0.0 and distance > 0.0 else 1.0
        return {
            "ParamOut": Param - LearningRate * ratio * move,
            "Moment1Out": first,
            "Moment2Out": second,
        }

    def measure(
        self, xp: Xp, Param: Value, Grad: Value, Moment1: Value, Moment2: Value
    ) -> dict[str, Value]:
        first, second = averaged(Grad, Moment1, Moment2, self.beta1, self.beta2)
        move = first / (xp.sqrt(second) + self.epsilon) + Param * self.weight_decay
        return {"length": Param * Param, "distance": move * move}

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        LearningRate: Value,
        Moment1: Value,
        Moment2: Value,
        length: Value,
        distance: Value,
    ) -> dict[str, Value]:
        first, second = averaged(Grad, Moment1, Moment2, self.beta1, self.beta2)
        move = first / (xp.sqrt(second) + self.epsilon) + Param * self.weight_decay
        moves = (length > 0.0) & (distance > 0.0)
        ratio = xp.sqrt(length) / xp.sqrt(xp.where(moves, distance, 1.0))
        return {
            "ParamOut": Param - LearningRate * xp.where(moves, ratio, 1.0) * move,
            "Moment1Out": first,
            "Moment2Out": second,
        }


class LarsMomentum(WholeUpdate, op="lars_momentum"):
    """Momentum with layer-wise learning rates by |Param| / |Grad| (You et al., 2017).

    rate = LearningRate * lars_coeff * |Param| / (|Grad| + lars_weight_decay * |Param|), or
    LearningRate if a norm is 0; Velocity = mu * Velocity + rate * (Grad + lars_weight_decay *
    Param); Param -= Velocity. Reference: lars_momentum_op.h.
    """

    Velocity = reads()
    VelocityOut = writes(inplace="Velocity")
    mu = required(float)
    lars_coeff = attr(0.001)
    lars_weight_decay = attr(0.0005)

    def numpy(
        self, Param: Array, Grad: Array, Velocity: Array, LearningRate: Array
    ) -> dict[str, Array]:
        length, slope = np.sqrt(np.vdot(Param, Param)), np.sqrt(np.vdot(Grad, Grad))
        decay, rate = self.lars_weight_decay, LearningRate
        if length > 0.0 and slope > 0.0:
            rate = LearningRate * self.lars_coeff * length / (slope + decay * length)
        velocity = Velocity * self.mu + rate * (Grad + Param * decay)
        return {"ParamOut": Param - velocity, "VelocityOut": velocity}

    def measure(self, xp: Xp, Param: Value, Grad: Value) -> dict[str, Value]:
        return {"length": Param * Param, "slope": Grad * Grad}

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        Velocity: Value,
        LearningRate: Value,
        length: Value,
        slope: Value,
    ) -> dict[str, Value]:
        both, decay = (length > 0.0) & (slope > 0.0), self.lars_weight_decay
        sizes = xp.sqrt(slope) + decay * xp.sqrt(length)
        scale = self.lars_coeff * xp.sqrt(length) / xp.where(both, sizes, 1.0)
        rate = LearningRate * xp.where(both, scale, 1.0)
        velocity = Velocity * self.mu + rate * (Grad + Param * decay)
        return {"ParamOut": Param - velocity, "VelocityOut": velocity}


class Dpsgd(WholeUpdate, op="dpsgd"):
    """Differentially private SGD (Abadi et al., 2016): Grad clipped to norm `clip`, plus noise.

    Param -= LearningRate * (Grad * min(1, clip / |Grad|) + noise / batch_size), where noise is one
    normal number with standard deviation `sigma` for all elements. A seed of 0 draws a new one in
    every step. Reference: dpsgd_op.h.
    """

    is_random = True
    sizing = frozenset({"place"})

    Key = reads(optional=True, no_grad=True)
    clip = attr(10.0)
    batch_size = attr(16.0)
    sigma = attr(1.0)
    seed = attr(0)
    place = attr(0)

    def numpy(self, Param: Array, Grad: Array, LearningRate: Array, Key: Array | None) -> Array:
        slope = np.sqrt(np.vdot(Grad, Grad))
        shortened = Grad / np.maximum(slope / self.clip, 1.0)
        drawn = normal_numbers(Key, self.place, self.seed, (1,), np.float64)
        noise = drawn.astype(Grad.dtype) * self.sigma
        return Param - LearningRate * (shortened + noise / self.batch_size)

    def measure(self, xp: Xp, Grad: Value) -> dict[str, Value]:
        return {"slope": Grad * Grad}

    def compute(
        self, xp: Xp, Param: Value, Grad: Value, LearningRate: Value, Key: Value, slope: Value
    ) -> Value:
        shortened = Grad / xp.maximum(xp.sqrt(slope) / self.clip, 1.0)
        noise = xp.normal(Key, Key * 0) * (self.sigma / self.batch_size)
        return Param - LearningRate * (shortened + noise)


class AverageAccumulates(Whole, op="average_accumulates"):
    """Sums of a parameter over a window of steps, for its average.

    Each step adds `param` to sum_1, which is moved to sum_2 every 16384 steps, for precision.
    Once the window is full (num_accumulates is at least `min_average_window`, and at least
    `average_window` times all updates, or `max_average_window`), both move to sum_3 and a new one
    begins. Reference: average_accumulates_op.h.
    """

    param = reads()
    in_sum_1 = reads()
    in_sum_2 = reads()
    in_sum_3 = reads()
    in_num_accumulates = reads()
    in_old_num_accumulates = reads()
    in_num_updates = reads()
    out_sum_1 = writes(inplace="in_sum_1")
    out_sum_2 = writes(inplace="in_sum_2")
    out_sum_3 = writes(inplace="in_sum_3")
    out_num_accumulates = writes(inplace="in_num_accumulates")
    out_old_num_accumulates = writes(inplace="in_old_num_accumulates")
    out_num_updates = writes(inplace="in_num_updates")
    average_window = attr(0.0, FINITE)
    max_average_window = required(int, WIDE)
    min_average_window = attr(10000, WIDE)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the overwritten values; ShapeError if a sum and `param` differ in type."""
        sums: dict[str, TensorType] = {slot: types[slot] for slot in types if "sum" in slot}
        require_same_dtype(self.kind, param=types["param"], **sums)
        require_same_shape(self.kind, param=types["param"], **sums)
        require_scalar(self.kind, **{slot: types[slot] for slot in types if "num" in slot})
        return {slot: types[declared.inplace] for slot, declared in self.outputs().items()}

    def numpy(
        self,
        param: Array,
        in_sum_1: Array,
        in_sum_2: Array,
        in_sum_3: Array,
        in_num_accumulates: Array,
        in_old_num_accumulates: Array,
        in_num_updates: Array,
    ) -> dict[str, Array]:
        recent, before, closed = in_sum_1 + param, in_sum_2, in_sum_3
        count, old_count = in_num_accumulates + 1, in_old_num_accumulates
        updates = in_num_updates + 1
        if updates[0] % 16384 == 0:
            recent, before = np.zeros_like(recent), before + recent
        window = min(self.max_average_window, int(updates.ravel()[0] * self.average_window))
        if count[0] >= self.min_average_window and count[0] >= window:
            recent, before, closed = np.zeros_like(recent), np.zeros_like(before), recent + before
            count, old_count = np.zeros_like(count), count
        return {
            "out_sum_1": recent,
            "out_sum_2": before,
            "out_sum_3": closed,
            "out_num_accumulates": count,
            "out_old_num_accumulates": old_count,
            "out_num_updates": updates,
        }

    def measure(self, xp: Xp) -> dict[str, Value]:
        return {}

    def compute(
        self,
        xp: Xp,
        param: Value,
        in_sum_1: Value,
        in_sum_2: Value,
        in_sum_3: Value,
        in_num_accumulates: Value,
        in_old_num_accumulates: Value,
        in_num_updates: Value,
    ) -> dict[str, Value]:
        updates, count, added = in_num_updates + 1, in_num_accumulates + 1, in_sum_1 + param
        moves = xp.equal(xp.remainder(updates, 16384), 0)
        recent = xp.where(moves, 0.0, added)
        before = xp.where(moves, in_sum_2 + added, in_sum_2)
        window = (updates * self.average_window).astype(np.int64)
        window = xp.minimum(window, self.max_average_window)
        closes = (count >= self.min_average_window) & (count >= window)
        return {
            "out_sum_1": xp.where(closes, 0.0, recent),
            "out_sum_2": xp.where(closes, 0.0, before),
            "out_sum_3": xp.where(closes, recent + before, in_sum_3),
            "out_num_accumulates": xp.where(closes, 0, count),
            "out_old_num_accumulates": xp.where(closes, count, in_old_num_accumulates),
            "out_num_updates": updates,
        }
