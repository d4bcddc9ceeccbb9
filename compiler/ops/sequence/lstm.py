"""LSTM over sequences: `lstm`, and `lstmp`, which projects its hidden state."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input = s.Input
        Input_lod = s.all("Input_lod")
        cell = self.cell_type(Input, Input_lod, s.Bias)
        require_shape("lstm", "Weight", s.Weight, cell.shape[1], Input.shape[1])
        self.check_states(Input_lod, s.get("H0"), s.get("C0"), cell, cell)
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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        steps = Steps(k, s.host.all("Input_lod")[0], s.Input.shape[0], self.is_reverse)
        memory = lstm_kernels.Memory(
            k, s.Weight, s.Bias, self.kinds, self.use_peepholes, steps.row_at
        )
        outs = s.get("Hidden"), s.get("Cell"), s.get("BatchGate"), s.get("BatchCellPreAct")
        launch_steps(memory, steps, (s.Input, s.get("H0"), s.get("C0")), outs, None)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        steps = Steps(k, s.host.all("Input_lod")[0], s.Hidden.shape[0], self.is_reverse)
        memory = lstm_kernels.Memory(
            k, s.Weight, s.Bias, self.kinds, self.use_peepholes, steps.row_at
        )
        saved = s.Hidden, s.Cell, s.BatchGate, s.BatchCellPreAct
        back = launch_gradient(
            memory, steps, (s.get("H0"), s.get("C0")), saved, s.d_Hidden, s.get("d_Input")
        )
        store_gradients(
            memory, steps, back, (s.get("d_H0"), s.get("d_C0"), s.get("d_Weight"), s.get("d_Bias"))
        )


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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, Weight = s.Input, s.Weight
        Input_lod = s.all("Input_lod")
        require_activations("lstmp", proj_activation=self.proj_activation)
        cell = self.cell_type(Input, Input_lod, s.Bias)
        require_shape("lstmp", "ProjWeight", s.ProjWeight, cell.shape[1], Weight.shape[0])
        require_shape("lstmp", "Weight", Weight, Weight.shape[0], Input.shape[1])
        state = Input.with_shape((Input.shape[0], Weight.shape[0]))
        self.check_states(Input_lod, s.get("H0"), s.get("C0"), state, cell)
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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        steps = Steps(k, s.host.all("Input_lod")[0], s.Input.shape[0], self.is_reverse)
        memory = self.memory(k, s.Weight, s.Bias, s.ProjWeight, steps)
        outs = s.get("Projection"), s.get("Cell"), s.get("BatchGate"), s.get("BatchCellPreAct")
        launch_steps(memory, steps, (s.Input, s.get("H0"), s.get("C0")), outs, s.get("BatchHidden"))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        steps = Steps(k, s.host.all("Input_lod")[0], s.Projection.shape[0], self.is_reverse)
        memory = self.memory(k, s.Weight, s.Bias, s.ProjWeight, steps)
        saved = s.Projection, s.Cell, s.BatchGate, s.BatchCellPreAct
        back = launch_gradient(
            memory, steps, (s.get("H0"), s.get("C0")), saved, s.d_Projection, s.get("d_Input")
        )
        store_gradients(
            memory, steps, back, (s.get("d_H0"), s.get("d_C0"), s.get("d_Weight"), s.get("d_Bias"))
        )
        if (d_ProjWeight := s.get("d_ProjWeight")) is not None and back.d_state is not None:
            k.matmul(d_ProjWeight, s.BatchHidden, back.d_state, transposed=(True, False))

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
