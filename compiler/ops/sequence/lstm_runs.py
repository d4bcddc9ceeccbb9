"""All steps of a memory on a device, forward and back, between stacks that they share."""

from __future__ import annotations

from typing import TypeAlias

from compiler.ir.opdef.kernel_builder import DeviceOperand
from compiler.ops.sequence import lstm_kernels as lstm_lanes
from compiler.ops.sequence.recurrent_kernels import STEP, Block, Steps

Wanted: TypeAlias = "DeviceOperand | None"
Outputs: TypeAlias = "tuple[Wanted, Wanted, Wanted, Wanted]"
"""States by row, cells by row, gates and activated cells by the order."""
Kept: TypeAlias = "tuple[DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand]"
"""The same, all of them there."""


def run_there(
    memory: lstm_lanes.Memory, steps: Steps, given: tuple[DeviceOperand, Wanted, Wanted],
    outs: Outputs, hidden: Wanted,
) -> None:  # fmt: skip
    """Launch all steps over an input, from first states and cells, or from 0."""
    k, (Input, H0, C0), rows = memory.k, given, steps.rows
    dtype = Input.type.dtype
    gates = outs[2] or k.scratch((rows, memory.width * 4), dtype)
    held = hidden or k.scratch((rows, memory.width), dtype)
    state, cell = steps.stack(H0, memory.size, dtype), steps.stack(C0, memory.width, dtype)
    run = lstm_lanes.Forward(Input, state, cell, gates, outs[3], held, outs[0], outs[1])
    with k.for_each(steps.onwards, *STEP) as numbers:
        lstm_lanes.step(memory, Block(*numbers), run)


def back_there(
    memory: lstm_lanes.Memory, steps: Steps, first: tuple[Wanted, Wanted], kept: Kept,
    d_out: DeviceOperand, d_input: Wanted,
) -> lstm_lanes.Back:  # fmt: skip
    """Launch the gradient of all steps; gives what the gradients of weights are made of."""
    k, (states, cells, gates, active) = memory.k, kept
    dtype = gates.type.dtype
    stacks = steps.stacked(first[0], states), steps.stacked(first[1], cells)
    d_gates, carry = k.scratch(gates.shape, dtype), k.scratch(active.shape, dtype)
    d_state = None if memory.projection is None else k.scratch(states.shape, dtype)
    back = lstm_lanes.Back(*stacks, gates, active, d_out, d_gates, carry, d_state, d_input)
    with k.for_each(steps.back, *STEP) as numbers:
        lstm_lanes.step_back(memory, Block(*numbers), back)
    return back


def give_there(
    memory: lstm_lanes.Memory, steps: Steps, back: lstm_lanes.Back, wanted: Outputs
) -> None:
    """The gradients of first states, first cells, weights and bias, as far as they are wanted."""
    d_state, d_cell, d_weight, d_bias = wanted
    for each in (each for each in (d_state, d_cell) if each is not None):
        steps.cleared(each)
    lstm_lanes.initial_gradients(memory, back, steps.first, steps.order, d_state, d_cell)
    before = steps.places_before()
    if d_weight is not None:
        lstm_lanes.weight_gradient(memory.k, back.state, before, back.d_gates, d_weight)
    if d_bias is not None:
        lstm_lanes.bias_gradient(memory, back, before, steps.first, d_bias)
