"""Kernels of GRU: a step is two matrix products, each fused with its gates."""

from __future__ import annotations

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.sequence.recurrent_kernels import Block, activated, slope
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Unit:
    """The parameters of every step: weights and activations.

    `kinds` are the activations of gates and candidate. `rows` maps positions in time-step order to
    rows of Input; None if they are the same.
    """

    k: KernelBuilder
    weight: DeviceOperand
    kinds: tuple[str, str]
    origin: bool
    rows: DeviceOperand | None = None

    @property
    def width(self) -> Size:
        """The width of a state."""
        return self.weight.shape[0]

    def pair_weight(self, r: Number, column: Number) -> Number:
        """Load a weight of update and reset [width, 2 · width]."""
        flat = self.weight.reshaped((self.weight.type.numel,))
        return flat[r * self.k.size(self.width * 2) + column]

    def candidate_weight(self, r: Number, j: Number) -> Number:
        """Load a weight of the candidate [width, width]."""
        w = self.width
        flat = self.weight.reshaped((self.weight.type.numel,))
        return flat[self.k.size(w * w * 2) + r * self.k.size(w) + j]

    def gate(self, j: Number, number: int) -> Number:
        """The column of a gate: update 0, reset 1, candidate 2."""
        return j + self.k.size(self.width * number)

    def position(self, block: Block, i: Number) -> tuple[Number, Number]:
        """The position of a step's row in time-step order, and its row in Input."""
        position = i + self.k.size(block.begin)
        return position, position if self.rows is None else self.rows[position]

    def update_weight(self, update: Number) -> Number:
        """The weight of the candidate in the new state."""
        return 1.0 - update if self.origin else update


def gate_input(
    Input: DeviceOperand, Bias: DeviceOperand | None, row: Number, column: Number
) -> Number:
    """The input part of a gate, with bias."""
    value = Input[row, column]
    return value if Bias is None else value + Bias[0, column]


def step(
    unit: Unit, block: Block, Input: DeviceOperand, Bias: DeviceOperand | None,
    state: DeviceOperand, gates: DeviceOperand, kept: DeviceOperand,
    destinations: list[tuple[DeviceOperand, str]],
) -> None:  # fmt: skip
    """Emit the kernels of one step: gates and kept are in time-step order, `state` is a stack.

    `destinations` receive the new states: by "step", by "row", or in the "stack".
    """
    k, w = unit.k, unit.width
    _, i, j, left, right = k.tiles((), block.count, w, w)
    position, row = unit.position(block, i)
    before = state[i + k.size(block.before), left]
    previous = state[i + k.size(block.before), j]
    gates_now: list[Number] = []
    for column in (j, unit.gate(j, 1)):
        total = k.contract(before, unit.pair_weight(right, column))
        gates_now.append(activated(k, gate_input(Input, Bias, row, column) + total, unit.kinds[0]))
        k.store(gates, (position, column), gates_now[-1])
    k.store(kept, (position, j), gates_now[1] * previous)

    _, i, j, left, right = k.tiles((), block.count, w, w)
    position, row = unit.position(block, i)
    column = unit.gate(j, 2)
    total = k.contract(kept[position, left], unit.candidate_weight(right, j))
    candidate = activated(k, gate_input(Input, Bias, row, column) + total, unit.kinds[1])
    k.store(gates, (position, column), candidate)
    previous = state[i + k.size(block.before), j]
    new = previous + unit.update_weight(gates[position, j]) * (candidate - previous)
    indices = {"step": position, "row": row, "stack": i + k.size(block.new)}
    for out, by in destinations:
        k.store(out, (indices[by], j), new)


@dataclass(frozen=True)
class Backward:
    """The operands of the backward steps.

    `d_gates` and `carry`, in time-step order, are the gradients of the pre-activation gates, and
    the gradient of the previous state except the part through update and reset.
    """

    state: DeviceOperand
    gates: DeviceOperand
    d_out: DeviceOperand
    d_gates: DeviceOperand
    carry: DeviceOperand
    d_input: DeviceOperand | None

    def store(
        self, k: KernelBuilder, position: Number, row: Number, column: Number, value: Number
    ) -> None:
        """Store the gradient of a gate, also as that of its input."""
        k.store(self.d_gates, (position, column), value)
        if self.d_input is not None:
            k.store(self.d_input, (row, column), value)


