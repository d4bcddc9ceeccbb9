"""Kernels of a long short-term memory: a step is one product, with the cell in its kernel.

A projection of the hidden state is a product more, forward and back.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.sequence.recurrent_kernels import Block, activated, clipped, slope, within


@dataclass(frozen=True)
class Projection:
    """The weight of the hidden state [width, size], the activation of the product, and its clip."""

    weight: DeviceOperand
    kind: str
    clip: float


@dataclass(frozen=True)
class Memory:
    """What every step has: weights and rule.

    `kinds` are the activations of gates, cell and candidate; `checks` is where Bias has peepholes.
    `rows` has the row of Input at each place of the order.
    """

    k: KernelBuilder
    weight: DeviceOperand
    bias: DeviceOperand
    kinds: tuple[str, str, str]
    checks: bool
    rows: DeviceOperand
    clip: float = 0.0
    projection: Projection | None = None

    @property
    def width(self) -> Size:
        """How many numbers a cell has."""
        return self.weight.shape[1] // 4

    @property
    def size(self) -> Size:
        """How many numbers a state has."""
        return self.weight.shape[0]

    def gate(self, j: Number, number: int) -> Number:
        """The column of a gate."""
        return j + self.k.size(self.width * number)

    def check(self, j: Number, number: int) -> Number:
        """The peephole weight of input 0, forget 1 or output 2."""
        return self.bias[0, self.gate(j, 4 + number)]

    def place(self, block: Block, i: Number) -> tuple[Number, Number]:
        """The place of a row of a step in the order, and the row itself."""
        place = i + self.k.size(block.begin)
        return place, self.rows[place]

    def kind(self, number: int) -> str:
        """The activation of a gate."""
        return self.kinds[0 if number else 2]


@dataclass(frozen=True)
class Forward:
    """What steps read and write: stacks of states and cells, the rest by order or by row."""

    given: DeviceOperand
    state: DeviceOperand
    cell: DeviceOperand
    gates: DeviceOperand
    active: DeviceOperand | None
    hidden: DeviceOperand
    states_by_row: DeviceOperand | None
    cells_by_row: DeviceOperand | None


def step(memory: Memory, block: Block, run: Forward) -> None:
    """Kernels for one step."""
    k, w = memory.k, memory.width
    _, i, j, left, right = k.tiles((), block.count, w, memory.size)
    place, row = memory.place(block, i)
    state, before = run.state[i + k.size(block.before), left], run.cell[i + k.size(block.before), j]
    sums: list[Number] = []
    for number in range(4):
        column = memory.gate(j, number)
        total = k.contract(state, memory.weight[right, column])
        sums.append(total + run.given[row, column] + memory.bias[0, column])
    if memory.checks:
        sums[1:3] = [sums[n + 1] + before * memory.check(j, n) for n in range(2)]
    candidate, inlet, forget = (activated(k, sums[n], memory.kind(n)) for n in range(3))
    cell = clipped(k, candidate * inlet + before * forget, memory.clip)
    last = sums[3] + cell * memory.check(j, 2) if memory.checks else sums[3]
    outlet, active = activated(k, last, memory.kinds[0]), activated(k, cell, memory.kinds[1])
    for number, value in enumerate((candidate, inlet, forget, outlet)):
        k.store(run.gates, (place, memory.gate(j, number)), value)
    k.store(run.cell, (i + k.size(block.new), j), cell)
    for out, at, value in (
        (run.active, place, active),
        (run.cells_by_row, row, cell),
        (run.hidden, place, outlet * active),
    ):
        if out is not None:
            k.store(out, (at, j), value)
    if memory.projection is None:
        _hand_on(memory, block, run, i, j, outlet * active)
    else:
        _project(memory, memory.projection, block, run)


def _hand_on(
    memory: Memory, block: Block, run: Forward, i: Number, j: Number, state: Number
) -> None:
    """The new state where the next step finds it, and where the user does."""
    k = memory.k
    k.store(run.state, (i + k.size(block.new), j), state)
    if run.states_by_row is not None:
        k.store(run.states_by_row, (memory.place(block, i)[1], j), state)


def _project(memory: Memory, by: Projection, block: Block, run: Forward) -> None:
    k = memory.k
    _, i, j, left, right = k.tiles((), block.count, memory.size, memory.width)
    total = k.contract(run.hidden[memory.place(block, i)[0], left], by.weight[right, j])
    _hand_on(memory, block, run, i, j, clipped(k, activated(k, total, by.kind), by.clip))


@dataclass(frozen=True)
class Back:
    """What the steps of the gradient read and write.

    By the order, `d_gates` gets the gradients of the gates before activation, `carry` what goes to
    the cell before, `d_state` that of the product with the projection's weight.
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


