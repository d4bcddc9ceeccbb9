"""LSTM over sequences: `lstm`, and `lstmp`, which projects its hidden state."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Operand
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence import lstm_kernels
from compiler.ops.sequence.lstm_cell import (
    Memory,
    bias_gradient,
    memory_gradient,
    peepholes,
    run_memory,
)
from compiler.ops.sequence.lstm_runs import launch_gradient, launch_steps, store_gradients
from compiler.ops.sequence.recurrent_kernels import Steps
from compiler.ops.sequence.time_steps import (
    by_time_step,
    in_rows,
    initial_gradient,
    places_before,
    require_activations,
    require_shape,
    stack_states,
    stacked,
)


class Lstm(Memory, op="lstm"):
    """LSTM: Hidden and Cell [rows, width] for each row of Input.

    BatchGate are the activated gates and BatchCellPreAct the activated cells, in the order of
    `by_time_step`. As in the reference, Cell propagates no gradient. Reference: lstm_op.h.
    """

    Hidden = writes()

    def infer(
        self,
        Input: TensorType,
        Input_lod: list[TensorType],
        H0: TensorType | None,
        C0: TensorType | None,
        Weight: TensorType,
        Bias: TensorType,
    ) -> dict[str, TensorType]:
        cell = self.cell_type(Input, Input_lod, Bias)
        require_shape("lstm", "Weight", Weight, cell.shape[1], Input.shape[1])
        self.check_states(Input_lod, H0, C0, cell, cell)
        return {"Hidden": cell, "Cell": cell, "BatchGate": Input, "BatchCellPreAct": cell}

    def numpy(
        self,
        Input: Array,
        Input_lod: list[Array],
        H0: Array | None,
        C0: Array | None,
        Weight: Array,
        Bias: Array,
    ) -> dict[str, Array]:
        kinds = self.gate_activation, self.cell_activation, self.candidate_activation
        width = len(Weight)
        rule = kinds, peepholes(Bias, width, self.use_peepholes), 0.0
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        gates = Input[rows] + Bias[0, : 4 * width]
        state = stack_states(H0, order, len(rows), width, Input.dtype)
        cell = stack_states(C0, order, len(rows), width, Input.dtype)
        active, hidden = run_memory(gates, starts, state, cell, Weight, rule, None)
        return {
            "Hidden": in_rows(hidden, rows),
            "Cell": in_rows(cell[len(order) :], rows),
            "BatchGate": gates,
            "BatchCellPreAct": active,
        }

    def grad(
        self,
        Input: Shape,
        Input_lod: list[Array],
        H0: Array | None,
        C0: Array | None,
        Weight: Array,
        Bias: Array,
        Hidden: Array,
        Cell: Array,
        BatchGate: Array,
        BatchCellPreAct: Array,
        d_Hidden: Array,
    ) -> dict[str, Array]:
        kinds = self.gate_activation, self.cell_activation, self.candidate_activation
        rule = kinds, peepholes(Bias, len(Weight), self.use_peepholes), 0.0
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        state, cell = stacked(H0, order, Hidden[rows]), stacked(C0, order, Cell[rows])
        d_state, d_cell = stacked(None, order, d_Hidden[rows]), np.zeros_like(cell)
        d_gates = memory_gradient(
            d_state, starts, state, cell, BatchGate, BatchCellPreAct, Weight, rule, None, d_cell
        )
        places = places_before(starts)
        gradients = {
            "Input": in_rows(d_gates, rows),
            "Weight": state[places].T @ d_gates,
            "Bias": bias_gradient(Bias, d_gates, cell, places, self.use_peepholes),
        }
        if H0 is not None:
            gradients["H0"] = initial_gradient(d_state, order, len(H0))
        if C0 is not None:
            gradients["C0"] = initial_gradient(d_cell, order, len(C0))
        return gradients

    def kernel(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Input_lod: list[Operand],
        H0: DeviceOperand | None,
        C0: DeviceOperand | None,
        Weight: DeviceOperand,
        Bias: DeviceOperand,
        Hidden: DeviceOperand | None,
        Cell: DeviceOperand | None,
        BatchGate: DeviceOperand | None,
        BatchCellPreAct: DeviceOperand | None,
    ) -> None:
        steps = Steps(k, Input_lod[0], Input.shape[0], self.is_reverse)
        memory = lstm_kernels.Memory(k, Weight, Bias, self.kinds, self.use_peepholes, steps.row_at)
        outs = Hidden, Cell, BatchGate, BatchCellPreAct
        launch_steps(memory, steps, (Input, H0, C0), outs, None)

    def kernel_grad(
        self,
        k: KernelBuilder,
        Input_lod: list[Operand],
        H0: DeviceOperand | None,
        C0: DeviceOperand | None,
        Weight: DeviceOperand,
        Bias: DeviceOperand,
        Hidden: DeviceOperand,
        Cell: DeviceOperand,
        BatchGate: DeviceOperand,
        BatchCellPreAct: DeviceOperand,
        d_Hidden: DeviceOperand,
        d_Input: DeviceOperand | None,
        d_H0: DeviceOperand | None,
        d_C0: DeviceOperand | None,
        d_Weight: DeviceOperand | None,
        d_Bias: DeviceOperand | None,
    ) -> None:
        steps = Steps(k, Input_lod[0], Hidden.shape[0], self.is_reverse)
        memory = lstm_kernels.Memory(k, Weight, Bias, self.kinds, self.use_peepholes, steps.row_at)
        saved = Hidden, Cell, BatchGate, BatchCellPreAct
        back = launch_gradient(memory, steps, (H0, C0), saved, d_Hidden, d_Input)
        store_gradients(memory, steps, back, (d_H0, d_C0, d_Weight, d_Bias))


class Lstmp(Memory, op="lstmp"):
    """LSTM with projection: Projection [rows, size] and Cell [rows, width] for each row.

    The hidden state @ ProjWeight [width, size] is the input of the next step. `cell_clip` and
    `proj_clip` clip cell and projection to ± their value if it is above 0. BatchHidden are
    the hidden states, in the order of `by_time_step`. As in the reference, the projection is
    activated by `cell_activation`, unless `proj_activation` is "identity", and Cell propagates no
    gradient. Reference: lstmp_op.h.
    """

    ProjWeight = reads()
    Projection = writes()
    BatchHidden = writes()
    cell_clip = attr(0.0)
    proj_clip = attr(0.0)
    proj_activation = attr("tanh")

    def infer(
        self,
        Input: TensorType,
        Input_lod: list[TensorType],
        H0: TensorType | None,
        C0: TensorType | None,
        Weight: TensorType,
        Bias: TensorType,
        ProjWeight: TensorType,
    ) -> dict[str, TensorType]:
        require_activations("lstmp", proj_activation=self.proj_activation)
        cell = self.cell_type(Input, Input_lod, Bias)
        require_shape("lstmp", "ProjWeight", ProjWeight, cell.shape[1], Weight.shape[0])
        require_shape("lstmp", "Weight", Weight, Weight.shape[0], Input.shape[1])
        state = Input.with_shape((Input.shape[0], Weight.shape[0]))
        self.check_states(Input_lod, H0, C0, state, cell)
        batch = {"BatchGate": Input, "BatchCellPreAct": cell, "BatchHidden": cell}
        return {"Projection": state, "Cell": cell, **batch}

    def numpy(
        self,
        Input: Array,
        Input_lod: list[Array],
        H0: Array | None,
        C0: Array | None,
        Weight: Array,
        Bias: Array,
        ProjWeight: Array,
    ) -> dict[str, Array]:
        kinds = self.gate_activation, self.cell_activation, self.candidate_activation
        width = len(ProjWeight)
        rule = kinds, peepholes(Bias, width, self.use_peepholes), self.cell_clip
        kind = "identity" if self.proj_activation == "identity" else self.cell_activation
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        gates = Input[rows] + Bias[0, : 4 * width]
        state = stack_states(H0, order, len(rows), len(Weight), Input.dtype)
        cell = stack_states(C0, order, len(rows), width, Input.dtype)
        projection = ProjWeight, kind, self.proj_clip
        active, hidden = run_memory(gates, starts, state, cell, Weight, rule, projection)
        return {
            "Projection": in_rows(state[len(order) :], rows),
            "Cell": in_rows(cell[len(order) :], rows),
            "BatchGate": gates,
            "BatchCellPreAct": active,
            "BatchHidden": hidden,
        }

    def grad(
        self,
        Input: Shape,
        Input_lod: list[Array],
        H0: Array | None,
        C0: Array | None,
        Weight: Array,
        ProjWeight: Array,
        Bias: Array,
        Projection: Array,
        Cell: Array,
        BatchGate: Array,
        BatchCellPreAct: Array,
        BatchHidden: Array,
        d_Projection: Array,
    ) -> dict[str, Array]:
        kinds = self.gate_activation, self.cell_activation, self.candidate_activation
        rule = kinds, peepholes(Bias, len(ProjWeight), self.use_peepholes), self.cell_clip
        kind = "identity" if self.proj_activation == "identity" else self.cell_activation
        order, starts, rows = by_time_step(Input_lod[0], self.is_reverse)
        state, cell = stacked(H0, order, Projection[rows]), stacked(C0, order, Cell[rows])
        d_state, d_cell = stacked(None, order, d_Projection[rows]), np.zeros_like(cell)
        d_gates = memory_gradient(
            d_state, starts, state, cell, BatchGate, BatchCellPreAct, Weight, rule,
            (ProjWeight, kind, self.proj_clip), d_cell,
        )  # fmt: skip
        places = places_before(starts)
        gradients = {
            "Input": in_rows(d_gates, rows),
            "Weight": state[places].T @ d_gates,
            "ProjWeight": BatchHidden.T @ d_state[len(order) :],
            "Bias": bias_gradient(Bias, d_gates, cell, places, self.use_peepholes),
        }
        if H0 is not None:
            gradients["H0"] = initial_gradient(d_state, order, len(H0))
        if C0 is not None:
            gradients["C0"] = initial_gradient(d_cell, order, len(C0))
        return gradients

    def kernel(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Input_lod: list[Operand],
        H0: DeviceOperand | None,
        C0: DeviceOperand | None,
        Weight: DeviceOperand,
        Bias: DeviceOperand,
        ProjWeight: DeviceOperand,
        Projection: DeviceOperand | None,
        Cell: DeviceOperand | None,
        BatchGate: DeviceOperand | None,
        BatchCellPreAct: DeviceOperand | None,
        BatchHidden: DeviceOperand | None,
    ) -> None:
        steps = Steps(k, Input_lod[0], Input.shape[0], self.is_reverse)
        memory = self.memory(k, Weight, Bias, ProjWeight, steps)
        outs = Projection, Cell, BatchGate, BatchCellPreAct
        launch_steps(memory, steps, (Input, H0, C0), outs, BatchHidden)

    def kernel_grad(
        self,
        k: KernelBuilder,
        Input_lod: list[Operand],
        H0: DeviceOperand | None,
        C0: DeviceOperand | None,
        Weight: DeviceOperand,
        ProjWeight: DeviceOperand,
        Bias: DeviceOperand,
        Projection: DeviceOperand,
        Cell: DeviceOperand,
        BatchGate: DeviceOperand,
        BatchCellPreAct: DeviceOperand,
        BatchHidden: DeviceOperand,
        d_Projection: DeviceOperand,
        d_Input: DeviceOperand | None,
        d_H0: DeviceOperand | None,
        d_C0: DeviceOperand | None,
        d_Weight: DeviceOperand | None,
        d_ProjWeight: DeviceOperand | None,
        d_Bias: DeviceOperand | None,
    ) -> None:
        steps = Steps(k, Input_lod[0], Projection.shape[0], self.is_reverse)
        memory = self.memory(k, Weight, Bias, ProjWeight, steps)
        saved = Projection, Cell, BatchGate, BatchCellPreAct
        back = launch_gradient(memory, steps, (H0, C0), saved, d_Projection, d_Input)
        store_gradients(memory, steps, back, (d_H0, d_C0, d_Weight, d_Bias))
        if d_ProjWeight is not None and back.d_state is not None:
            k.matmul(d_ProjWeight, BatchHidden, back.d_state, transposed=(True, False))

    def memory(
        self,
        k: KernelBuilder,
        Weight: DeviceOperand,
        Bias: DeviceOperand,
        ProjWeight: DeviceOperand,
        steps: Steps,
    ) -> lstm_kernels.Memory:
        """The weights and activations, for kernels."""
        kind = "identity" if self.proj_activation == "identity" else self.cell_activation
        by = lstm_kernels.Projection(ProjWeight, kind, self.proj_clip)
        rule = self.kinds, self.use_peepholes, steps.row_at, self.cell_clip, by
        return lstm_kernels.Memory(k, Weight, Bias, *rule)
