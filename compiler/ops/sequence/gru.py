"""GRU over sequences, and one step of it, with gradients.

The order of gates is update, reset, candidate. Weight [width, 3 · width] stores two matrices
consecutively: [width, 2 · width] for update and reset, and [width, width] for the candidate, which
multiplies the previous state times the reset gate.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence import gru_kernels
from compiler.ops.sequence.offsets import count_of, require_one_level
from compiler.ops.sequence.recurrent_kernels import Steps
from compiler.ops.sequence.time_steps import (
    activate,
    blocks_of,
    by_time_step,
    in_rows,
    initial_gradient,
    parts,
    places_before,
    require_activations,
    require_shape,
    slope,
    stack_states,
    stacked,
)
from compiler.ops.type_checks import require_same_dtype


def weights_of(Weight: Array) -> tuple[Array, Array]:
    """Views of the weights: update and reset [width, 2 · width], candidate [width, width]."""
    width, flat = len(Weight), Weight.reshape(-1)
    return flat[: 2 * width * width].reshape(width, -1), flat[2 * width * width :].reshape(
        width, -1
    )


def gru_step(
    gates: Array, before: Array, weights: tuple[Array, Array], kinds: tuple[str, str], origin: bool
) -> tuple[Array, Array]:
    """The new state, and the previous state times the reset gate; gates are activated in place."""
    width = before.shape[1]
    pair, candidate = gates[:, : 2 * width], gates[:, 2 * width :]
    pair += before @ weights[0]
    activate(pair, kinds[0])
    update, reset = gates[:, :width], gates[:, width : 2 * width]
    reset_state = reset * before
    candidate += reset_state @ weights[1]
    activate(candidate, kinds[1])
    if origin:
        return candidate + update * (before - candidate), reset_state
    return before + update * (candidate - before), reset_state


def gru_step_gradient(
    d_gates: Array,
    d_state: Array,
    gates: Array,
    slopes: Array,
    before: Array,
    weights: tuple[Array, Array],
    origin: bool,
) -> Array:
    """The gradient of the previous state; writes that of the pre-activation gates to d_gates."""
    update, reset, candidate = parts(gates, 3)
    d_update, d_reset, d_candidate = parts(d_gates, 3)
    share = 1.0 - update if origin else update
    np.multiply(d_state, share, out=d_candidate)
    np.multiply(d_state, before - candidate if origin else candidate - before, out=d_update)
    d_candidate *= slopes[:, 2 * before.shape[1] :]
    d_kept = d_candidate @ weights[1].T
    np.multiply(d_kept, before, out=d_reset)
    d_pair = d_gates[:, : 2 * before.shape[1]]
    d_pair *= slopes[:, : 2 * before.shape[1]]
    return d_state * (1.0 - share) + d_kept * reset + d_pair @ weights[0].T


def gate_slopes(gates: Array, kinds: tuple[str, str]) -> Array:
    """The derivatives of all gates with respect to their pre-activation values."""
    slopes, width = slope(gates, kinds[0]), gates.shape[1] // 3
    slopes[:, 2 * width :] = slope(gates[:, 2 * width :], kinds[1])
    return slopes


def weight_gradient(Weight: Array, d_gates: Array, before: Array, kept: Array) -> Array:
    """The gradients of the two matrices in Weight, summed over all rows."""
    width = len(Weight)
    d_pair, d_candidate = d_gates[:, : 2 * width], d_gates[:, 2 * width :]
    gradients = [(before.T @ d_pair).reshape(-1), (kept.T @ d_candidate).reshape(-1)]
    return np.concatenate(gradients).reshape(Weight.shape)


class Gru(OpDef, op="gru"):
    """GRU: Hidden [rows, width] for each row of Input.

    Input [rows, 3 · width] is the input part of the gates, Weight [width, 3 · width] multiplies the
    previous state, Bias [1, 3 · width]; H0 [count, width] are the initial states.
    The new state is (1 - update) * before + update * candidate, with `origin_mode` the other way
    round. BatchGate (activated), BatchResetHiddenPrev (reset * before) and BatchHidden are in the
    order of `by_time_step`. Reference: gru_op.h.
    """

    unread_by_kernels = ("Bias",)

    Input = reads()
    Input_lod = reads_lod("Input")
    H0 = reads(optional=True)
    Weight = reads()
    Bias = reads(optional=True)
    BatchGate = writes()
    BatchResetHiddenPrev = writes()
    BatchHidden = writes()
    Hidden = writes()
    activation = attr("tanh")
    gate_activation = attr("sigmoid")
    is_reverse = attr(False)
    origin_mode = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, Weight = s.Input, s.Weight
        Input_lod = s.all("Input_lod")
        require_one_level("gru", "Input", Input_lod)
        require_same_dtype("gru", Input=Input, Weight=Weight)
        require_activations("gru", activation=self.activation, gate_activation=self.gate_activation)
        width = Weight.shape[0]
        require_shape("gru", "Weight", Weight, width, width * 3)
        require_shape("gru", "Input", Input, Input.shape[0], width * 3)
        if (Bias := s.get("Bias")) is not None:
            require_shape("gru", "Bias", Bias, 1, width * 3)
        if (H0 := s.get("H0")) is not None:
            require_shape("gru", "H0", H0, count_of(Input_lod[0]), width)
        state = Input.with_shape((Input.shape[0], width))
        batch = {"BatchGate": Input, "BatchResetHiddenPrev": state, "BatchHidden": state}
        return {**batch, "Hidden": state}

    def numpy(
        self,
        Input: Array,
        Input_lod: list[Array],
        H0: Array | None,
        Weight: Array,
        Bias: Array | None,
    ) -> dict[str, Array]:
        kinds, weights = (self.gate_activation, self.activation), weights_of(Weight)
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        gates = Input[rows] if Bias is None else Input[rows] + Bias
        state = stack_states(H0, order, len(rows), len(Weight), Input.dtype)
        reset_hidden = np.empty((len(rows), len(Weight)), Input.dtype)
        for now, new, before in blocks_of(starts):
            state[new], reset_hidden[now] = gru_step(
                gates[now], state[before], weights, kinds, self.origin_mode
            )
        hidden = state[len(order) :]
        batch = {"BatchGate": gates, "BatchResetHiddenPrev": reset_hidden, "BatchHidden": hidden}
        return {**batch, "Hidden": in_rows(hidden, rows)}

    def grad(
        self,
        Input: Shape,
        Input_lod: list[Array],
        H0: Array | None,
        Weight: Array,
        Bias: Array | None,
        BatchGate: Array,
        BatchResetHiddenPrev: Array,
        BatchHidden: Array,
        Hidden: Shape,
        d_Hidden: Array,
    ) -> dict[str, Array]:
        kinds, weights = (self.gate_activation, self.activation), weights_of(Weight)
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        state, d_state = stacked(H0, order, BatchHidden), stacked(None, order, d_Hidden[rows])
        d_gates, slopes = np.empty_like(BatchGate), gate_slopes(BatchGate, kinds)
        for now, new, before in reversed(blocks_of(starts)):
            d_state[before] += gru_step_gradient(
                d_gates[now], d_state[new], BatchGate[now], slopes[now], state[before], weights,
                self.origin_mode,
            )  # fmt: skip
        before = state[places_before(starts)]
        gradients = {
            "Input": in_rows(d_gates, rows),
            "Weight": weight_gradient(Weight, d_gates, before, BatchResetHiddenPrev),
        }
        if Bias is not None:
            gradients["Bias"] = d_gates.sum(axis=0, keepdims=True)
        if H0 is not None:
            gradients["H0"] = initial_gradient(d_state, order, len(H0))
        return gradients

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        rows, width = Input.shape[0], s.Weight.shape[0]
        steps = Steps(k, s.host.all("Input_lod")[0], rows, self.is_reverse)
        unit = self.unit(k, s.Weight, steps)
        gates = s.get("BatchGate") or k.scratch((rows, width * 3), Input.type.dtype)
        reset_hidden = s.get("BatchResetHiddenPrev") or k.scratch((rows, width), Input.type.dtype)
        (state,) = steps.stacks([s.get("H0")], [width], Input.type.dtype)
        wanted = ((state, "stack"), (s.get("BatchHidden"), "step"), (s.get("Hidden"), "row"))
        news = [(out, by) for out, by in wanted if out is not None]
        with steps.each(steps.onwards) as block:
            gru_kernels.step(unit, block, Input, s.get("Bias"), state, gates, reset_hidden, news)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        BatchGate, BatchHidden = s.BatchGate, s.BatchHidden
        steps = Steps(k, s.host.all("Input_lod")[0], s.d_Hidden.shape[0], self.is_reverse)
        unit = self.unit(k, s.Weight, steps)
        (state,) = steps.stacks([s.get("H0")], [s.Weight.shape[0]], BatchHidden.type.dtype)
        p, j = k.grid(*BatchHidden.shape)
        k.store(state, (p + k.size(steps.first), j), BatchHidden[p, j])
        d_gates = k.scratch(BatchGate.shape, BatchGate.type.dtype)
        carry = k.scratch(BatchHidden.shape, BatchGate.type.dtype)
        back = gru_kernels.Backward(state, BatchGate, s.d_Hidden, d_gates, carry, s.get("d_Input"))
        with steps.each(steps.back) as block:
            gru_kernels.backward_step(unit, block, back)
        if (d_H0 := s.get("d_H0")) is not None:
            cleared = steps.cleared(d_H0)
            gru_kernels.initial_gradient(unit, steps.first, d_gates, carry, steps.order, cleared)
        if (d_Weight := s.get("d_Weight")) is not None:
            before, reset_hidden = steps.places_before(), s.BatchResetHiddenPrev
            gru_kernels.weight_gradient(unit, state, before, reset_hidden, d_gates, d_Weight)
        if (d_Bias := s.get("d_Bias")) is not None:
            gru_kernels.bias_gradient(k, d_gates, d_Bias)

    def unit(self, k: KernelBuilder, Weight: DeviceOperand, steps: Steps) -> gru_kernels.Unit:
        """The weights and activations, for kernels."""
        kinds = self.gate_activation, self.activation
        return gru_kernels.Unit(k, Weight, kinds, self.origin_mode, steps.row_at)
