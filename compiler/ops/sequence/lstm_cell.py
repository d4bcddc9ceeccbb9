"""LSTM cells, step by step, with gradients; shared by the ops over sequences.

The order of gates is candidate, input, forget, output. Peepholes connect the cell to the gates:
the previous cell to input and forget, the new one to output. The recurrent state is the hidden
state, or a projection of it. The functions are copied into generated modules.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, attr, reads, reads_lod, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.sequence.offsets import count_of, require_one_level
from compiler.ops.sequence.time_steps import (
    activate,
    blocks_of,
    parts,
    places_before,
    require_activations,
    require_shape,
    slope,
    within,
)
from compiler.ops.type_checks import require_same_dtype

Rule: TypeAlias = "tuple[tuple[str, str, str], Array | None, float]"
"""The activations of gates, cell and candidate; peepholes [3, width]; the clip of the cell, or 0.
"""
Projection: TypeAlias = "tuple[Array, str, float] | None"
"""The projection weight, its activation, and its clip, or 0."""


def peepholes(Bias: Array, width: int, used: bool) -> Array | None:
    """The peephole weights of input, forget and output [3, width]; None unless `used`."""
    return Bias.reshape(-1)[4 * width :].reshape(3, width) if used else None


def lstm_step(gates: Array, before: Array, rule: Rule) -> tuple[Array, Array]:
    """The new cell and the activated one; gates [n, 4 · width] are activated in place."""
    (gate_kind, cell_kind, candidate_kind), checks, clip = rule
    width = before.shape[1]
    candidate, inlet, forget, outlet = parts(gates, 4)
    activate(candidate, candidate_kind)
    if checks is not None:
        inlet += before * checks[0]
        forget += before * checks[1]
    activate(gates[:, width : (4 if checks is None else 3) * width], gate_kind)
    cell = candidate * inlet + before * forget
    if clip > 0.0:
        np.clip(cell, -clip, clip, out=cell)
    if checks is not None:
        outlet += cell * checks[2]
        activate(outlet, gate_kind)
    active = cell.copy()
    activate(active, cell_kind)
    return cell, active


def project(hidden: Array, projection: Projection) -> Array:
    """The recurrent state: the hidden state, or its projection."""
    if projection is None:
        return hidden
    weight, kind, clip = projection
    state = hidden @ weight
    activate(state, kind)
    return np.clip(state, -clip, clip) if clip > 0.0 else state


def run_memory(
    gates: Array,
    starts: Array,
    state: Array,
    cell: Array,
    Weight: Array,
    rule: Rule,
    projection: Projection,
) -> tuple[Array, Array]:
    """Run all steps; returns the activated cells and the hidden states, in time-step order.

    `gates` hold the input part and are activated in place; `state` and `cell` are stacks above the
    initial ones, filled with those of every step.
    """
    width = cell.shape[1]
    active = np.empty((len(gates), width), gates.dtype)
    hidden = np.empty_like(active)
    for now, new, before in blocks_of(starts):
        gates[now] += state[before] @ Weight
        cell[new], active[now] = lstm_step(gates[now], cell[before], rule)
        np.multiply(gates[now, 3 * width :], active[now], out=hidden[now])
        state[new] = project(hidden[now], projection)
    return active, hidden


def gate_factors(gates: Array, active: Array, before: Array, rule: Rule) -> tuple[Array, Array]:
    """Factors of the gradients, for all steps at once.

    [n, 4, width] from the gradient of the hidden state (output gate) or of the cell (the
    others) to that of the pre-activation gates; [n, width] from hidden state to cell.
    """
    (gate_kind, cell_kind, candidate_kind), width = rule[0], active.shape[1]
    candidate, inlet, _, outlet = parts(gates, 4)
    factors = np.stack([inlet, candidate, before, active], axis=1)
    factors[:, 0] *= slope(candidate, candidate_kind)
    factors[:, 1:] *= slope(gates, gate_kind).reshape(-1, 4, width)[:, 1:]
    return factors, outlet * slope(active, cell_kind)


def memory_gradient(
    d_state: Array,
    starts: Array,
    state: Array,
    cell: Array,
    gates: Array,
    active: Array,
    Weight: Array,
    rule: Rule,
    projection: Projection,
    d_cell: Array,
) -> Array:
    """The gradient of the pre-activation gates; accumulates into `d_state` and `d_cell`.

    Both are initialised with the gradients from outside, stacked like `state` and `cell`. With a
    projection, `d_state` ends as the gradient of the product with its weight.
    """
    checks, width = rule[1], cell.shape[1]
    factors, through = gate_factors(gates, active, cell[places_before(starts)], rule)
    d_gates, forget = np.empty_like(factors), gates[:, 2 * width : 3 * width]
    for now, new, before in reversed(blocks_of(starts)):
        d_hidden = d_state[new]
        if projection is not None:
            d_hidden *= slope(state[new], projection[1]) * within(state[new], projection[2])
            d_hidden = d_hidden @ projection[0].T
        d_now, d_gate = d_cell[new], d_gates[now]
        d_now += d_hidden * through[now]
        np.multiply(d_hidden, factors[now, 3], out=d_gate[:, 3])
        if checks is not None:
            d_now += d_gate[:, 3] * checks[2]
        d_now *= within(cell[new], rule[2])
        np.multiply(d_now[:, None], factors[now, :3], out=d_gate[:, :3])
        d_cell[before] += d_now * forget[now]
        if checks is not None:
            d_cell[before] += d_gate[:, 1] * checks[0] + d_gate[:, 2] * checks[1]
        d_state[before] += d_gate.reshape(-1, 4 * width) @ Weight.T
    return d_gates.reshape(gates.shape)


def bias_gradient(Bias: Array, d_gates: Array, cells: Array, before: Array, used: bool) -> Array:
    """The gradient of the bias and, if used, of the peephole weights after it.

    `cells` are stacked above the initial ones; `before` indexes those of the previous step.
    """
    width = cells.shape[1]
    gradient = np.zeros_like(Bias)
    flat = gradient.reshape(-1)
    flat[: 4 * width] = d_gates.sum(axis=0)
    if used:
        d_inlet, d_forget, d_outlet = parts(d_gates, 4)[1:]
        seen, new = cells[before], cells[len(cells) - len(d_gates) :]
        products = d_inlet * seen, d_forget * seen, d_outlet * new
        flat[4 * width :] = np.concatenate([product.sum(axis=0) for product in products])
    return gradient


class Memory(OpDef):
    """The common base of `lstm` and `lstmp`.

    Input [rows, 4 · width] is the input part of the gates, Weight [size of the state, 4 · width]
    multiplies the previous state, Bias [1, 4 · width], or [1, 7 · width] with peepholes.
    H0 and C0 are the initial states and cells, a row for each sequence.
    """

    lod_source = "Input"

    Input = reads()
    Input_lod = reads_lod("Input")
    H0 = reads(optional=True)
    C0 = reads(optional=True)
    Weight = reads()
    Bias = reads()
    Cell = writes()
    BatchGate = writes(shares_lod=False)
    BatchCellPreAct = writes(shares_lod=False)
    use_peepholes = attr(True)
    is_reverse = attr(False)
    gate_activation = attr("sigmoid")
    cell_activation = attr("tanh")
    candidate_activation = attr("tanh")

    @property
    def kinds(self) -> tuple[str, str, str]:
        """The activations of gates, cell and candidate."""
        return self.gate_activation, self.cell_activation, self.candidate_activation

    def cell_type(
        self, Input: TensorType, Input_lod: list[TensorType], Bias: TensorType
    ) -> TensorType:
        """[rows, width]; raises if input, bias and LoD do not match."""
        require_one_level(self.kind, "Input", Input_lod)
        require_same_dtype(self.kind, Input=Input, Bias=Bias)
        names = ("gate_activation", "cell_activation", "candidate_activation")
        require_activations(self.kind, **{name: self.attributes[name] for name in names})
        size = Input.shape[-1]
        if Input.rank != 2 or (isinstance(size, int) and size % 4):
            raise ShapeError(f"{self.kind}: Input is {Input}, expected [rows, 4 · width]")
        width = size // 4
        require_shape(self.kind, "Bias", Bias, 1, width * (7 if self.use_peepholes else 4))
        return Input.with_shape((Input.shape[0], width))

    def check_states(
        self,
        Input_lod: list[TensorType],
        H0: TensorType | None,
        C0: TensorType | None,
        state: TensorType,
        cell: TensorType,
    ) -> None:
        """Raise ShapeError if H0 comes without C0, or has not one row for each sequence."""
        if H0 is not None and C0 is None:
            raise ShapeError(f"{self.kind}: H0 is {H0}, but C0 is missing")
        for slot, operand, type in (("H0", H0, state), ("C0", C0, cell)):
            if operand is not None:
                require_shape(self.kind, slot, operand, count_of(Input_lod[0]), type.shape[1])