def step_back(memory: Memory, block: Block, back: Back) -> None:
    """Kernels for the gradient of one step, to which the next one gives."""
    k = memory.k
    _, i, j, left, right = k.tiles((), block.count, memory.size, memory.width * 4)
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    above = back.d_gates.at(after, left, where=live, other=0)
    place, row = memory.place(block, i)
    d_state = back.d_out[row, j] + k.contract(above, memory.weight[j, right])
    by = memory.projection
    if by is not None and back.d_state is not None:
        state = back.state[i + k.size(block.new), j]
        d_state = d_state * slope(k, state, by.kind) * within(k, state, by.clip)
        k.store(back.d_state, (place, j), d_state)
        _, i, j, left, right = k.tiles((), block.count, memory.width, memory.size)
        d_state = k.contract(back.d_state[memory.place(block, i)[0], left], by.weight[j, right])
    _cell_back(memory, block, back, i, j, d_state)


def _cell_back(
    memory: Memory, block: Block, back: Back, i: Number, j: Number, d_hidden: Number
) -> None:
    """What the gradient of a hidden state gives to the gates, and to the cell before."""
    k = memory.k
    place, row = memory.place(block, i)
    gates = [back.gates[place, memory.gate(j, number)] for number in range(4)]
    slopes = [slope(k, gate, memory.kind(number)) for number, gate in enumerate(gates)]
    candidate, inlet, forget, outlet = gates
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    active, before = back.active[place, j], back.cell[i + k.size(block.before), j]
    d_cell = back.carry.at(after, j, where=live, other=0)
    d_cell = d_cell + d_hidden * outlet * slope(k, active, memory.kinds[1])
    d_outlet = d_hidden * active * slopes[3]
    if memory.checks:
        d_cell = d_cell + d_outlet * memory.check(j, 2)
    d_cell = d_cell * within(k, back.cell[i + k.size(block.new), j], memory.clip)
    given = [d_cell * inlet, d_cell * candidate, d_cell * before]
    given = [*(value * by for value, by in zip(given, slopes, strict=False)), d_outlet]
    for number, value in enumerate(given):
        k.store(back.d_gates, (place, memory.gate(j, number)), value)
        if back.d_input is not None:
            k.store(back.d_input, (row, memory.gate(j, number)), value)
    handed = d_cell * forget
    if memory.checks:
        handed = handed + given[1] * memory.check(j, 0) + given[2] * memory.check(j, 1)
    k.store(back.carry, (place, j), handed)


def initial_gradients(
    memory: Memory, back: Back, count: Size, order: DeviceOperand,
    d_state: DeviceOperand | None, d_cell: DeviceOperand | None,
) -> None:  # fmt: skip
    """Kernels for the gradients of the states and the cells before the first step."""
    k = memory.k
    if d_state is not None:
        _, i, j, left, right = k.tiles((), count, memory.size, memory.width * 4)
        k.store(d_state, (order[i], j), k.contract(back.d_gates[i, left], memory.weight[j, right]))
    if d_cell is not None:
        i, j = k.grid(count, memory.width)
        k.store(d_cell, (order[i], j), back.carry[i, j])


def weight_gradient(
    k: KernelBuilder, state: DeviceOperand, before: DeviceOperand, d_gates: DeviceOperand,
    d_weight: DeviceOperand,
) -> None:  # fmt: skip
    """A kernel for the gradient of the weights; `before` has the places of states in the stack."""
    _, i, j, left, right = k.tiles((), d_weight.shape[0], d_weight.shape[1], d_gates.shape[0])
    k.store(d_weight, (i, j), k.contract(state[before[left], i], d_gates[right, j]))


def bias_gradient(
    memory: Memory, back: Back, before: DeviceOperand, first: Size, d_bias: DeviceOperand
) -> None:
    """Kernels for the gradient of the bias, and of the peephole weights behind it."""
    k, rows, d_gates = memory.k, back.d_gates.shape[0], back.d_gates
    (j,) = k.grid(d_gates.shape[1])
    r = k.loop(rows)
    k.store(d_bias, (0, j), k.sum(d_gates[r, j], r))
    for number in range(3) if memory.checks else ():
        (j,) = k.grid(memory.width)
        r = k.loop(rows)
        cell = back.cell[r + k.size(first) if number == 2 else before[r], j]
        total = k.sum(d_gates[r, memory.gate(j, number + 1)] * cell, r)
        k.store(d_bias, (0, memory.gate(j, 4 + number)), total)
