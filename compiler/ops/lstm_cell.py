"""One step of a long short-term memory, forward and back, and what the ops over sequences share.

Gates stand in the order candidate, input, forget, output. Peepholes let the cell into the gates:
the cell before into input and forget, the new one into output.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, attr, reads, reads_lod, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import require_same_dtype
from compiler.ops.sequence import count_of, require_one_level
from compiler.ops.time_steps import (
    activate,
    parts,
    require_activations,
    require_shape,
    slope,
)


def peepholes(Bias: Array, width: int, used: bool) -> Array | None:
    """The peephole weights of input, forget and output [3, width], if they are used."""
    return Bias.reshape(-1)[4 * width :].reshape(3, width) if used else None


def lstm_step(
    gates: Array, before: Array, checks: Array | None, kinds: tuple[str, str, str], clip: float
) -> tuple[Array, Array]:
    """The new cell and the activated one; gates [n, 4 · width] are activated in place."""
    gate_kind, cell_kind, candidate_kind = kinds
    candidate, inlet, forget, outlet = parts(gates, 4)
    if checks is not None:
        inlet += before * checks[0]
        forget += before * checks[1]
    activate(candidate, candidate_kind)
    activate(inlet, gate_kind)
    activate(forget, gate_kind)
    cell = candidate * inlet + before * forget
    if clip > 0.0:
        np.clip(cell, -clip, clip, out=cell)
    if checks is not None:
        outlet += cell * checks[2]
    activate(outlet, gate_kind)
    active = cell.copy()
    activate(active, cell_kind)
    return cell, active


def lstm_step_gradient(
    d_gates: Array,
    d_hidden: Array,
    d_cell: Array,
    gates: Array,
    active: Array,
    before: Array,
    checks: Array | None,
    kinds: tuple[str, str, str],
    free: Array | float,
) -> Array:
    """The gradient of the cell before; d_gates gets that of the gates before activation.

    `free` is 0 where a clip holds the new cell, and 1 elsewhere.
    """
    gate_kind, cell_kind, candidate_kind = kinds
    candidate, inlet, forget, outlet = parts(gates, 4)
    d_candidate, d_inlet, d_forget, d_outlet = parts(d_gates, 4)
    d_outlet[:] = d_hidden * active * slope(outlet, gate_kind)
    d_cell = d_cell + d_hidden * outlet * slope(active, cell_kind)
    if checks is not None:
        d_cell += d_outlet * checks[2]
    d_cell = d_cell * free
    d_candidate[:] = d_cell * inlet * slope(candidate, candidate_kind)
    d_inlet[:] = d_cell * candidate * slope(inlet, gate_kind)
    d_forget[:] = d_cell * before * slope(forget, gate_kind)
    d_before = d_cell * forget
    if checks is not None:
        d_before += d_inlet * checks[0] + d_forget * checks[1]
    return d_before


def bias_gradient(Bias: Array, d_gates: Array, cells: Array, before: Array, used: bool) -> Array:
    """The gradient of the bias and, where they are used, of the peephole weights behind it.

    `cells` are stacked on the initial ones; `before` has the places of those of the step before.
    """
    width = cells.shape[1]
    found = np.zeros_like(Bias)
    flat = found.reshape(-1)
    flat[: 4 * width] = d_gates.sum(axis=0)
    if used:
        d_inlet, d_forget, d_outlet = parts(d_gates, 4)[1:]
        seen, new = cells[before], cells[len(cells) - len(d_gates) :]
        products = d_inlet * seen, d_forget * seen, d_outlet * new
        flat[4 * width :] = np.concatenate([product.sum(axis=0) for product in products])
    return found


class Memory(OpDef):
    """What `lstm` and `lstmp` have in common.

    Input [rows, 4 · width] is what the gates get from outside, Weight [size of the state,
    4 · width] what from the state before, Bias [1, 4 · width], or [1, 7 · width] with peepholes.
    H0 and C0 are state and cell before the first rows, a row for each sequence.
    """

    lod_like = "Input"

    Input = reads()
    Input_lod = reads_lod("Input")
    H0 = reads(optional=True)
    C0 = reads(optional=True)
    Weight = reads()
    Bias = reads()
    Cell = writes()
    BatchGate = writes()
    BatchCellPreAct = writes()
    use_peepholes = attr(True)
    is_reverse = attr(False)
    gate_activation = attr("sigmoid")
    cell_activation = attr("tanh")
    candidate_activation = attr("tanh")

    def cell_type(
        self, Input: TensorType, Input_lod: list[TensorType], Bias: TensorType
    ) -> TensorType:
        """[rows, width]; errors where input, bias and LoD do not go together."""
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
        """ShapeError where there is a state without a cell, or not one for each sequence."""
        if H0 is not None and C0 is None:
            raise ShapeError(f"{self.kind}: H0 is {H0}, and there is no C0 to go with it")
        for slot, given, type in (("H0", H0, state), ("C0", C0, cell)):
            if given is not None:
                require_shape(self.kind, slot, given, count_of(Input_lod[0]), type.shape[1])
