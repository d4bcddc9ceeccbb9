"""Single steps of recurrent networks, which programs unroll themselves."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence import gru_kernels, recurrent_kernels
from compiler.ops.sequence.gru import (
    gate_slopes,
    gru_step,
    gru_step_gradient,
    weight_gradient,
    weights_of,
)
from compiler.ops.sequence.recurrent_kernels import Block
from compiler.ops.sequence.time_steps import activate, parts, require_shape, slope
from compiler.ops.type_checks import require_same_dtype


def lstm_unit_gates(X: Array, forget_bias: float) -> list[Array]:
    """The activated gates of `lstm_unit`: input, forget, output, candidate."""
    active = np.array(X)
    inlet, forget, outlet, candidate = parts(active, 4)
    forget += forget_bias
    for gate in (inlet, forget, outlet):
        activate(gate, "logistic")
    activate(candidate, "tanh")
    return [inlet, forget, outlet, candidate]


class LstmUnit(OpDef, op="lstm_unit"):
    """One LSTM step: C and H [n, width] from C_prev [n, width].

    X [n, 4 · width] are the pre-activation gates input, forget, output and candidate; `forget_bias`
    is added to the forget gate. Reference: lstm_unit_op.h.
    """

    lod_source = ""

    X = reads()
    C_prev = reads()
    C = writes()
    H = writes()
    forget_bias = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, C_prev = s.X, s.C_prev
        require_same_dtype("lstm_unit", X=X, C_prev=C_prev)
        require_shape("lstm_unit", "C_prev", C_prev, X.shape[0], C_prev.shape[-1])
        require_shape("lstm_unit", "X", X, X.shape[0], C_prev.shape[1] * 4)
        return {"C": C_prev, "H": C_prev}

    def numpy(self, X: Array, C_prev: Array) -> dict[str, Array]:
        inlet, forget, outlet, candidate = lstm_unit_gates(X, self.forget_bias)
        C = forget * C_prev + inlet * candidate
        return {"C": C, "H": outlet * np.tanh(C)}

    def grad(self, X: Array, C_prev: Array, C: Array, d_C: Array, d_H: Array) -> dict[str, Array]:
        inlet, forget, outlet, candidate = lstm_unit_gates(X, self.forget_bias)
        active = np.tanh(C)
        d_cell = d_C + d_H * outlet * slope(active, "tanh")
        d_X = np.empty_like(X)
        d_inlet, d_forget, d_outlet, d_candidate = parts(d_X, 4)
        d_inlet[:] = d_cell * candidate * slope(inlet, "logistic")
        d_forget[:] = d_cell * C_prev * slope(forget, "logistic")
        d_outlet[:] = d_H * active * slope(outlet, "logistic")
        d_candidate[:] = d_cell * inlet * slope(candidate, "tanh")
        return {"X": d_X, "C_prev": d_cell * forget}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        C_prev = s.C_prev
        i, j = k.grid(*C_prev.shape)
        inlet, forget, outlet, candidate = self.gates(k, s.X, C_prev.shape[1], i, j)
        cell = forget * C_prev[i, j] + inlet * candidate
        for out, value in ((s.get("C"), cell), (s.get("H"), outlet * k.tanh(cell))):
            if out is not None:
                k.store(out, (i, j), value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        C_prev = s.C_prev
        i, j = k.grid(*C_prev.shape)
        width = C_prev.shape[1]
        inlet, forget, outlet, candidate = gates = self.gates(k, s.X, width, i, j)
        active, above = k.tanh(s.C[i, j]), s.d_H[i, j]
        d_cell = s.d_C[i, j] + above * outlet * (1.0 - active * active)
        d_gates = d_cell * candidate, d_cell * C_prev[i, j], above * active, d_cell * inlet
        kinds = ("logistic", "logistic", "logistic", "tanh")
        for part, (value, gate, kind) in enumerate(zip(d_gates, gates, kinds, strict=True)):
            if (d_X := s.get("d_X")) is not None:
                column = j + k.size(width * part)
                k.store(d_X, (i, column), value * recurrent_kernels.slope(k, gate, kind))
        if (d_C_prev := s.get("d_C_prev")) is not None:
            k.store(d_C_prev, (i, j), d_cell * forget)

    def gates(
        self, k: KernelBuilder, X: DeviceOperand, width: Size, i: Number, j: Number
    ) -> tuple[Number, ...]:
        """The activated gates of an element: input, forget, output, candidate."""
        parts = [X[i, j + k.size(width * part)] for part in range(4)]
        parts[1] = parts[1] + self.forget_bias
        kinds = ("logistic", "logistic", "logistic", "tanh")
        return tuple(
            recurrent_kernels.activated(k, part, kind)
            for part, kind in zip(parts, kinds, strict=True)
        )


UNIT_ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")
"""The activations of `gru_unit`, by number."""


def unit_activation(number: int) -> str:
    """The activation for a number of `gru_unit`; its sigmoid is not clamped, as `gru`'s is.

    >>> unit_activation(1), unit_activation(2)
    ('logistic', 'tanh')
    """
    return ["identity", "logistic", "tanh", "relu"][number]


class GruUnit(OpDef, op="gru_unit"):
    """One GRU step: Hidden [n, width] from HiddenPrev [n, width].

    Input [n, 3 · width], Weight and Bias are as in `gru`, and so are the state and `origin_mode`.
    Gate are the activated gates, ResetHiddenPrev is reset * HiddenPrev. Activations are numbers:
    identity 0, sigmoid 1, tanh 2, relu 3. Reference: gru_unit_op.h.
    """

    unread_by_kernels = ("Bias",)

    lod_source = ""

    Input = reads()
    HiddenPrev = reads()
    Weight = reads()
    Bias = reads(optional=True)
    Gate = writes()
    ResetHiddenPrev = writes()
    Hidden = writes()
    activation = attr(2)
    gate_activation = attr(1)
    origin_mode = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, HiddenPrev, Weight = s.Input, s.HiddenPrev, s.Weight
        for name in ("activation", "gate_activation"):
            if self.attributes[name] not in range(len(UNIT_ACTIVATIONS)):
                raise BadAttribute(
                    f"gru_unit: {name!r} is {self.attributes[name]}, expected 0 to 3, for "
                    + ", ".join(UNIT_ACTIVATIONS)
                )
        require_same_dtype("gru_unit", Input=Input, HiddenPrev=HiddenPrev, Weight=Weight)
        width = Weight.shape[0]
        require_shape("gru_unit", "Weight", Weight, width, width * 3)
        require_shape("gru_unit", "HiddenPrev", HiddenPrev, Input.shape[0], width)
        require_shape("gru_unit", "Input", Input, Input.shape[0], width * 3)
        if (Bias := s.get("Bias")) is not None:
            require_shape("gru_unit", "Bias", Bias, 1, width * 3)
        return {"Gate": Input, "ResetHiddenPrev": HiddenPrev, "Hidden": HiddenPrev}

    def numpy(
        self, Input: Array, HiddenPrev: Array, Weight: Array, Bias: Array | None
    ) -> dict[str, Array]:
        kinds = unit_activation(self.gate_activation), unit_activation(self.activation)
        Gate = np.array(Input) if Bias is None else Input + Bias
        Hidden, reset_hidden = gru_step(
            Gate, HiddenPrev, weights_of(Weight), kinds, self.origin_mode
        )
        return {"Gate": Gate, "ResetHiddenPrev": reset_hidden, "Hidden": Hidden}

    def grad(
        self,
        Input: Shape,
        HiddenPrev: Array,
        Weight: Array,
        Bias: Array | None,
        Gate: Array,
        ResetHiddenPrev: Array,
        d_Hidden: Array,
    ) -> dict[str, Array]:
        kinds = unit_activation(self.gate_activation), unit_activation(self.activation)
        d_Input = np.empty_like(Gate)
        d_HiddenPrev = gru_step_gradient(
            d_Input, d_Hidden, Gate, gate_slopes(Gate, kinds), HiddenPrev, weights_of(Weight),
            self.origin_mode,
        )  # fmt: skip
        d_Weight = weight_gradient(Weight, d_Input, HiddenPrev, ResetHiddenPrev)
        gradients = {"Input": d_Input, "HiddenPrev": d_HiddenPrev, "Weight": d_Weight}
        return (
            gradients if Bias is None else {**gradients, "Bias": d_Input.sum(axis=0, keepdims=True)}
        )

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input, HiddenPrev = s.Input, s.HiddenPrev
        dtype, block = Input.type.dtype, Block(count=Input.shape[0])
        gates = s.get("Gate") or k.scratch(Input.shape, dtype)
        reset_hidden = s.get("ResetHiddenPrev") or k.scratch(HiddenPrev.shape, dtype)
        news = [(s.get("Hidden") or k.scratch(HiddenPrev.shape, dtype), "row")]
        gru_kernels.step(
            self.unit(k, s.Weight),
            block,
            Input,
            s.get("Bias"),
            HiddenPrev,
            gates,
            reset_hidden,
            news,
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        HiddenPrev, Gate = s.HiddenPrev, s.Gate
        unit, dtype = self.unit(k, s.Weight), Gate.type.dtype
        count = Gate.shape[0]
        d_gates, carry = k.scratch(Gate.shape, dtype), k.scratch(HiddenPrev.shape, dtype)
        back = gru_kernels.Backward(HiddenPrev, Gate, s.d_Hidden, d_gates, carry, s.get("d_Input"))
        gru_kernels.last_backward_step(unit, Block(count=count), back)
        if (d_HiddenPrev := s.get("d_HiddenPrev")) is not None:
            gru_kernels.initial_gradient(unit, count, d_gates, carry, None, d_HiddenPrev)
        if (d_Weight := s.get("d_Weight")) is not None:
            gru_kernels.weight_gradient(
                unit, HiddenPrev, None, s.ResetHiddenPrev, d_gates, d_Weight
            )
        if (d_Bias := s.get("d_Bias")) is not None:
            gru_kernels.bias_gradient(k, d_gates, d_Bias)

    def unit(self, k: KernelBuilder, Weight: DeviceOperand) -> gru_kernels.Unit:
        """The weights and activations, for kernels."""
        kinds = unit_activation(self.gate_activation), unit_activation(self.activation)
        return gru_kernels.Unit(k, Weight, kinds, self.origin_mode)
