"""The whole LSTM on a device, forward and backward, over shared stacks."""

from __future__ import annotations

from typing import TypeAlias

from compiler.ir.opdef.kernel_builder import DeviceOperand
from compiler.ops.sequence import lstm_kernels
from compiler.ops.sequence.recurrent_kernels import Steps

Wanted: TypeAlias = "DeviceOperand | None"
Outputs: TypeAlias = "tuple[Wanted, Wanted, Wanted, Wanted]"
"""States by row, cells by row, gates and activated cells in time-step order."""
Kept: TypeAlias = "tuple[DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand]"
"""The same, all present."""


def launch_steps(
    memory: lstm_kernels.Memory, steps: Steps, inputs: tuple[DeviceOperand, Wanted, Wanted],
    outs: Outputs, hidden: Wanted,
) -> None:  # fmt: skip
    """Launch all steps over an input, from initial states and cells, or from 0."""
    k, (Input, H0, C0), rows = memory.k, inputs, steps.rows
    dtype = Input.type.dtype
    gates = outs[2] or k.scratch((rows, memory.width * 4), dtype)
    states = hidden
    if states is None and memory.projection is not None:
        states = k.scratch((rows, memory.width), dtype)
    state, cell = steps.stacks((H0, C0), (memory.size, memory.width), dtype)
    run = lstm_kernels.Forward(Input, state, cell, gates, outs[3], states, outs[0], outs[1])
    with steps.each(steps.onwards) as block:
        lstm_kernels.step(memory, block, run)


def launch_gradient(
    memory: lstm_kernels.Memory, steps: Steps, first: tuple[Wanted, Wanted], kept: Kept,
    d_out: DeviceOperand, d_input: Wanted,
) -> lstm_kernels.Backward:  # fmt: skip
    """Launch the gradient of all steps; returns the operands of the weight gradients."""
    k, (states, cells, gates, active) = memory.k, kept
    dtype = gates.type.dtype
    state, cell = steps.stacked(first, (states, cells))
    d_gates, carry = k.scratch(gates.shape, dtype), k.scratch(active.shape, dtype)
    d_state = None if memory.projection is None else k.scratch(states.shape, dtype)
    stores = d_gates, carry, d_state, d_input
    back = lstm_kernels.Backward(state, cell, gates, active, d_out, *stores)
    with steps.each(steps.back) as block:
        lstm_kernels.backward_step(memory, block, back)
    return back


def store_gradients(
    memory: lstm_kernels.Memory, steps: Steps, back: lstm_kernels.Backward, wanted: Outputs
) -> None:
    """Compute the requested gradients of initial states and cells, weights and bias."""
    d_state, d_cell, d_weight, d_bias = wanted
    for gradient in (gradient for gradient in (d_state, d_cell) if gradient is not None):
        steps.cleared(gradient)
    lstm_kernels.initial_gradients(memory, back, steps.first, steps.order, d_state, d_cell)
    before = steps.places_before()
    if d_weight is not None:
        lstm_kernels.weight_gradient(memory, back, before, d_weight, d_bias)
    elif d_bias is not None:
        lstm_kernels.bias_gradient(memory, back, d_bias)
    if d_bias is not None:
        lstm_kernels.peephole_gradient(memory, back, before, steps.first, d_bias)
