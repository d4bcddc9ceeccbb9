"""Kernels of gated recurrent units: a step is two products, each with its gates in its kernel."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.sequence.recurrent_kernels import Block, activated, slope


@dataclass(frozen=True)
class Unit:
    """What every step has: the weights and the rule.

    `kinds` are the activations of gates and candidate. `rows` has the row of Input at each place of
    the order; None where they are the same.
    """

    k: KernelBuilder
    weight: DeviceOperand
    kinds: tuple[str, str]
    origin: bool
    rows: DeviceOperand | None = None

    @property
    def width(self) -> Size:
        """How many numbers a state has."""
        return self.weight.shape[0]

    def pair_weight(self, r: Number, column: Number) -> Number:
        """A weight of update and reset [width, 2 · width]."""
        flat = self.weight.reshaped((self.weight.type.numel,))
        return flat[r * self.k.size(self.width * 2) + column]

    def candidate_weight(self, r: Number, j: Number) -> Number:
        """A weight of the candidate [width, width]."""
        w = self.width
        flat = self.weight.reshaped((self.weight.type.numel,))
        return flat[self.k.size(w * w * 2) + r * self.k.size(w) + j]

    def gate(self, j: Number, number: int) -> Number:
        """The column of a gate: update 0, reset 1, candidate 2."""
        return j + self.k.size(self.width * number)

    def place(self, block: Block, i: Number) -> tuple[Number, Number]:
        """The place of a row of a step in the order, and the row itself."""
        place = i + self.k.size(block.begin)
        return place, place if self.rows is None else self.rows[place]

    def share(self, update: Number) -> Number:
        """How much of the new state is the candidate."""
        return 1.0 - update if self.origin else update


def given(Input: DeviceOperand, Bias: DeviceOperand | None, row: Number, column: Number) -> Number:
    """What a gate gets from outside."""
    value = Input[row, column]
    return value if Bias is None else value + Bias[0, column]


def step(
    unit: Unit, block: Block, Input: DeviceOperand, Bias: DeviceOperand | None,
    state: DeviceOperand, gates: DeviceOperand, kept: DeviceOperand,
    news: list[tuple[DeviceOperand, str]],
) -> None:  # fmt: skip
    """Kernels for one step: gates and kept are by the order, `state` a stack.

    `news` are where the new states go: by "place", by "row", or to the "stack".
    """
    k, w = unit.k, unit.width
    _, i, j, left, right = k.tiles((), block.count, w, w)
    place, row = unit.place(block, i)
    before = state[i + k.size(block.before), left]
    own = state[i + k.size(block.before), j]
    both: list[Number] = []
    for column in (j, unit.gate(j, 1)):
        total = k.contract(before, unit.pair_weight(right, column))
        both.append(activated(k, given(Input, Bias, row, column) + total, unit.kinds[0]))
        k.store(gates, (place, column), both[-1])
    k.store(kept, (place, j), both[1] * own)

    _, i, j, left, right = k.tiles((), block.count, w, w)
    place, row = unit.place(block, i)
    column = unit.gate(j, 2)
    total = k.contract(kept[place, left], unit.candidate_weight(right, j))
    candidate = activated(k, given(Input, Bias, row, column) + total, unit.kinds[1])
    k.store(gates, (place, column), candidate)
    own = state[i + k.size(block.before), j]
    new = own + unit.share(gates[place, j]) * (candidate - own)
    ways = {"place": place, "row": row, "stack": i + k.size(block.new)}
    for out, by in news:
        k.store(out, (ways[by], j), new)


@dataclass(frozen=True)
class Back:
    """What the steps of the gradient read and write.

    `d_gates` and `carry`, both by the order, get the gradients of the gates before activation, and
    what goes to the state before, but for what goes by update and reset.
    """

    state: DeviceOperand
    gates: DeviceOperand
    d_out: DeviceOperand
    d_gates: DeviceOperand
    carry: DeviceOperand
    d_input: DeviceOperand | None

    def store(
        self, k: KernelBuilder, place: Number, row: Number, column: Number, value: Number
    ) -> None:
        """The gradient of a gate, also as that of its input."""
        k.store(self.d_gates, (place, column), value)
        if self.d_input is not None:
            k.store(self.d_input, (row, column), value)


def step_back(unit: Unit, block: Block, back: Back) -> None:
    """Kernels for the gradient of one step, to which the next one gives."""
    k = unit.k
    _, i, j, left, right = k.tiles((), block.count, unit.width, unit.width * 2)
    after, live = i + k.size(block.next_begin), i < k.size(block.next_count)
    above = back.d_gates.at(after, left, where=live, other=0)
    total = k.contract(above, unit.pair_weight(j, right))
    d_state = back.d_out[unit.place(block, i)[1], j] + total
    _candidate_back(unit, block, back, i, j, d_state + back.carry.at(after, j, where=live, other=0))
    _reset_back(unit, block, back)


def last_step_back(unit: Unit, block: Block, back: Back) -> None:
    """Kernels for the gradient of a step to which no other gives."""
    i, j = unit.k.grid(block.count, unit.width)
    _candidate_back(unit, block, back, i, j, back.d_out[unit.place(block, i)[1], j])
    _reset_back(unit, block, back)


def _candidate_back(
    unit: Unit, block: Block, back: Back, i: Number, j: Number, d_state: Number
) -> None:
    """What the gradient of a state gives to update and candidate, and to the state before."""
    k = unit.k
    place, row = unit.place(block, i)
    update, candidate = back.gates[place, j], back.gates[place, unit.gate(j, 2)]
    share, own = unit.share(update), back.state[i + k.size(block.before), j]
    turn = own - candidate if unit.origin else candidate - own
    d_update = d_state * turn * slope(k, update, unit.kinds[0])
    d_candidate = d_state * share * slope(k, candidate, unit.kinds[1])
    back.store(k, place, row, j, d_update)
    back.store(k, place, row, unit.gate(j, 2), d_candidate)
    k.store(back.carry, (place, j), d_state * (1.0 - share))


def _reset_back(unit: Unit, block: Block, back: Back) -> None:
    """A kernel for what the candidate gives to reset, and through it to the state before."""
    k, w = unit.k, unit.width
    _, i, j, left, right = k.tiles((), block.count, w, w)
    place, row = unit.place(block, i)
    above = back.d_gates[place, unit.gate(left, 2)]
    d_kept = k.contract(above, unit.candidate_weight(j, right))
    reset = back.gates[place, unit.gate(j, 1)]
    own = back.state[i + k.size(block.before), j]
    d_reset = d_kept * own * slope(k, reset, unit.kinds[0])
    back.store(k, place, row, unit.gate(j, 1), d_reset)
    k.store(back.carry, (place, j), back.carry[place, j] + d_kept * reset)


def initial_gradient(
    unit: Unit, count: Size, d_gates: DeviceOperand, carry: DeviceOperand,
    order: DeviceOperand | None, d_initial: DeviceOperand,
) -> None:  # fmt: skip
    """A kernel for the gradient of the states before the first step."""
    k = unit.k
    _, i, j, left, right = k.tiles((), count, unit.width, unit.width * 2)
    total = k.contract(d_gates[i, left], unit.pair_weight(j, right))
    k.store(d_initial, (i if order is None else order[i], j), total + carry[i, j])


def weight_gradient(
    unit: Unit, state: DeviceOperand, before: DeviceOperand | None, kept: DeviceOperand,
    d_gates: DeviceOperand, d_weight: DeviceOperand,
) -> None:  # fmt: skip
    """Kernels for the gradient of both matrices; `before` has the places of states in the stack."""
    k, w, rows = unit.k, unit.width, d_gates.shape[0]
    flat = d_weight.reshaped((d_weight.type.numel,))
    _, i, j, left, right = k.tiles((), w, w * 2, rows)
    seen = state[left if before is None else before[left], i]
    k.store(flat, (i * k.size(w * 2) + j,), k.contract(seen, d_gates[right, j]))
    _, i, j, left, right = k.tiles((), w, w, rows)
    total = k.contract(kept[left, i], d_gates[right, unit.gate(j, 2)])
    k.store(flat, (k.size(w * w * 2) + i * k.size(w) + j,), total)


def bias_gradient(k: KernelBuilder, d_gates: DeviceOperand, d_bias: DeviceOperand) -> None:
    """A kernel for the sum over all rows."""
    (j,) = k.grid(d_gates.shape[1])
    r = k.loop(d_gates.shape[0])
    k.store(d_bias.reshaped((d_gates.shape[1],)), (j,), k.sum(d_gates[r, j], r))
