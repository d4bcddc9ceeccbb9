"""Deep gradient compression: only the largest elements of a gradient are sent, the rest later.

Lin et al., 2018 (arXiv 1712.01887). Each rank keeps U, its momentum, and V, the accumulated unsent
gradient. Before step `rampup_begin_step` everything is sent, and training equals `momentum`. The
ops and their arithmetic are those of Paddle 1.8.5: dgc_op.h, dgc_momentum_op.h,
dgc_clip_by_norm_op.h, sparse_all_reduce_op_handle.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.ir.opdef import OpDef, Slots, Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.types import Array, TensorType
from compiler.ops.collective.base import Collective
from compiler.ops.collective.reduce import all_reduced
from compiler.ops.train.sgd import Update
from compiler.ops.type_checks import require_scalar


def sparsity_at(sparsity: Sequence[float], step: float, rampup_step: float) -> float:
    """The fraction of a gradient that is not sent, `step` steps after the beginning.

    The values of `sparsity` share `rampup_step` steps; after that, the last one is used.

    >>> [sparsity_at([0.75, 0.9, 0.99], step, 6.0) for step in (0, 1, 2, 5, 6)]
    [0.75, 0.75, 0.9, 0.99, 0.99]
    """
    place = int(step * len(sparsity) / rampup_step)
    return sparsity[min(place, len(sparsity) - 1)]


def sent_count(size: int, sparsity: float) -> int:
    """The number of elements sent of `size`, computed in float32 like the reference.

    >>> sent_count(16384, 0.999), sent_count(20000, 0.75)
    (16, 5000)
    """
    return int(np.float32(size) * (np.float32(1.0) - np.float32(sparsity)))


def compressed(
    u: Array, v: Array, gradient: Array, count: int, m: float, use_nesterov: bool
) -> tuple[Array, Array, Array]:
    """The new U and V, zeroed at the `count` largest elements of V; these, among zeros."""
    momentum = gradient.dtype.type(m)
    u = momentum * (u + gradient) if use_nesterov else momentum * u + gradient
    v = v + u + gradient if use_nesterov else v + u
    sent, sizes = np.zeros_like(v), np.abs(v).ravel()
    chosen = np.argpartition(sizes, -count)[-count:] if count else slice(0)
    sent.flat[chosen] = v.flat[chosen]
    for tensor in (u, v):
        tensor.flat[chosen] = 0
    return u, v, sent


def number(value: int, like: Array) -> Array:
    """A number as array [1], in the element type of `like`."""
    return np.array([value], like.dtype)


class Dgc(OpDef, op="dgc"):
    """Grad_out = the elements of V to send, zeros elsewhere; U_out and V_out = the rest.

    With G = nranks * Grad + decay of Param: U = m * U + G and V = V + U; with `use_nesterov`
    U = m * (U + G) and V = V + U + G. The `k` largest elements of V are sent; U and V are
    set to 0 there. Before `rampup_begin_step` Grad_out is G, nothing else changes. `current_step`
    and `nranks` [1] are float32 numbers; ValueError if there is one rank. `regular_type` is
    0, 1 for L1 or 2 for L2 decay. Reference: dgc_op.h.
    """

    lod_source = ""
    no_kernel_reason = "the elements to send are data-dependent"

    U = reads()
    V = reads()
    Grad = reads()
    Param = reads()
    current_step = reads()
    nranks = reads()
    U_out = writes(inplace="U")
    V_out = writes(inplace="V")
    Grad_out = writes(inplace="Grad")
    k = writes(optional=True)
    m = attr(0.9)
    use_nesterov = attr(False)
    sparsity = attr(list[float]())
    rampup_begin_step = attr(0.0)
    rampup_step = attr(0.0)
    regular_coeff = attr(0.0)
    regular_type = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"U_out": s.U, "V_out": s.V, "Grad_out": s.Grad, "k": s.Grad.with_shape((1,))}

    def numpy(
        self, U: Array, V: Array, Grad: Array, Param: Array, current_step: Array, nranks: Array
    ) -> dict[str, Array]:
        ranks, step = int(nranks.item()), float(current_step.item()) - self.rampup_begin_step
        if ranks <= 1:
            raise ValueError(f"DGC is not useful when num_trainers <= 1, but now nranks={ranks}")
        gradient = Grad * Grad.dtype.type(ranks)
        if self.regular_type:
            decayed = np.sign(Param) if self.regular_type == 1 else Param
            gradient += Param.dtype.type(self.regular_coeff) * decayed
        if step < 0:
            return {"U_out": U, "V_out": V, "Grad_out": gradient, "k": number(0, Grad)}
        count = sent_count(V.size, sparsity_at(self.sparsity, step, self.rampup_step))
        u, v, sent = compressed(U, V, gradient, count, self.m, self.use_nesterov)
        return {"U_out": u, "V_out": v, "Grad_out": sent, "k": number(count, Grad)}


class DgcAllReduce(Collective, op="dgc_allreduce_sum"):
    """Out = the sum of X over all ranks of ring `ring_id`; zeros of X are not sent.

    Before `rampup_begin_step` all of X is sent. Replaces `c_allreduce_sum` after a `dgc` op.
    Reference: sparse_all_reduce_op_handle.cc.
    """

    lod_source = "X"
    no_kernel_reason = "the number of elements sent is data-dependent"

    X = reads()
    current_step = reads()
    Out = writes(inplace="X")
    ring_id = attr(0)
    rampup_begin_step = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": s.X}

    def numpy(self, X: Array, current_step: Array) -> dict[str, Array]:
        where = (self.collective, self.ring_id, self.variable)
        if current_step.item() < self.rampup_begin_step:
            return {"Out": all_reduced(*where, "sum", X)}
        flat = X.ravel()
        mine = np.flatnonzero(flat)
        rows, values = self.collective.all_gather_rows(*where[1:], mine, flat[mine])
        out = np.zeros_like(flat)
        np.add.at(out, rows, values)
        return {"Out": out.reshape(X.shape)}


class DgcMomentum(Update, op="dgc_momentum"):
    """Grad_out = Grad / nranks; then `momentum` before `rampup_begin_step`, and `sgd` after.

    From that step on, `dgc` includes the momentum. Reference: dgc_momentum_op.h.
    """

    Velocity = reads()
    current_step = reads()
    nranks = reads()
    VelocityOut = writes(inplace="Velocity")
    Grad_out = writes(inplace="Grad")
    mu = required(float)
    use_nesterov = attr(False)
    rampup_begin_step = attr(0.0)

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        LearningRate: Value,
        Velocity: Value,
        current_step: Value,
        nranks: Value,
    ) -> dict[str, Any]:
        grad, is_dense = Grad / nranks, current_step < self.rampup_begin_step
        velocity = Velocity * self.mu + grad
        moved = velocity * self.mu + grad if self.use_nesterov else velocity
        return {
            "ParamOut": Param - LearningRate * xp.where(is_dense, moved, grad),
            "VelocityOut": xp.where(is_dense, velocity, Velocity),
            "Grad_out": grad,
        }


class DgcClipByNorm(Whole, op="dgc_clip_by_norm"):
    """`clip_by_norm` from `rampup_begin_step` on; before that step Out is X.

    Reference: dgc_clip_by_norm_op.h.
    """

    X = reads()
    current_step = reads()
    Out = writes()
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {"Out": ("X",)}
    max_norm = required(float, FINITE)
    rampup_begin_step = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_scalar(self.kind, current_step=s.current_step)
        return s.X

    def numpy(self, X: Array, current_step: Array) -> Array:
        if current_step.item() < self.rampup_begin_step:
            return X
        norm = np.sqrt(np.vdot(X, X))
        return X * X.dtype.type(self.max_norm / np.maximum(norm, self.max_norm))

    def measure(self, xp: Xp, X: Value, current_step: Value) -> dict[str, Value]:
        return {"squares": X * X}

    def compute(self, xp: Xp, X: Value, current_step: Value, squares: Value) -> Value:
        factor = self.max_norm / xp.maximum(xp.sqrt(squares), self.max_norm)
        return X * xp.where(current_step < self.rampup_begin_step, 1.0, factor)
