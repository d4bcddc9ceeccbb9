"""Kernels of LSTM: a step is one matrix product, fused with the cell.

A projection of the hidden state is another product, forward and backward.
"""

from __future__ import annotations

from typing import TypeAlias

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.sequence.recurrent_kernels import Block, activated, clipped, slope, within
from compiler.support.dataclass import dataclass

Factors: TypeAlias = "tuple[Number, Number]"


@dataclass(frozen=True)
class Projection:
    """The projection weight [width, size], the activation of the product, and its clip."""

    weight: DeviceOperand
    kind: str
    clip: float


@dataclass(frozen=True)
class Memory:
    """The parameters of every step: weights and activations.

    `kinds` are the activations of gates, cell and candidate; `has_peepholes` is true if Bias has
    peepholes. `rows` maps positions in time-step order to rows of Input.
    """

    k: KernelBuilder
    weight: DeviceOperand
    bias: DeviceOperand
    kinds: tuple[str, str, str]
    has_peepholes: bool
    rows: DeviceOperand
    clip: float = 0.0
    projection: Projection | None = None

    @property
    def width(self) -> Size:
        """The width of a cell."""
        return self.weight.shape[1] // 4

    @property
    def size(self) -> Size:
        """The width of a state."""
        return self.weight.shape[0]

    def gate(self, j: Number, number: int) -> Number:
        """The column of a gate."""
        return j + self.k.size(self.width * number)

    def peephole(self, j: Number, number: int) -> Number:
        """Load the peephole weight of input 0, forget 1 or output 2."""
        return self.bias[0, self.gate(j, 4 + number)]

    def position(self, block: Block, i: Number) -> tuple[Number, Number]:
        """The position of a step's row in time-step order, and its row in Input."""
        position = i + self.k.size(block.begin)
        return position, self.rows[position]

    def kind(self, number: int) -> str:
        """The activation of a gate."""
        return self.kinds[0 if number else 2]


@dataclass(frozen=True)
class Forward:
    """The operands of the steps: stacks of states and cells, the rest by time step or by row.

    `hidden` is what a projection reads.
    """

    gate_input: DeviceOperand
    state: DeviceOperand
    cell: DeviceOperand
    gates: DeviceOperand
    active: DeviceOperand | None
    hidden: DeviceOperand | None
    states_by_row: DeviceOperand | None
    cells_by_row: DeviceOperand | None


def step(memory: Memory, block: Block, run: Forward) -> None:
    """Emit the kernels of one step."""
    k, w = memory.k, memory.width
    _, i, j, left, right = k.tiles((), block.count, w, memory.size)
    position, row = memory.position(block, i)
    state, before = run.state[i + k.size(block.before), left], run.cell[i + k.size(block.before), j]
    sums: list[Number] = []
    for number in range(4):
        column = memory.gate(j, number)
        total = k.contract(state, memory.weight[right, column])
        sums.append(total + run.gate_input[row, column] + memory.bias[0, column])
    if memory.has_peepholes:
        sums[1:3] = [sums[n + 1] + before * memory.peephole(j, n) for n in range(2)]
    candidate, inlet, forget = (activated(k, sums[n], memory.kind(n)) for n in range(3))
    cell = clipped(k, candidate * inlet + before * forget, memory.clip)
    last = sums[3] + cell * memory.peephole(j, 2) if memory.has_peepholes else sums[3]
    outlet, active = activated(k, last, memory.kinds[0]), activated(k, cell, memory.kinds[1])
    for number, value in enumerate((candidate, inlet, forget, outlet)):
        k.store(run.gates, (position, memory.gate(j, number)), value)
    k.store(run.cell, (i + k.size(block.new), j), cell)
    for out, at, value in (
        (run.active, position, active),
        (run.cells_by_row, row, cell),
        (run.hidden, position, outlet * active),
    ):
        if out is not None:
            k.store(out, (at, j), value)
    if memory.projection is None or run.hidden is None:
        _store_state(memory, block, run, i, j, outlet * active)
    else:
        _project(memory, memory.projection, block, run, run.hidden)


def _store_state(
    memory: Memory, block: Block, run: Forward, i: Number, j: Number, state: Number
) -> None:
    """Store the new state for the next step, and in the output."""
    k = memory.k
    k.store(run.state, (i + k.size(block.new), j), state)
    if run.states_by_row is not None:
        k.store(run.states_by_row, (memory.position(block, i)[1], j), state)


def _project(
    memory: Memory, by: Projection, block: Block, run: Forward, hidden: DeviceOperand
) -> None:
    k = memory.k
    _, i, j, left, right = k.tiles((), block.count, memory.size, memory.width)
    total = k.contract(hidden[memory.position(block, i)[0], left], by.weight[right, j])
    _store_state(memory, block, run, i, j, clipped(k, activated(k, total, by.kind), by.clip))


@dataclass(frozen=True)
class Backward:
    """The operands of the backward steps.

    In time-step order, `d_gates` are the gradients of the pre-activation gates, `carry` that of
    the previous cell, `d_state` that of the product with the projection weight.
    """

    state: DeviceOperand
    cell: DeviceOperand
    gates: DeviceOperand
    active: DeviceOperand
    d_out: DeviceOperand
    d_gates: DeviceOperand
    carry: DeviceOperand
    d_state: DeviceOperand | None
    d_input: DeviceOperand | None