def backward_step(unit: Unit, block: Block, back: Backward) -> None:
    """Emit the kernels of one backward step that has a successor in time."""
    k = unit.k
    _, i, j, left, right = k.tiles((), block.count, unit.width, unit.width * 2)
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    above = back.d_gates.at(after, left, where=live, other=0)
    total = k.contract(above, unit.pair_weight(j, right))
    d_state = back.d_out[unit.position(block, i)[1], j] + total
    _candidate_gradient(
        unit, block, back, i, j, d_state + back.carry.at(after, j, where=live, other=0)
    )
    _reset_gradient(unit, block, back)


def last_backward_step(unit: Unit, block: Block, back: Backward) -> None:
    """Emit the kernels of the backward step of the last time step."""
    i, j = unit.k.grid(block.count, unit.width)
    _candidate_gradient(unit, block, back, i, j, back.d_out[unit.position(block, i)[1], j])
    _reset_gradient(unit, block, back)


def _candidate_gradient(
    unit: Unit, block: Block, back: Backward, i: Number, j: Number, d_state: Number
) -> None:
    """Propagate the gradient of a state to update and candidate, and to the previous state."""
    k = unit.k
    position, row = unit.position(block, i)
    update, candidate = back.gates[position, j], back.gates[position, unit.gate(j, 2)]
    weight, previous = unit.update_weight(update), back.state[i + k.size(block.before), j]
    difference = previous - candidate if unit.origin else candidate - previous
    d_update = d_state * difference * slope(k, update, unit.kinds[0])
    d_candidate = d_state * weight * slope(k, candidate, unit.kinds[1])
    back.store(k, position, row, j, d_update)
    back.store(k, position, row, unit.gate(j, 2), d_candidate)
    k.store(back.carry, (position, j), d_state * (1.0 - weight))


def _reset_gradient(unit: Unit, block: Block, back: Backward) -> None:
    """Emit a kernel that propagates from the candidate to reset and the previous state."""
    k, w = unit.k, unit.width
    _, i, j, left, right = k.tiles((), block.count, w, w)
    position, row = unit.position(block, i)
    above = back.d_gates[position, unit.gate(left, 2)]
    d_kept = k.contract(above, unit.candidate_weight(j, right))
    reset = back.gates[position, unit.gate(j, 1)]
    previous = back.state[i + k.size(block.before), j]
    d_reset = d_kept * previous * slope(k, reset, unit.kinds[0])
    back.store(k, position, row, unit.gate(j, 1), d_reset)
    k.store(back.carry, (position, j), back.carry[position, j] + d_kept * reset)


def initial_gradient(
    unit: Unit, count: Size, d_gates: DeviceOperand, carry: DeviceOperand,
    order: DeviceOperand | None, d_initial: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for the gradient of the initial states."""
    k = unit.k
    _, i, j, left, right = k.tiles((), count, unit.width, unit.width * 2)
    total = k.contract(d_gates[i, left], unit.pair_weight(j, right))
    k.store(d_initial, (i if order is None else order[i], j), total + carry[i, j])


def weight_gradient(
    unit: Unit, state: DeviceOperand, before: DeviceOperand | None, kept: DeviceOperand,
    d_gates: DeviceOperand, d_weight: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the gradients of both matrices; `before` indexes states in the stack."""
    k, w, rows = unit.k, unit.width, d_gates.shape[0]
    flat = d_weight.reshaped((d_weight.type.numel,))
    _, i, j, left, right = k.tiles((), w, w * 2, rows)
    seen = state[left if before is None else before[left], i]
    k.store(flat, (i * k.size(w * 2) + j,), k.contract(seen, d_gates[right, j]))
    _, i, j, left, right = k.tiles((), w, w, rows)
    total = k.contract(kept[left, i], d_gates[right, unit.gate(j, 2)])
    k.store(flat, (k.size(w * w * 2) + i * k.size(w) + j,), total)


def bias_gradient(k: KernelBuilder, d_gates: DeviceOperand, d_bias: DeviceOperand) -> None:
    """Emit a kernel for the bias gradient, the sum over all rows."""
    (j,) = k.grid(d_gates.shape[1])
    r = k.loop(d_gates.shape[0])
    k.store(d_bias.reshaped((d_gates.shape[1],)), (j,), k.sum(d_gates[r, j], r))