def backward_step(memory: Memory, block: Block, back: Backward) -> None:
    """Emit the kernels of one backward step that has a successor in time."""
    k = memory.k
    _, i, j, left, right = k.tiles((), block.count, memory.size, memory.width * 4)
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    above = back.d_gates.at(after, left, where=live, other=0)
    position, row = memory.position(block, i)
    d_state = back.d_out[row, j] + k.contract(above, memory.weight[j, right])
    by = memory.projection
    if by is not None and back.d_state is not None:
        state = back.state[i + k.size(block.new), j]
        d_state = d_state * slope(k, state, by.kind) * within(k, state, by.clip)
        k.store(back.d_state, (position, j), d_state)
        _, i, j, left, right = k.tiles((), block.count, memory.width, memory.size)
        d_state = k.contract(back.d_state[memory.position(block, i)[0], left], by.weight[j, right])
    _cell_gradient(memory, block, back, i, j, d_state)


def _cell_gradient(
    memory: Memory, block: Block, back: Backward, i: Number, j: Number, d_hidden: Number
) -> None:
    """Propagate the gradient of a hidden state to the gates, and to the previous cell."""
    k = memory.k
    position, row = memory.position(block, i)
    gates = [back.gates[position, memory.gate(j, number)] for number in range(4)]
    slopes = [slope(k, gate, memory.kind(number)) for number, gate in enumerate(gates)]
    candidate, inlet, forget, outlet = gates
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    active, before = back.active[position, j], back.cell[i + k.size(block.before), j]
    d_cell = back.carry.at(after, j, where=live, other=0)
    d_cell = d_cell + d_hidden * outlet * slope(k, active, memory.kinds[1])
    d_outlet = d_hidden * active * slopes[3]
    if memory.has_peepholes:
        d_cell = d_cell + d_outlet * memory.peephole(j, 2)
    d_cell = d_cell * within(k, back.cell[i + k.size(block.new), j], memory.clip)
    d_gates = [d_cell * inlet, d_cell * candidate, d_cell * before]
    d_gates = [*(value * by for value, by in zip(d_gates, slopes, strict=False)), d_outlet]
    for number, value in enumerate(d_gates):
        k.store(back.d_gates, (position, memory.gate(j, number)), value)
        if back.d_input is not None:
            k.store(back.d_input, (row, memory.gate(j, number)), value)
    d_before = d_cell * forget
    if memory.has_peepholes:
        d_before = (
            d_before + d_gates[1] * memory.peephole(j, 0) + d_gates[2] * memory.peephole(j, 1)
        )
    k.store(back.carry, (position, j), d_before)


def initial_gradients(
    memory: Memory, back: Backward, count: Size, order: DeviceOperand,
    d_state: DeviceOperand | None, d_cell: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit kernels for the gradients of the initial states and cells."""
    k = memory.k
    if d_state is not None:
        _, i, j, left, right = k.tiles((), count, memory.size, memory.width * 4)
        k.store(d_state, (order[i], j), k.contract(back.d_gates[i, left], memory.weight[j, right]))
    if d_cell is not None:
        i, j = k.grid(count, memory.width)
        k.store(d_cell, (order[i], j), back.carry[i, j])


def weight_gradient(
    memory: Memory, back: Backward, before: DeviceOperand, d_weight: DeviceOperand,
    d_bias: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit kernels for the gradients of the weight and of the bias of the gates.

    `before` indexes previous states in the stack.
    """
    k, d_gates = memory.k, back.d_gates

    def factors(batch: object, i: Number, j: Number, left: Number, right: Number) -> Factors:
        return back.state[before[left], i], d_gates[right, j]

    def store(
        batch: object, i: Number, j: Number, total: Number, where: Number | None = None
    ) -> None:
        k.store(d_weight, (i, j), total, where)

    sums = None if d_bias is None else d_bias.reshaped((d_bias.type.numel,))
    sides = memory.size, memory.width * 4, d_gates.shape[0]
    k.contraction((), sides, factors, store, sums)


def bias_gradient(memory: Memory, back: Backward, d_bias: DeviceOperand) -> None:
    """Emit a kernel for the gradient of the bias of the gates."""
    (j,) = memory.k.grid(back.d_gates.shape[1])
    r = memory.k.loop(back.d_gates.shape[0])
    memory.k.store(d_bias, (0, j), memory.k.sum(back.d_gates[r, j], r))


def peephole_gradient(
    memory: Memory, back: Backward, before: DeviceOperand, first: Size, d_bias: DeviceOperand
) -> None:
    """Emit kernels for the gradients of the peephole weights, which follow the bias."""
    k, d_gates = memory.k, back.d_gates
    for number in range(3) if memory.has_peepholes else ():
        (j,) = k.grid(memory.width)
        r = k.loop(d_gates.shape[0])
        cell = back.cell[r + k.size(first) if number == 2 else before[r], j]
        total = k.sum(d_gates[r, memory.gate(j, number + 1)] * cell, r)
        k.store(d_bias, (0, memory.gate(j, 4 + number)), total)
